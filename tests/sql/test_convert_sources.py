"""Checkpoints in every encoding, naming and nesting against an independent reading of the containers made of them.

The reader here knows docs/format.md and nothing of the engine: manifest, trunk, codebooks and records are taken apart byte by
byte, and each weight is held against the one the checkpoint was written from, within what the quantiser may lose. Logits of the containers are held against the oracle's, which reads them by itself too
(tests/oracle/logits.py --converted).
"""
import json
import math
import os
import shutil
import struct
import sys
import tempfile
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import checkpoint  # noqa: E402
import demo  # noqa: E402
from tap import ROOT, SANITIZED, connect, done, equal, ok  # noqa: E402

HOME = tempfile.mkdtemp()
db = connect()


def read(path, name):
    with open(os.path.join(path, name), "rb") as f:
        return f.read()


def trunk_rows(t, trunk):
    """(codes, scale) of each group of a quantised tensor, or the floats of a plain one."""
    rows, cols = math.prod(t["shape"][:-1]), t["shape"][-1]
    if t["fmt"] == 0:
        return list(struct.unpack_from(f"<{rows * cols}f", trunk, t["off"]))
    g = t["group"]
    groups = -(-cols // g)
    out = []
    for r in range(rows):
        scales = struct.unpack_from(f"<{groups}e", trunk, t["scale_off"] + 2 * r * groups)
        if t["fmt"] == 2:
            codes = struct.unpack_from(f"<{cols}b", trunk, t["off"] + r * groups * g)
        elif t["fmt"] == 3:
            row = trunk[t["off"] + r * groups * g // 2:][:(cols + 1) // 2]
            codes = [c - 8 for b in row for c in (b & 15, b >> 4)][:cols]
        else:
            raise ValueError(t["fmt"])
        out += [scales[i // g] * codes[i] for i in range(cols)]
    return out


def bound_of(t, want):
    """What each weight may be off: half a step, and the rounding of the scale to binary16."""
    if t["fmt"] == 0:
        return [0.0] * len(want)
    cols, g = t["shape"][-1], t["group"]
    levels = {2: 127, 3: 7}[t["fmt"]]
    out = []
    for r in range(0, len(want), cols):
        for b in range(0, cols, g):
            group = want[r + b:min(r + b + g, r + cols)]
            step = max(max(map(abs, group)), 1e-8) / levels
            out += [step * (0.5 + levels * 2.0**-11) * (1 + 1e-6) + 2.0**-24 * levels] * len(group)
    return out


def source_name(name, weights, prefix):
    """The checkpoint's name of a trunk tensor."""
    if name not in weights:
        name = name.replace(".block_sparse_moe.", ".mlp.")
    return name if name in weights else prefix + "model.embed_tokens.weight"  # a tied head


def check_trunk(label, path, m, k):
    trunk = read(path, "trunk.bin")
    ends, far, shapes = 0, [], []
    for t in m["trunk"]:
        shape, want = k.weights[source_name(t["name"], k.weights, m["tensor_prefix"])]
        shapes += [t["name"]] if list(shape) != t["shape"] else []
        got = trunk_rows(t, trunk)
        far += [t["name"]] if any(not abs(a - b) <= e for a, b, e in zip(got, want, bound_of(t, want))) else []
        ends += t["off"] == ends and t["bytes"]
    equal((far, shapes), ([], []), f"{label}: every tensor of the trunk is what it was, within half a step")
    equal(ends, len(trunk), f"{label}: they lie back to back and fill the file")
    want = {n for n in k.weights if ".experts." not in n and not n.startswith(f"{m['tensor_prefix']}model.layers.{checkpoint.LAYERS}.")}
    got = {source_name(t["name"], k.weights, m["tensor_prefix"]) for t in m["trunk"]}
    equal(got, want, f"{label}: and none is missing or too many")


def matrix(record, off, scales, rows, cols, books):
    out = []
    nv = cols // 8
    for r in range(rows):
        for v in range(nv):
            pos = off + ((r // 64) * nv + v) * 64 * 3 + (r % 64) * 3
            entry = [books[s][record[pos + s]] for s in range(3)]
            out += [scales[r] * (entry[0][d] + entry[1][d] + entry[2][d]) for d in range(8)]
    return out


def check_experts(label, path, m, k, deepseek):
    W, I = m["config"].get("routed_expert_hidden_size", checkpoint.HIDDEN), checkpoint.WIDTH
    books = read(path, "codebooks.bin")
    worst, wrong = 0, []
    for layer, b in m["layers"].items():
        bank = read(path, b["file"])
        size = len(bank) // b["experts"]
        wrong += ["bank size"] if len(bank) != b["bytes"] or size % 4096 else []
        for e in range(b["experts"]):
            rec = bank[e * size:(e + 1) * size]
            h = struct.unpack_from("<IHHBBHHHIIIIIIII", rec)
            end = h[12] + 2 * (2 * I + W)
            magic, fmt = h[0], h[3]
            fine = (magic == 0x50584557 and (h[1], h[2]) == (int(layer), e) and fmt == 4 and h[5] == b["codebook_base"]
                    and h[8] * 4096 == size and h[9] == 48 and h[13] == zlib.crc32(rec[48:end]) and not any(rec[end:]))
            wrong += [] if fine else [f"{layer}.{e}"]
            at = h[12]
            for kind, (off, rows, cols) in enumerate(((h[9], I, W), (h[10], I, W), (h[11], W, I))):
                scales = struct.unpack_from(f"<{rows}e", rec, at)
                at += 2 * rows
                c = []
                for s in range(3):
                    first = (h[5] + kind * 3 + s) * 4112
                    magic, ident, _, dim, entries = struct.unpack_from("<IHBBI", books, first)
                    if (magic, ident, dim, entries) != (0x4B424357, h[5] + kind * 3 + s, 8, 256):
                        wrong.append(f"book {ident}")
                    values = struct.unpack_from("<2048e", books, first + 16)
                    c.append([values[i:i + 8] for i in range(0, 2048, 8)])
                moe, name = ("mlp", ("gate_proj", "up_proj", "down_proj")) if deepseek else ("block_sparse_moe", ("w1", "w3", "w2"))
                want = k.weights[f"{m['tensor_prefix']}model.layers.{layer}.{moe}.experts.{e}.{name[kind]}.weight"][1]
                got = matrix(rec, off, scales, rows, cols, c)
                worst = max(worst, math.sqrt(sum((x - y)**2 for x, y in zip(got, want)) / sum(y * y for y in want)))
    equal(wrong, [], f"{label}: banks, headers, checksums and codebooks byte by byte")
    ok(worst < 0.25, f"{label}: every expert is near its source (the worst is {worst:.3f} off)")


VARIANTS = checkpoint.VARIANTS
with open(os.path.join(ROOT, "tests", "golden", "converted.json"), encoding="utf-8") as f:
    GOLDEN = json.load(f)


def check_logits(label, path):
    g = GOLDEN[label]
    ok(checkpoint.digest(path) == g["digest"], f"{label}: the container is the one of the expected logits")
    for precision, bound in (("exact", 1e-5), ("fast", 1e-2)):
        db.execute("SELECT waste_register('c', ?, ?)", (path, json.dumps({"precision": precision, "context": 64})))
        got = dict(db.execute("SELECT token, logit FROM waste_next('c', NULL, ?, ?)",
                              (g["vocab"], json.dumps({"tokens": g["ids"]}))).fetchall())
        db.execute("SELECT waste_close('c')")
        error = max(abs(got[i] - v) for i, v in zip(range(0, g["vocab"], g["stride"]), g["logits"])) / g["largest"]
        ok(error <= bound, f"{label}: {precision}: logits within {bound:g} of the oracle's ({error:.1e})")


check_logits("demo", demo.container())
if SANITIZED:  # the same code, slowly
    VARIANTS = {n: VARIANTS[n] for n in ("F8_E4M3, DeepSeek", "MXFP4 experts, nested")}
for label, how in VARIANTS.items():
    source, target = os.path.join(HOME, "checkpoint"), os.path.join(HOME, "model.waste")
    k = checkpoint.model(source, **how)
    db.execute("SELECT count(*) FROM waste_convert(?, ?)", (source, target)).fetchone()
    m = json.loads(read(target, "manifest.json"))
    check_trunk(label, target, m, k)
    check_experts(label, target, m, k, how.get("deepseek", False))
    check_logits(label, target)
    shutil.rmtree(source)
    shutil.rmtree(target)

# -- what is missing is said by name
source, target = os.path.join(HOME, "checkpoint"), os.path.join(HOME, "model.waste")
k = checkpoint.model(source, matrices="F8_E4M3", experts="F8_E4M3", deepseek=True)
k.tensors = [t for t in k.tensors if t[0] != "model.layers.0.mlp.up_proj.weight_scale_inv"]
with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
    k.save(json.load(f))
try:
    db.execute("SELECT count(*) FROM waste_convert(?, ?)", (source, target)).fetchone()
    ok(False, "fp8 without its scales is refused")
except Exception as e:  # noqa: BLE001
    ok("model.layers.0.mlp.up_proj.weight is F8_E4M3 and has no" in str(e) and not os.path.exists(target),
       "fp8 without its scales is refused")
shutil.rmtree(HOME)
done()
