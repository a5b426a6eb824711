"""Small checkpoints in every source encoding, and what their weights are.

A Checkpoint is written tensor by tensor; beside the bytes it keeps each weight as
Python floats, computed here from the definition of the encoding. Nothing of the
engine is used.
"""
import array
import hashlib
import json
import math
import os
import random
import struct

HIDDEN, VOCAB, DENSE, WIDTH, EXPERTS, LAYERS = 32, 2048, 2080, 64, 4, 3
Q_RANK, LATENT, SHARED_K3 = 20, 96, 2
BLOCK = (24, 20)  # of fp8 scales: most matrices end in cut tiles
MX = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def e4m3(b):
    e, m, s = b >> 3 & 15, b & 7, -1 if b & 128 else 1
    return math.nan if b & 127 == 127 else s * (m * 2.0**-9 if e == 0 else (8 + m) * 2.0**(e - 10))


def e5m2(b):
    e, m, s = b >> 2 & 31, b & 3, -1 if b & 128 else 1
    if e == 31:
        return math.nan if m else s * math.inf
    return s * (m * 2.0**-16 if e == 0 else (4 + m) * 2.0**(e - 17))


FP8 = {"F8_E4M3": [e4m3(b) for b in range(256)], "F8_E5M2": [e5m2(b) for b in range(256)]}


class Checkpoint:
    def __init__(self, path, seed=1, shards=1):
        self.path, self.shards = path, shards
        self.random = random.Random(seed)
        self.tensors = []  # name, dtype, shape, bytes
        self.weights = {}  # name: (shape, floats)
        os.makedirs(path, exist_ok=True)

    def put(self, name, dtype, shape, data):
        self.tensors.append((name, dtype, shape, data))

    def add(self, name, dtype, *shape):
        n, r = math.prod(shape), self.random
        if dtype in ("F32", "F16", "BF16"):
            values = [r.gauss(0, 0.5) for _ in range(n)]
            if dtype == "F32":
                data = array.array("f", values).tobytes()
                values = list(array.array("f", data))
            elif dtype == "F16":
                data = struct.pack(f"<{n}e", *values)
                values = list(struct.unpack(f"<{n}e", data))
            else:
                data = b"".join(struct.pack("<f", v)[2:] for v in values)
                values = [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, 2 * n, 2)]
            self.put(name, dtype, shape, data)
        elif dtype in FP8:
            table, (rows, cols) = FP8[dtype], shape
            usable = [b for b in range(256) if abs(table[b]) < 8]
            data = bytes(r.choice(usable) for _ in range(n))
            bm, bn = BLOCK
            wide = -(-cols // bn)
            scales = [f32(r.uniform(0.01, 0.05)) for _ in range(-(-rows // bm) * wide)]
            values = [f32(table[data[i]] * scales[i // cols // bm * wide + i % cols // bn]) for i in range(n)]
            self.put(name, dtype, shape, data)
            self.put(name + "_scale_inv", "F32", (-(-rows // bm), wide), array.array("f", scales).tobytes())
        else:  # MXFP4
            rows, cols = shape
            data = bytes(r.randrange(256) for _ in range(n // 2))
            scales = bytes(r.randrange(118, 124) for _ in range(n // 32))
            values = []
            for i in range(n):
                code = data[i // 2] >> (4 if i % 2 else 0) & 15
                values.append((-1 if code & 8 else 1) * MX[code & 7] * 2.0**(scales[i // 32] - 127))
            self.put(name + "_packed", "U8", (rows, cols // 2), data)
            self.put(name + "_scale", "U8", (rows, cols // 32), scales)
        self.weights[name] = (shape, values)

    def save(self, config):
        parts = [self.tensors[i::self.shards] for i in range(self.shards)]
        where = {}
        for i, part in enumerate(parts):
            file = "model.safetensors" if self.shards == 1 else f"model-{i + 1:05}-of-{self.shards:05}.safetensors"
            head, at = {"__metadata__": {"format": "pt"}}, 0
            for name, dtype, shape, data in part:
                head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
                at += len(data)
                where[name] = file
            text = json.dumps(head).encode()
            with open(os.path.join(self.path, file), "wb") as f:
                f.write(struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in part))
        if self.shards > 1:
            with open(os.path.join(self.path, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
                json.dump({"metadata": {"total_size": sum(len(t[3]) for t in self.tensors)}, "weight_map": where}, f)
        with open(os.path.join(self.path, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)


def attention_kda(k, a, matrices, full_gate):
    H = HIDDEN
    for x in "qkv":
        k.add(f"{a}{x}_proj.weight", matrices, 16, H)
        k.add(f"{a}{x}_conv1d.weight", "F32", 16, 1, 4)
    k.add(a + "f_a_proj.weight", "BF16", 8, H)
    k.add(a + "f_b_proj.weight", "BF16", 16, 8)
    k.add(a + "b_proj.weight", "BF16", 2, H)
    k.add(a + "A_log", "F32", 1, 1, 4, 1)  # padded: two heads
    k.add(a + "dt_bias", "F32", 16)
    if full_gate:
        k.add(a + "g_proj.weight", matrices, 16, H)
    else:
        k.add(a + "g_a_proj.weight", "BF16", 8, H)
        k.add(a + "g_b_proj.weight", "BF16", 16, 8)
    k.add(a + "o_norm.weight", "F32", 8)
    k.add(a + "o_proj.weight", matrices, H, 16)


def attention_mla(k, a, matrices, factored, gated):
    H = HIDDEN
    if factored:
        k.add(a + "q_a_proj.weight", matrices, Q_RANK, H)
        k.add(a + "q_a_layernorm.weight", "F32", Q_RANK)
        k.add(a + "q_b_proj.weight", matrices, 32, Q_RANK)
    else:
        k.add(a + "q_proj.weight", matrices, 32, H)
    k.add(a + "kv_a_proj_with_mqa.weight", matrices, 24, H)
    k.add(a + "kv_a_layernorm.weight", "F32", 16)
    k.add(a + "kv_b_proj.weight", "BF16", 32, 16)
    if gated:
        k.add(a + "g_proj.weight", matrices, 16, H)
    k.add(a + "o_proj.weight", "BF16", H, 16)


def feed_forward(k, names, matrices, width):
    k.add(names + "gate_proj.weight", matrices, width, HIDDEN)
    k.add(names + "up_proj.weight", matrices, width, HIDDEN)
    k.add(names + "down_proj.weight", matrices, HIDDEN, width)


def mixture(k, m, matrices, experts, kinds, k3):
    k.add(m + "gate.weight", "BF16", EXPERTS, HIDDEN)
    k.add(m + "gate.e_score_correction_bias", "F32", EXPERTS)
    feed_forward(k, m + "shared_experts.", matrices, SHARED_K3 * WIDTH if k3 else WIDTH)
    if k3:
        k.add(m + "routed_expert_down_proj.weight", matrices, LATENT, HIDDEN)
        k.add(m + "routed_expert_norm.weight", "F32", LATENT)
        k.add(m + "routed_expert_up_proj.weight", matrices, HIDDEN, LATENT)
    wide = LATENT if k3 else HIDDEN
    for e in range(EXPERTS):
        k.add(f"{m}experts.{e}.{kinds[0]}.weight", experts, WIDTH, wide)
        k.add(f"{m}experts.{e}.{kinds[1]}.weight", experts, WIDTH, wide)
        k.add(f"{m}experts.{e}.{kinds[2]}.weight", experts, wide, WIDTH)


def residual_readers(k, *names):
    for name in names:
        k.add(name + "_norm.weight", "F32", HIDDEN)
        k.add(name + "_proj.weight", "BF16", 1, HIDDEN)


def model(path, matrices="BF16", experts="BF16", deepseek=False, nested=False, tied=False, shards=1, seed=1, layers=LAYERS, k3=False,
          rotary=False):
    """A model of one dense layer and `layers` - 1 with experts: MLA with DeepSeek's names, else KDA and MLA. rotary: with
    positions and a factored query, as DeepSeek-V3 and K2 have them; k3: with all that is K3's."""
    k = Checkpoint(path, seed, shards)
    p = "language_model." if nested else ""
    moe = "mlp" if deepseek else "block_sparse_moe"
    kinds = ("gate_proj", "up_proj", "down_proj") if deepseek else ("w1", "w3", "w2")
    H = HIDDEN
    k.add(p + "model.embed_tokens.weight", "BF16", VOCAB, H)
    k.add(p + "model.norm.weight", "F32", H)
    if not tied:
        k.add(p + "lm_head.weight", "BF16", VOCAB, H)
    for n in range(layers + deepseek):  # DeepSeek's last is for multi-token prediction
        at = f"{p}model.layers.{n}."
        k.add(at + "input_layernorm.weight", "F32", H)
        k.add(at + "post_attention_layernorm.weight", "F32", H)
        if n % 2 == 0 and not deepseek:
            attention_kda(k, at + "self_attn.", matrices, k3)
        else:
            attention_mla(k, at + "self_attn.", matrices, rotary or k3, k3)
        if k3:
            residual_readers(k, at + "self_attention_res", at + "mlp_res")
        if n == 0:
            feed_forward(k, at + "mlp.", matrices, DENSE)
        else:
            mixture(k, f"{at}{moe}.", matrices, experts, kinds, k3)
    if k3:
        residual_readers(k, p + "model.output_attn_res")
    config = {"architectures": ["DeepseekV3ForCausalLM" if deepseek else "KimiLinearForCausalLM"], "num_hidden_layers": layers,
              "hidden_size": H, "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "num_attention_heads": 2, "kv_lora_rank": 16,
              "q_lora_rank": Q_RANK if rotary or k3 else None, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
              "first_k_dense_replace": 1, "intermediate_size": DENSE, "moe_intermediate_size": WIDTH, "tie_word_embeddings": tied,
              "quantization_config": {"quant_method": "fp8", "weight_block_size": list(BLOCK)}}
    if deepseek:
        config |= {"n_routed_experts": EXPERTS, "num_experts_per_tok": 2, "n_shared_experts": 1, "norm_topk_prob": True,
                   "rope_theta": 10000, "mla_use_nope": True}
    else:
        config |= {"num_experts": EXPERTS, "num_experts_per_token": 2, "num_shared_experts": 1, "moe_renormalize": True,
                   "mla_use_nope": True,
                   "linear_attn_config": {"num_heads": 2, "head_dim": 8, "short_conv_kernel_size": 4, "kda_layers": list(range(1, layers + 1, 2))}}
    if rotary:  # as K2's config.json has it: no word on positions being left out
        del config["mla_use_nope"]
        config |= {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827,
                   "rope_theta": 50000.0,
                   "rope_scaling": {"type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0,
                                    "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}}
    if k3:
        config["linear_attn_config"] |= {"use_full_rank_gate": True, "gate_lower_bound": -5.0}
        config |= {"num_shared_experts": SHARED_K3, "routed_expert_hidden_size": LATENT, "latent_moe_use_norm": True,
                   "attn_res_block_size": 2, "mla_use_output_gate": True, "hidden_act": "situ", "activation_situ_beta": 4.0,
                   "activation_situ_linear_beta": 25.0, "routed_scaling_factor": 1.5}
    if nested:
        outer = {"architectures": ["KimiK3ForConditionalGeneration"], "media_placeholder_token_id": 9,
                 "quantization_config": config.pop("quantization_config")}
        config = outer | {"text_config": config}
    k.save(config)
    return k


# Every encoding, naming and nesting.
VARIANTS = {
    "F32": dict(matrices="F32", experts="F32"),
    "F16": dict(matrices="F16", experts="F16", tied=True),
    "BF16, nested, in shards": dict(nested=True, shards=3),
    "MXFP4 experts, nested": dict(nested=True, experts="MXFP4", seed=4),
    "F8_E4M3, DeepSeek": dict(matrices="F8_E4M3", experts="F8_E4M3", deepseek=True, shards=2),
    "F8_E5M2": dict(matrices="F8_E5M2", experts="F8_E5M2", tied=True, seed=3),
    "BF16, DeepSeek, tied": dict(deepseek=True, tied=True),
    "F8_E4M3, K2": dict(matrices="F8_E4M3", experts="F8_E4M3", deepseek=True, rotary=True, seed=5),
    "MXFP4 experts, K3": dict(nested=True, experts="MXFP4", k3=True, shards=2, seed=6),
}


def digest(container):
    """Of all weights."""
    h = hashlib.sha256()
    for name in sorted(os.listdir(container)):
        if name.endswith(".bin"):
            with open(os.path.join(container, name), "rb") as f:
                h.update(f"{name}\0".encode() + f.read())
    return h.hexdigest()[:16]
