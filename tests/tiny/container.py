"""Writes small .waste containers of random weights: format 0, plain Python.

write(path, case) makes one directory. The same case gives the same bytes on
every machine: all numbers come from stream(), and nothing else is random.

The generator. stream(seed, name, n) is the first 2n bytes of SHAKE-256 of the
text "seed/name", read as n little-endian 16-bit numbers u. uniform() maps each
to (u - 32767.5) / 32768 * sqrt(3) * std: even around 0, with that deviation.
Each tensor, codebook and record has a name of its own, so that adding one
changes no other.

A case is a dict:
  seed       text or number
  config     the manifest's `config`
  nested     keep `config` under config.text_config, as an unflattened source
  prefix     tensor_prefix (default "")
  trunk      "q4" (default), "q8", "q3", "f32", or "mixed": each tensor its own
  embed, head    likewise for the embedding and the head (default "q8")
  group      columns to one scale (default 128)
  scatter    index in another order than the file, odd gaps between the parts,
             scales away from their weights, junk in the padding codes
  experts    "vq3r" (default), "vq2r", "vq4p", or (stages, entries, vec_dim)
  record_fmt the fmt byte of the records, when not the usual one
  block      index_block: 64 (default) or 0
  omit       keys left out of expert_quant
  subnormal  "trunk": a quarter of the group scales are F16 subnormals;
             "scales": all row scales of experts are; "books": all codebooks are
  bias       deviation of the router's correction bias; None: no such tensor
  a_log      entries of A_log (default: one per head); those above are zero
  conv3      conv weights declared [C, 1, taps], as the sources have them
  book_gap   an empty codebook record between the layers
  extra      unused tensors, of a layer past the last and outside the prefix
  tokens     list of byte strings, rank by rank; specials: texts that follow
  chat       contents of chat.json
  follows    {token: next}: the head prefers `next` after `token`
  build      makes the trunk, instead of build_trunk (script.py)
  calm       factor on what the layers add to the token's own embedding
"""
import array
import base64
import hashlib
import json
import math
import os
import struct
import sys
import zlib

RECORD_MAGIC, CODEBOOK_MAGIC = 0x50584557, 0x4B424357
F32, Q8G, Q4G, VQ3R, VQ2R, Q3G, VQ4P = 0, 2, 3, 4, 5, 7, 8
TRUNK_FMT = {"f32": F32, "q8": Q8G, "q4": Q4G, "q3": Q3G}
CODE_MAX = {Q8G: 127, Q4G: 7, Q3G: 3}
EXPERTS = {  # stages, entries, vec_dim, index_bits, record fmt, name
    "vq3r": (3, 256, 8, 8, VQ3R, "VQ3R"),
    "vq2r": (2, 256, 8, 8, VQ2R, "VQ2R"),
    "vq4p": (4, 64, 8, 6, VQ4P, "VQ4P"),
}
ALIGN = 4096


def raw(seed, name, n):
    return hashlib.shake_256(f"{seed}/{name}".encode()).digest(n)


def stream(seed, name, n):
    a = array.array("H", raw(seed, name, 2 * n))
    if sys.byteorder == "big":
        a.byteswap()
    return a


def uniform(seed, name, n, std, mean=0.0):
    s = std * math.sqrt(3) / 32768
    return [mean + (u - 32767.5) * s for u in stream(seed, name, n)]


def halves(values):
    return struct.pack(f"<{len(values)}e", *values)


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def as_half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


# ---- trunk ---------------------------------------------------------------

def pack_codes(fmt, codes):
    """One row of signed codes, whole groups, as stored."""
    if fmt == Q8G:
        return bytes(c & 255 for c in codes)
    if fmt == Q4G:
        return bytes((codes[i] + 8) | (codes[i + 1] + 8) << 4 for i in range(0, len(codes), 2))
    out = bytearray((3 * len(codes) + 7) // 8 + 1)
    for i in range(0, len(codes), 8):
        u = 0
        for j, c in enumerate(codes[i:i + 8]):
            u |= (c + 4) << 3 * j
        out[i // 8 * 3:i // 8 * 3 + 3] = u.to_bytes(3, "little")
    return bytes(out)


def quantise(fmt, values, rows, cols, group, shrink, junk):
    """Payload and scales. shrink: indices of scales to make subnormal."""
    top = CODE_MAX[fmt]
    n_groups = -(-cols // group)
    payload, scales = [], []
    for r in range(rows):
        codes = []
        for k in range(n_groups):
            part = values[r * cols + k * group:r * cols + min(cols, (k + 1) * group)]
            scale = as_half(max(max(part), -min(part)) / top)
            inv = 1 / scale if scale else 0.0
            codes += [max(-top, min(top, round(v * inv))) for v in part]
            pad = group - len(part)
            codes += [top] * pad if junk else [0] * pad
            n = r * n_groups + k
            scales.append((n % 1000 + 24) * 2.0 ** -24 if n in shrink else scale)
        payload.append(pack_codes(fmt, codes))
    return b"".join(payload), halves(scales)


class Trunk:
    def __init__(self, case):
        self.case, self.seed = case, case["seed"]
        self.data, self.index = bytearray(), []

    def place(self, part):
        if self.case.get("scatter"):
            n = len(self.data)
            self.data += raw(self.seed, f"gap{n}", 1 + n % 13)
        self.data += part
        return len(self.data) - len(part)

    def add(self, name, shape, values, fmt="f32"):
        kind = TRUNK_FMT[fmt]
        e = {"name": name, "fmt": kind, "shape": shape}
        if kind == F32:
            part = floats(values)
            e.update(off=self.place(part), bytes=len(part))
        else:
            group, cols = self.case.get("group", 128), shape[-1]
            rows = len(values) // cols
            n = rows * -(-cols // group)
            pick = stream(self.seed, name + "/small", n)
            small = {i for i in range(n) if pick[i] < 16384}
            payload, scales = quantise(kind, values, rows, cols, group,
                                       small if self.case.get("subnormal") == "trunk" else (),
                                       self.case.get("scatter"))
            off = self.place(payload)
            e.update(off=off, scale_off=self.place(scales), bytes=len(payload) + len(scales))
            if group != 128 or self.case.get("scatter"):
                e["group"] = group
        self.index.append(e)

    def vector(self, name, n, std=0.1, mean=1.0, shape=None):
        self.add(name, shape or [n], uniform(self.seed, name, n, std, mean))

    def matrix(self, name, rows, cols, gain=1.0, fmt=None, out=False):
        """out: the result is added to the residual stream."""
        gain *= self.case.get("calm", 1.0) if out else 1.0
        fmt = fmt or self.case.get("trunk", "q4")
        if fmt == "mixed":
            fmt = ("q4", "q8", "q3", "f32")[raw(self.seed, name + "/fmt", 1)[0] % 4]
        self.add(name, [rows, cols], uniform(self.seed, name, rows * cols, gain / math.sqrt(cols)), fmt)


def attention_kda(t, a, c, case):
    lin, hidden = c["linear_attn_config"], c["hidden_size"]
    heads, dim, taps = lin["num_heads"], lin["head_dim"], lin.get("short_conv_kernel_size", 4)
    ch = heads * dim
    for x in "qkv":
        t.matrix(f"{a}{x}_proj.weight", ch, hidden)
    for x in "qkv":
        t.vector(f"{a}{x}_conv1d.weight", ch * taps, std=1.2 / math.sqrt(taps), mean=0.0,
                 shape=[ch, 1, taps] if case.get("conv3") else [ch, taps])
    t.matrix(a + "f_a_proj.weight", dim, hidden)
    t.matrix(a + "f_b_proj.weight", ch, dim)
    t.matrix(a + "b_proj.weight", heads, hidden)
    log = uniform(t.seed, a + "A_log", heads, 0.6)
    t.add(a + "A_log", [case.get("a_log", heads)], log + [0.0] * (case.get("a_log", heads) - heads))
    t.vector(a + "dt_bias", ch, std=0.7, mean=-1.0)
    if "use_full_rank_gate" in lin:
        t.matrix(a + "g_proj.weight", ch, hidden)
    else:
        t.matrix(a + "g_a_proj.weight", dim, hidden)
        t.matrix(a + "g_b_proj.weight", ch, dim)
    t.vector(a + "o_norm.weight", dim)
    t.matrix(a + "o_proj.weight", hidden, ch, gain=0.8, out=True)


def attention_mla(t, a, c):
    hidden, heads, rank = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
    nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    q_rank = c.get("q_lora_rank") or 0
    if q_rank:
        t.matrix(a + "q_a_proj.weight", q_rank, hidden)
        t.vector(a + "q_a_layernorm.weight", q_rank)
        t.matrix(a + "q_b_proj.weight", heads * (nope + rope), q_rank, gain=1.5)
    else:
        t.matrix(a + "q_proj.weight", heads * (nope + rope), hidden, gain=1.5)
    t.matrix(a + "kv_a_proj_with_mqa.weight", rank + rope, hidden)
    t.vector(a + "kv_a_layernorm.weight", rank)
    t.matrix(a + "kv_b_proj.weight", heads * (nope + v), rank)
    if "mla_use_output_gate" in c:
        t.matrix(a + "g_proj.weight", heads * v, hidden)
    t.matrix(a + "o_proj.weight", hidden, heads * v, gain=0.8, out=True)


def feed_forward(t, names, hidden, width):
    t.matrix(names + "gate_proj.weight", width, hidden)
    t.matrix(names + "up_proj.weight", width, hidden)
    t.matrix(names + "down_proj.weight", hidden, width, out=True)


def mixture(t, m, c, case):
    hidden, experts = c["hidden_size"], c["num_experts"]
    t.matrix(m + "gate.weight", experts, hidden, gain=1.2)
    if case.get("bias", 0.1) is not None:
        t.vector(m + "gate.e_score_correction_bias", experts, std=case.get("bias", 0.1), mean=0.0)
    feed_forward(t, m + "shared_experts.", hidden,
                 c["moe_intermediate_size"] * max(1, c.get("num_shared_experts", 0)))
    latent = c.get("routed_expert_hidden_size") or 0
    if latent:
        t.matrix(m + "routed_expert_down_proj.weight", latent, hidden)
        t.matrix(m + "routed_expert_up_proj.weight", hidden, latent, gain=0.7, out=True)
        if "latent_moe_use_norm" in c:
            t.vector(m + "routed_expert_norm.weight", latent)


def is_moe(c, layer):
    return c.get("num_experts", 0) > 0 and layer >= c.get("first_k_dense_replace", 0)


def head_rows(t, case, embed, vocab, hidden):
    """Random, or leaning to follows[token] after token."""
    name = case.get("prefix", "") + "lm_head.weight"
    follows = case.get("follows", {})
    rows = uniform(t.seed, name, vocab * hidden, (1.0 if follows else 2.0) / math.sqrt(hidden))
    for token, after in follows.items():
        for i in range(hidden):
            rows[after * hidden + i] += embed[token * hidden + i] * 16 / hidden
    return name, rows


def build_trunk(case):
    c, t = case["config"], Trunk(case)
    p, hidden, vocab = case.get("prefix", ""), c["hidden_size"], c["vocab_size"]
    layers = c["num_hidden_layers"]
    kda = set((c.get("linear_attn_config") or {}).get("kda_layers", ()))
    embed = uniform(t.seed, p + "embed", vocab * hidden, 1.0)
    t.add(p + "model.embed_tokens.weight", [vocab, hidden], embed, case.get("embed", "q8"))
    for n in range(layers):
        l = f"{p}model.layers.{n}."
        t.vector(l + "input_layernorm.weight", hidden)
        t.vector(l + "post_attention_layernorm.weight", hidden)
        if n + 1 in kda:
            attention_kda(t, l + "self_attn.", c, case)
        else:
            attention_mla(t, l + "self_attn.", c)
        if is_moe(c, n):
            mixture(t, l + "block_sparse_moe.", c, case)
        else:
            feed_forward(t, l + "mlp.", hidden, c["intermediate_size"])
        if c.get("attn_res_block_size"):
            for x in ("self_attention_res", "mlp_res"):
                t.vector(f"{l}{x}_norm.weight", hidden)
                t.vector(f"{l}{x}_proj.weight", hidden, std=1 / math.sqrt(hidden), mean=0.0, shape=[1, hidden])
    if c.get("attn_res_block_size"):
        t.vector(p + "model.output_attn_res_norm.weight", hidden)
        t.vector(p + "model.output_attn_res_proj.weight", hidden, std=1 / math.sqrt(hidden), mean=0.0,
                 shape=[1, hidden])
    t.vector(p + "model.norm.weight", hidden)
    name, rows = head_rows(t, case, embed, vocab, hidden)
    t.add(name, [vocab, hidden], rows, case.get("head", "q8"))
    if case.get("extra"):
        t.matrix(f"{p}model.layers.{layers}.self_attn.o_proj.weight", 8, 16)
        t.vector(f"{p}model.layers.0.self_attn.o_proj.weight_scale_inv", 3)
        if p:
            t.matrix("vision_tower.encoder.blocks.0.wo.weight", 8, 16, fmt="q8")
            t.vector("mm_projector.proj.0.weight", 64, shape=[4, 1, 4, 4])
    if case.get("scatter"):
        t.index.sort(key=lambda e: raw(t.seed, e["name"] + "/order", 8))
    return t


# ---- experts -------------------------------------------------------------

def quantiser(case):
    kind = case.get("experts", "vq3r")
    if isinstance(kind, str):
        stages, entries, dim, bits, fmt, name = EXPERTS[kind]
    else:
        stages, entries, dim = kind
        bits, fmt, name = 8, VQ3R, "VQ"
    return {"stages": stages, "entries": entries, "dim": dim, "bits": bits, "name": name,
            "fmt": case.get("record_fmt", fmt), "block": case.get("block", 64),
            "bytes": 3 if bits == 6 else stages}


def codebooks(case, q, layer, first):
    """The layer's books, and the deviation of what they add up to."""
    size = {"books": 3e-5, "scales": 6e3}.get(case.get("subnormal"), 0.3)
    stds = [size * 0.5 ** s for s in range(q["stages"])]
    out = []
    for kind in range(3):
        for s in range(q["stages"]):
            number = first + kind * q["stages"] + s
            out.append(struct.pack("<IHBBII", CODEBOOK_MAGIC, number & 0xFFFF, VQ3R, q["dim"], q["entries"], 0))
            out.append(halves(uniform(case["seed"], f"book/{layer}/{kind}/{s}", q["entries"] * q["dim"], stds[s])))
    return b"".join(out), math.sqrt(sum(x * x for x in stds))


def indices(case, q, name, rows, cols):
    """One matrix: random indices in their blocks, zeros where there is no row."""
    vectors, step, block = cols // q["dim"], q["bytes"], q["block"]
    fold = bytes(i if q["bits"] == 6 else i % q["entries"] for i in range(256))
    data = raw(case["seed"], name, rows * vectors * step).translate(fold)
    if not block:
        return data
    out, at = [], 0
    for r in range(0, rows, block):
        n = min(block, rows - r) * step
        for _ in range(vectors):
            out.append(data[at:at + n].ljust(block * step, b"\0"))
            at += n
    return b"".join(out)


def record(case, q, layer, expert, first, shapes, weight_std):
    head, body, scales = [], b"", []
    name = f"expert/{layer}/{expert}/"
    for kind, (rows, cols) in enumerate(shapes):
        head.append(48 + len(body))
        body += indices(case, q, f"{name}{kind}", rows, cols)
        gain = (1.0, 1.0, 1.5)[kind] / (weight_std * math.sqrt(cols))
        scales += uniform(case["seed"], f"{name}{kind}/scale", rows, 0.3 * gain, gain)
    head.append(48 + len(body))
    body += halves(scales)
    blocks = -(-(48 + len(body)) // ALIGN)
    return (struct.pack("<IHHBBHHHIIIIIIII", RECORD_MAGIC, layer, expert, q["fmt"], 0, first, 0, 0,
                        blocks, *head, zlib.crc32(body), 0, 0) + body).ljust(blocks * ALIGN, b"\0")


def write_experts(path, case):
    """Banks and codebooks; the manifest's `layers` and `expert_quant`."""
    c, q = case["config"], quantiser(case)
    width, inner = c.get("routed_expert_hidden_size") or c["hidden_size"], c.get("moe_intermediate_size", 0)
    shapes = [(inner, width), (inner, width), (width, inner)]
    layers, books, first = {}, b"", 0
    empty = bytes(16 + 2 * q["entries"] * q["dim"])
    for n in range(c["num_hidden_layers"]):
        if not is_moe(c, n):
            continue
        if case.get("book_gap"):
            books, first = books + empty, first + 1
        more, std = codebooks(case, q, n, first)
        books += more
        bank = b"".join(record(case, q, n, e, first, shapes, std) for e in range(c["num_experts"]))
        put(path, f"experts-L{n}.bin", bank)
        layers[str(n)] = {"file": f"experts-L{n}.bin", "experts": c["num_experts"], "bytes": len(bank),
                          "codebook_base": first}
        first += 3 * q["stages"]
    put(path, "codebooks.bin", books)
    quant = {"fmt": q["name"], "stages": q["stages"], "vec_dim": q["dim"], "entries": q["entries"],
             "index_block": q["block"], "index_bits": q["bits"],
             "bits_per_weight": q["stages"] * q["bits"] / q["dim"]}
    return layers, {k: v for k, v in quant.items() if k not in case.get("omit", ())}


# ---- the directory -------------------------------------------------------

def put(path, name, data):
    with open(os.path.join(path, name), "wb") as f:
        f.write(data if isinstance(data, (bytes, bytearray)) else data.encode())


def architecture(c):
    names = (c.get("_outer") or {}).get("architectures") or c.get("architectures") or ["unknown"]
    return "kimi-k3" if "KimiK3" in names[0] else "kimi-linear" if "KimiLinear" in names[0] else names[0]


def write(path, case):
    os.makedirs(path)
    c = case["config"]
    trunk = case.get("build", build_trunk)(case)
    put(path, "trunk.bin", trunk.data)
    layers, quant = write_experts(path, case)
    if "tokens" in case:
        put(path, "tokenizer.model",
            b"".join(base64.b64encode(t) + b" %d\n" % i for i, t in enumerate(case["tokens"])))
        put(path, "specials.json", json.dumps(
            [{"id": len(case["tokens"]) + i, "text": s} for i, s in enumerate(case["specials"])]))
    if "chat" in case:
        put(path, "chat.json", json.dumps(case["chat"], indent=1))
    manifest = {"format_version": 0, "arch": architecture(c), "tensor_prefix": case.get("prefix", ""),
                "config": c, "expert_quant": quant, "layers": layers, "trunk": trunk.index}
    if case.get("nested"):
        manifest["tensor_prefix"] = ""
        manifest["config"] = {"architectures": c["_outer"]["architectures"],
                              "text_config": {k: v for k, v in c.items() if k != "_outer"}}
    put(path, "manifest.json", json.dumps(manifest, indent=1))
