#!/usr/bin/python3
"""The forward pass in PyTorch and float64: what logits ought to be.

Written from the definition of the models and of the container, with the plainest
method for each step: whole matrices, one expert after another, keys and values
of MLA expanded per head. It shares nothing with the engine or with the writer
in tests/tiny. Needs torch and numpy; the tests only read what it wrote.

  logits.py --all                 makes tests/golden/logits, importance.json, converted.json
  logits.py --importance          makes tests/golden/importance.json alone
  logits.py --converted           makes tests/golden/converted.json alone: a container
                                  of each checkpoint, converted by the built extension
  logits.py --gaps                margins of the small containers, nothing written
  logits.py CONTAINER IDS OUT     logits of comma-separated ids, every position,
                                  as little-endian float32; prints the margin
  logits.py --against DIR [NAME]  NAME.waste against NAME.expected/*.exact.bin

The margin is the least distance between the key of the last expert chosen and
of the first rejected: with less than an engine's error, its choice may differ.

tests/golden/logits holds NAME.bin, the rows of index.json one after another:
for each sequence its ids and the positions kept. `digest` is of the container,
so that a changed writer shows as such and not as wrong logits.
"""
import json
import math
import os
import sys
import tempfile

import numpy as np
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDEN = os.path.join(ROOT, "tests", "golden", "logits")
IMPORTANCE = os.path.join(ROOT, "tests", "golden", "importance.json")
CONVERTED = os.path.join(ROOT, "tests", "golden", "converted.json")
CALIBRATED, WINDOW = ("k3", "linear-odd", "v3"), 32
KEPT = {"len1": [0], "len5": [0, 1, 2, 3, 4], "len70": [6, 31, 63, 64, 69]}
N_GREEDY = 24  # tokens of a greedy continuation, unless the end token comes
F64 = torch.float64
torch.set_num_threads(1)


# ---- the container -------------------------------------------------------

def quantised_rows(data, rows, cols, fmt, group, off, scale_off):
    groups = -(-cols // group)
    wide = groups * group
    stride = {2: wide, 3: wide // 2, 7: (3 * wide + 7) // 8 + 1}[fmt]
    part = data[off:off + rows * stride].reshape(rows, stride)
    if fmt == 2:
        codes = part.view(np.int8).astype(np.float64)
    elif fmt == 3:
        codes = np.empty((rows, wide))
        codes[:, 0::2] = (part & 15).astype(int) - 8
        codes[:, 1::2] = (part >> 4).astype(int) - 8
    else:
        bits = np.unpackbits(part, axis=1, bitorder="little")[:, :3 * wide].reshape(rows, wide, 3)
        codes = bits @ np.array([1.0, 2.0, 4.0]) - 4
    scales = np.frombuffer(data[scale_off:scale_off + 2 * rows * groups].tobytes(), "<f2").astype(np.float64)
    return (codes.reshape(rows, groups, group) * scales.reshape(rows, groups, 1)).reshape(rows, wide)[:, :cols]


class Container:
    def __init__(self, path):
        self.path = path
        with open(os.path.join(path, "manifest.json")) as f:
            self.manifest = json.load(f)
        self.prefix = self.manifest.get("tensor_prefix", "")
        self.config = self.manifest["config"]
        if "text_config" in self.config:
            self.config = self.config["text_config"]
            self.prefix = self.prefix or "language_model."
        self.data = np.fromfile(os.path.join(path, "trunk.bin"), np.uint8)
        self.index = {}
        for e in self.manifest["trunk"]:
            self.index.setdefault(e["name"], e)
        q = self.manifest.get("expert_quant", {})
        self.stages, self.dim = q.get("stages", 3), q.get("vec_dim", 8)
        self.entries, self.block = q.get("entries", 256), q.get("index_block", 0)
        self.packed = q.get("index_bits", 8) == 6
        self.known, self.banks, self.experts = {}, {}, {}
        size = 16 + 2 * self.entries * self.dim
        books = np.fromfile(os.path.join(path, "codebooks.bin"), np.uint8)
        books = books[:len(books) // size * size].reshape(-1, size)[:, 16:]
        self.books = np.frombuffer(books.tobytes(), "<f2").astype(np.float64).reshape(-1, self.entries, self.dim)

    def get(self, name, flat=False):
        """A tensor by its name without prefix, or None."""
        name = self.prefix + name
        if name not in self.known:
            e = self.index.get(name)
            if e is None:
                return None
            cols = e["shape"][-1]
            rows = math.prod(e["shape"]) // cols
            if e.get("fmt", 0) == 0:
                at = e.get("off", 0)
                w = np.frombuffer(self.data[at:at + 4 * rows * cols].tobytes(), "<f4").astype(np.float64)
                w = w.reshape(rows, cols)
            else:
                w = quantised_rows(self.data, rows, cols, e["fmt"], e.get("group", 128), e["off"], e["scale_off"])
            self.known[name] = torch.from_numpy(w.copy())
        w = self.known[name]
        return w.reshape(-1) if flat else w

    def expert(self, layer, number, width, inner):
        """Gate, up and down of one expert as matrices."""
        if (layer, number) not in self.experts:
            e = self.manifest["layers"][str(layer)]
            if layer not in self.banks:
                self.banks[layer] = np.fromfile(os.path.join(self.path, e["file"]), np.uint8)
            size = e["bytes"] // e["experts"]
            rec = self.banks[layer][number * size:(number + 1) * size]
            book = int(rec[10]) | int(rec[11]) << 8
            starts = np.frombuffer(rec[20:36].tobytes(), "<u4")
            shapes = [(inner, width), (inner, width), (width, inner)]
            n = sum(rows for rows, _ in shapes)
            scales = np.frombuffer(rec[starts[3]:starts[3] + 2 * n].tobytes(), "<f2").astype(np.float64)
            out, used = [], 0
            for kind, (rows, cols) in enumerate(shapes):
                w = self.vectors(rec[starts[kind]:], rows, cols // self.dim, book + kind * self.stages)
                out.append(torch.from_numpy(w.reshape(rows, cols) * scales[used:used + rows, None]))
                used += rows
            self.experts[layer, number] = out
        return self.experts[layer, number]

    def vectors(self, data, rows, n, book):
        """[rows][n][dim] before the row scales."""
        step = 3 if self.packed else self.stages
        if self.block:
            tall = -(-rows // self.block) * self.block
            part = data[:tall * n * step].reshape(-1, n, self.block, step)
            part = part.transpose(0, 2, 1, 3).reshape(tall, n, step)[:rows]
        else:
            part = data[:rows * n * step].reshape(rows, n, step)
        if self.packed:
            u = part.astype(int) @ np.array([1, 256, 65536])
            part = np.stack([u >> 6 * s & 63 for s in range(4)], -1)
        return sum(self.books[book + s][part[:, :, s]] for s in range(self.stages))


# ---- the pass ------------------------------------------------------------

class Oracle:
    """The pass over the weights of a Container, or of whatever else has config, get and expert."""

    def __init__(self, weights):
        self.c = weights
        self.k = self.c.config
        self.eps = self.k.get("rms_norm_eps", 1e-5)
        self.margin = math.inf
        self.used = set()  # (layer, expert) that were chosen
        self.inputs, self.hidden = {}, {}  # per layer: what gate and up, and what down, were given

    def norm(self, x, weight):
        w = self.c.get(weight, flat=True)
        return x * w / torch.sqrt((x * x).mean(-1, keepdim=True) + self.eps)

    def through(self, x, weight):
        return x @ self.c.get(weight).T

    def act(self, g, u):
        if self.k.get("hidden_act") != "situ":
            return g * torch.sigmoid(g) * u
        beta, linear = self.k.get("activation_situ_beta", 1.0), self.k.get("activation_situ_linear_beta", 0)
        if linear > 0:
            u = linear * torch.tanh(u / linear)
        return beta * torch.tanh(g / beta) * torch.sigmoid(g) * u

    def ffn(self, x, names):
        h = self.act(self.through(x, names + "gate_proj.weight"), self.through(x, names + "up_proj.weight"))
        return self.through(h, names + "down_proj.weight")

    # -- MLA

    def rotary(self, n):
        """cos and sin [n][rope/2] or None, and the factor on the scale."""
        rope = self.k.get("qk_rope_head_dim", 0)
        if self.k.get("mla_use_nope", False) or rope < 2:
            return None, 1.0
        base, s, m = self.k.get("rope_theta", 10000), self.k.get("rope_scaling") or {}, 1.0
        inv = [base ** (-2 * j / rope) for j in range(rope // 2)]
        if s and s.get("factor", 1) > 1:
            assert s.get("type", s.get("rope_type")) == "yarn"
            factor, original = s["factor"], s.get("original_max_position_embeddings", 4096)

            def turn(beta):
                return rope * math.log(original / (2 * math.pi * beta)) / (2 * math.log(base))

            low = max(math.floor(turn(s.get("beta_fast", 32))), 0)
            high = min(math.ceil(turn(s.get("beta_slow", 1))), rope - 1)
            high += 0.001 if low == high else 0
            for j, f in enumerate(inv):
                ramp = min(max((j - low) / (high - low), 0), 1)
                inv[j] = f / factor * ramp + f * (1 - ramp)
            if s.get("mscale_all_dim", 0):
                m = (0.1 * s["mscale_all_dim"] * math.log(factor) + 1) ** 2
        # The table and the angle are float32 by definition.
        angle = torch.arange(n, dtype=torch.float32)[:, None] * torch.tensor(inv, dtype=torch.float32)
        angle = angle.to(F64)
        return (torch.cos(angle), torch.sin(angle)), m

    @staticmethod
    def rotate(x, table):
        """x [positions][heads][rope]: neighbours are pairs."""
        cos, sin = (t[:, None, :] for t in table)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

    def mla(self, x, a):
        k, n = self.k, len(x)
        heads, rank, v_dim = k["num_attention_heads"], k["kv_lora_rank"], k["v_head_dim"]
        nope, rope = k.get("qk_nope_head_dim", 0), k.get("qk_rope_head_dim", 0)
        if k.get("q_lora_rank"):
            low = self.norm(self.through(x, a + "q_a_proj.weight"), a + "q_a_layernorm.weight")
            q = self.through(low, a + "q_b_proj.weight")
        else:
            q = self.through(x, a + "q_proj.weight")
        q = q.reshape(n, heads, nope + rope)
        latent = self.through(x, a + "kv_a_proj_with_mqa.weight")
        shared = latent[:, rank:].reshape(n, 1, rope)
        latent = self.norm(latent[:, :rank], a + "kv_a_layernorm.weight")
        kv = self.through(latent, a + "kv_b_proj.weight").reshape(n, heads, nope + v_dim)
        table, m = self.rotary(n)
        q_rope = q[..., nope:]
        if table:
            q_rope, shared = self.rotate(q_rope, table), self.rotate(shared, table)
        query = torch.cat([q[..., :nope], q_rope], -1)
        key = torch.cat([kv[..., :nope], shared.expand(n, heads, rope)], -1)
        score = torch.einsum("thd,shd->hts", query, key) * m / math.sqrt(nope + rope)
        score = score.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf)
        out = torch.einsum("hts,shd->thd", torch.softmax(score, -1), kv[..., nope:]).reshape(n, heads * v_dim)
        if "mla_use_output_gate" in k:
            out = out * torch.sigmoid(self.through(x, a + "g_proj.weight"))
        return self.through(out, a + "o_proj.weight")

    # -- KDA

    def convolved(self, x, a, which, taps):
        y = self.through(x, f"{a}{which}_proj.weight")
        w = self.c.get(f"{a}{which}_conv1d.weight", flat=True)[:y.shape[1] * taps].reshape(-1, taps)
        past = torch.cat([torch.zeros(taps - 1, y.shape[1], dtype=F64), y])
        out = sum(past[j:j + len(y)] * w[:, j] for j in range(taps))
        return out * torch.sigmoid(out)

    def kda(self, x, a):
        lin, n = self.k["linear_attn_config"], len(x)
        heads, dim = lin["num_heads"], lin["head_dim"]
        taps = lin.get("short_conv_kernel_size", 4)
        q, k, v = (self.convolved(x, a, w, taps).reshape(n, heads, dim) for w in "qkv")
        q = q / torch.sqrt((q * q).sum(-1, keepdim=True) + 1e-12) / math.sqrt(dim)
        k = k / torch.sqrt((k * k).sum(-1, keepdim=True) + 1e-12)
        z = self.through(self.through(x, a + "f_a_proj.weight"), a + "f_b_proj.weight")
        z = (z + self.c.get(a + "dt_bias", flat=True)[:heads * dim]).reshape(n, heads, dim)
        rate = torch.exp(self.c.get(a + "A_log", flat=True)[:heads])[:, None]
        bound = lin.get("gate_lower_bound", 0)
        if bound < 0:
            decay = bound * torch.sigmoid(rate * z)
        else:
            decay = -rate * torch.where(z > 20, z, torch.log1p(torch.exp(torch.clamp(z, max=20))))
        beta = torch.sigmoid(self.through(x, a + "b_proj.weight"))
        state = torch.zeros(heads, dim, dim, dtype=F64)
        out = []
        for t in range(n):
            state = torch.exp(decay[t])[:, :, None] * state
            seen = torch.einsum("hkv,hk->hv", state, k[t])
            state = state + torch.einsum("hk,hv->hkv", k[t], beta[t][:, None] * (v[t] - seen))
            out.append(torch.einsum("hkv,hk->hv", state, q[t]))
        out = self.norm(torch.stack(out), a + "o_norm.weight")
        if "use_full_rank_gate" in lin:
            gate = self.through(x, a + "g_proj.weight")
        else:
            gate = self.through(self.through(x, a + "g_a_proj.weight"), a + "g_b_proj.weight")
        return self.through((out * torch.sigmoid(gate.reshape(n, heads, dim))).reshape(n, -1), a + "o_proj.weight")

    # -- experts

    def choose(self, keys, top):
        """Descending keys, the lower number first among equals."""
        order = sorted(range(len(keys)), key=lambda e: (-keys[e], e))
        if top < len(keys):
            self.margin = min(self.margin, keys[order[top - 1]] - keys[order[top]])
        return order[:top]

    def moe(self, x, layer, m):
        k = self.k
        top, inner = k["num_experts_per_token"], k["moe_intermediate_size"]
        prob = torch.sigmoid(self.through(x, m + "gate.weight"))
        bias = self.c.get(m + "gate.e_score_correction_bias", flat=True)
        keys = prob if bias is None else prob + bias
        latent = k.get("routed_expert_hidden_size") or 0
        y = self.through(x, m + "routed_expert_down_proj.weight") if latent else x
        rows = []
        for t in range(len(x)):
            chosen = self.choose(keys[t].tolist(), top)
            w = prob[t][chosen]
            if "moe_renormalize" in k and top > 1:
                w = w / (w.sum() + 1e-20)
            w = w * k.get("routed_scaling_factor", 1.0)
            total = torch.zeros(y.shape[1], dtype=F64)
            for weight, e in zip(w, chosen):
                self.used.add((layer, e))
                gate, up, down = self.c.expert(layer, e, y.shape[1], inner)
                h = self.act(gate @ y[t], up @ y[t])
                self.inputs.setdefault(layer, []).append(y[t])
                self.hidden.setdefault(layer, []).append(h)
                total = total + weight * (down @ h)
            rows.append(total)
        z = torch.stack(rows)
        if latent:
            if "latent_moe_use_norm" in k:
                z = self.norm(z, m + "routed_expert_norm.weight")
            z = self.through(z, m + "routed_expert_up_proj.weight")
        return z + self.ffn(x, m + "shared_experts.")

    # -- layers

    def mix(self, blocks, p, names):
        """Attention over depth: softmax of how each earlier sum reads."""
        v = torch.stack(blocks + [p])
        w = self.c.get(names + "_norm.weight", flat=True) * self.c.get(names + "_proj.weight", flat=True)
        score = (v * w).sum(-1) / torch.sqrt((v * v).mean(-1) + self.eps)
        return (torch.softmax(score, 0)[..., None] * v).sum(0)

    def attention(self, x, n):
        l = f"model.layers.{n}."
        h = self.norm(x, l + "input_layernorm.weight")
        kda = (self.k.get("linear_attn_config") or {}).get("kda_layers", [])
        return self.kda(h, l + "self_attn.") if n + 1 in kda else self.mla(h, l + "self_attn.")

    def forward_part(self, x, n):
        l = f"model.layers.{n}."
        h = self.norm(x, l + "post_attention_layernorm.weight")
        if self.k.get("num_experts", 0) > 0 and n >= self.k.get("first_k_dense_replace", 0):
            return self.moe(h, n, l + "block_sparse_moe.")
        return self.ffn(h, l + "mlp.")

    def logits(self, ids):
        x = self.c.get("model.embed_tokens.weight")[ids]
        size, blocks = self.k.get("attn_res_block_size", 0), []
        for n in range(self.k["num_hidden_layers"]):
            if not size:
                x = x + self.attention(x, n)
                x = x + self.forward_part(x, n)
                continue
            l, total = f"model.layers.{n}.", x
            if blocks:
                x = self.mix(blocks, total, l + "self_attention_res")
            new = n % size == 0
            if new:
                blocks.append(total)
            a = self.attention(x, n)
            total = a if new else total + a
            x = total + self.forward_part(self.mix(blocks, total, l + "mlp_res"), n)
        if blocks:
            x = self.mix(blocks, x, "model.output_attn_res")
        return self.through(self.norm(x, "model.norm.weight"), "lm_head.weight").numpy()

    def greedy(self, ids, n):
        """The continuation up to the end token, and the least lead of a choice."""
        ids, out, lead = list(ids), [], math.inf
        for _ in range(n):
            row = self.logits(ids)[-1]
            best = int(row.argmax())
            lead = min(lead, row[best] - np.delete(row, best).max())
            ids.append(best)
            out.append(best)
            if best == self.k["eos_token_id"]:
                break
        return out, float(lead)


# ---- commands ------------------------------------------------------------

def small_containers():
    sys.path.insert(0, os.path.join(ROOT, "tests"))
    from tiny import cases
    return cases


def measure(cases, name):
    oracle, rows = Oracle(Container(cases.make(name))), {}
    for s, ids in cases.sequences(name).items():
        rows[s] = oracle.logits(ids)
    experts = oracle.k.get("num_experts", 0)
    moe = sum(n >= oracle.k.get("first_k_dense_replace", 0) for n in range(oracle.k["num_hidden_layers"]))
    unused = experts * moe - len(oracle.used) if experts else 0
    largest = max(abs(r).max() for r in rows.values())
    print(f"{name:20s} margin {oracle.margin:.2e}  largest logit {largest:6.2f}  experts never chosen {unused}",
          flush=True)
    return oracle, rows


def mean_squares(rows):
    return [float(f"{v:.8g}") for v in torch.stack(rows).square().mean(0).tolist()]


def importance(cases, name):
    """Mean squares of what the experts are given, text by text, window by window."""
    oracle = Oracle(Container(cases.make(name)))
    for ids in cases.sequences(name).values():
        for at in range(0, len(ids), WINDOW):
            oracle.logits(ids[at:at + WINDOW])
    return {str(l): {"gate_up": mean_squares(oracle.inputs[l]), "down": mean_squares(oracle.hidden[l])} for l in sorted(oracle.inputs)}


def write_importance(cases):
    out = {name: {"digest": cases.digest(name), "window": WINDOW, "layers": importance(cases, name)} for name in CALIBRATED}
    with open(IMPORTANCE, "w") as f:
        f.write("{\n" + ",\n".join(f" {json.dumps(n)}: {json.dumps(e)}" for n, e in out.items()) + "\n}\n")


def last_logits(checkpoint, source, path, ids, stride):
    """Every `stride`-th logit after the ids: the weights as converted, the configuration as the source has it."""
    from source import Source
    weights = Container(path)
    weights.config = Source(source).config
    oracle = Oracle(weights)
    row = oracle.logits(ids)[-1]
    return {"digest": checkpoint.digest(path), "ids": ids, "vocab": len(row), "stride": stride, "margin": float(f"{oracle.margin:.3g}"),
            "largest": float(abs(row).max()), "logits": [float(f"{v:.8g}") for v in row[::stride]]}


def write_converted():
    sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "lib")]
    from lib import checkpoint, demo
    from lib.tap import connect
    out = {"demo": last_logits(checkpoint, demo.CHECKPOINT, demo.container(), [82, 458, 287, 1000, 7, 399], 16)}
    with tempfile.TemporaryDirectory() as home:
        for n, (label, how) in enumerate(checkpoint.VARIANTS.items()):
            source, target = os.path.join(home, f"{n}"), os.path.join(home, f"{n}.waste")
            checkpoint.model(source, **how)
            connect().execute("SELECT count(*) FROM waste_convert(?, ?)", (source, target)).fetchone()
            out[label] = last_logits(checkpoint, source, target, [7, 1999, 300, 41, 1000, 5, 5, 812], 16)
            print(f"{label:30s} margin {out[label]['margin']:.2e}", flush=True)
    with open(CONVERTED, "w") as f:
        f.write("{\n" + ",\n".join(f" {json.dumps(n)}: {json.dumps(e)}" for n, e in out.items()) + "\n}\n")


def write_all(cases):
    os.makedirs(GOLDEN, exist_ok=True)
    for f in os.listdir(GOLDEN):
        os.unlink(os.path.join(GOLDEN, f))
    index = {}
    for name in cases.CASES:
        oracle, rows = measure(cases, name)
        entry = {"digest": cases.digest(name), "vocab": oracle.k["vocab_size"], "sequences": {}}
        with open(os.path.join(GOLDEN, name + ".bin"), "wb") as f:
            for s, ids in cases.sequences(name).items():
                entry["sequences"][s] = {"ids": ids, "rows": KEPT[s], "largest": float(abs(rows[s]).max())}
                f.write(rows[s][KEPT[s]].astype("<f4").tobytes())
        if oracle.margin < math.inf:
            entry["margin"] = float(f"{oracle.margin:.3g}")
        ids = cases.greedy_prompt(name)
        if ids:
            out, lead = oracle.greedy(ids, N_GREEDY)
            entry["greedy"] = {"prompt": ids, "tokens": out, "lead": float(f"{lead:.3g}")}
        index[name] = entry
    with open(os.path.join(GOLDEN, "index.json"), "w") as f:
        f.write("{\n" + ",\n".join(f" {json.dumps(n)}: {json.dumps(e)}" for n, e in index.items()) + "\n}\n")


def against(folder, only):
    worst = 0.0
    for name in sorted(f[:-9] for f in os.listdir(folder) if f.endswith(".expected")):
        if only and name not in only:
            continue
        there = os.path.join(folder, name + ".expected")
        with open(os.path.join(there, "meta.json")) as f:
            meta = json.load(f)
        error, oracle = 0.0, Oracle(Container(os.path.join(folder, name + ".waste")))
        for s, m in meta["sequences"].items():
            want = np.fromfile(os.path.join(there, s + ".exact.bin"), "<f4").reshape(-1, meta["vocab"])
            got = oracle.logits(m["ids"])
            error = max(error, abs(got - want).max() / abs(want).max())
        worst = max(worst, error)
        print(f"{name:22s} {error:.1e}  margin {oracle.margin:.1e}", flush=True)
    print(f"worst {worst:.1e}")


def main(args):
    if args[:1] == ["--all"]:
        write_all(small_containers())
        write_importance(small_containers())
        write_converted()
    elif args[:1] == ["--converted"]:
        write_converted()
    elif args[:1] == ["--importance"]:
        write_importance(small_containers())
    elif args[:1] == ["--gaps"]:
        cases = small_containers()
        for name in args[1:] or cases.CASES:
            measure(cases, name)
    elif args[:1] == ["--against"] and len(args) > 1:
        against(args[1], args[2:])
    elif len(args) == 3:
        oracle = Oracle(Container(args[0]))
        oracle.logits([int(i) for i in args[1].split(",")]).astype("<f4").tofile(args[2])
        print(f"margin {oracle.margin:.2e}")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
