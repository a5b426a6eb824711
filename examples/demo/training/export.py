"""Training state -> release-style directory, and back.

`to_released` / `from_released` translate between the fused training layout and the
tensor names of the K3 release. Experts are written as packed MXFP4 (checkpoint/) or
as BF16 holding the same values (checkpoint-bf16/); the trunk is BF16, vectors F32.

  python3 export.py                   run/last.pt -> run/checkpoint, run/checkpoint-bf16
"""
import argparse
import json
import os
import struct

import torch

from bpe import Tokenizer
from model import CONFIG, Kda, Model, Moe
from paths import LAST, RUN, TOKENIZER
from quant import GROUP, is_expert, is_vector, mxfp4_codes, mxfp4_values, pack_nibbles, unpack_nibbles

PREFIX = "language_model."


# ------------------------------------------------------------ name mapping ---

class _Mapping:
    """Every released tensor of a model: `entries` holds (name, get, put), where get() is a
    view or copy of the tensor and put(t) writes it into the model."""

    def __init__(self, model):
        self.model, self.entries = model, []
        base = PREFIX + "model."
        self.matrix(base + "embed_tokens.weight", model.embed)
        self.matrix(PREFIX + "lm_head.weight", model.head)
        self.vector(base + "norm.weight", model.norm)
        self.vector(base + "output_attn_res_norm.weight", model.out_res_norm)
        self.row(base + "output_attn_res_proj.weight", model.out_res_proj)
        for i, layer in enumerate(model.layers):
            self.layer(base + f"layers.{i}.", layer)

    def add(self, name, get, put):
        self.entries.append((name, get, put))

    def slice(self, name, matrix, begin, end):
        """Rows [begin, end) of a fused matrix."""
        rows = matrix.weight.data[begin:end]
        self.add(name, lambda: rows, rows.copy_)

    def matrix(self, name, matrix):
        self.slice(name, matrix, 0, len(matrix.weight))

    def vector(self, name, p):
        self.add(name, lambda: p.data, lambda t: p.data.copy_(t.reshape(p.shape)))

    def row(self, name, p):
        """A vector that is released as a matrix of one row."""
        self.add(name, lambda: p.data.reshape(1, -1), lambda t: p.data.copy_(t.reshape(p.shape)))

    def fused(self, base, matrix, parts):
        """The parts (name, rows) that `matrix` stacks, in order; they must fill it."""
        begin = 0
        for name, rows in parts:
            self.slice(base + name + ".weight", matrix, begin, begin + rows)
            begin += rows
        assert begin == len(matrix.weight), base

    def layer(self, base, layer):
        self.vector(base + "input_layernorm.weight", layer.attn_norm)
        self.vector(base + "post_attention_layernorm.weight", layer.ffn_norm)
        self.vector(base + "self_attention_res_norm.weight", layer.attn_res_norm)
        self.row(base + "self_attention_res_proj.weight", layer.attn_res_proj)
        self.vector(base + "mlp_res_norm.weight", layer.ffn_res_norm)
        self.row(base + "mlp_res_proj.weight", layer.ffn_res_proj)
        (self.kda if isinstance(layer.attn, Kda) else self.mla)(base + "self_attn.", layer.attn)
        if isinstance(layer.ffn, Moe):
            self.moe(base + "block_sparse_moe.", layer.ffn)
        else:
            self.mlp(base + "mlp.", layer.ffn)

    def kda(self, base, a):
        self.fused(base, a.w_in, (("q_proj", a.width), ("k_proj", a.width), ("v_proj", a.width),
                                  ("g_proj", a.width), ("f_a_proj", a.head_dim), ("b_proj", a.n_heads)))
        self.matrix(base + "f_b_proj.weight", a.w_decay)
        self.matrix(base + "o_proj.weight", a.w_out)
        for j, name in enumerate("qkv"):
            self.conv(base + name + "_conv1d.weight", a.conv.data[:, j * a.width:(j + 1) * a.width])
        # one entry per head, zero-padded to head_dim as K3 ships it
        self.add(base + "A_log", lambda: torch.cat([a.A_log.data, torch.zeros(a.head_dim - a.n_heads)]),
                 lambda t: a.A_log.data.copy_(t.flatten()[:a.n_heads]))
        self.vector(base + "dt_bias", a.dt_bias)
        self.vector(base + "o_norm.weight", a.o_norm)

    def conv(self, name, taps):
        """[4, C] in training, [C, 1, 4] released."""
        self.add(name, lambda: taps.t().unsqueeze(1).contiguous(), lambda t: taps.copy_(t.squeeze(1).t()))

    def mla(self, base, a):
        self.fused(base, a.w_in, (("q_a_proj", a.q_rank), ("kv_a_proj_with_mqa", a.kv_rank + a.rope_dim),
                                  ("g_proj", a.n_heads * a.v_dim)))
        self.vector(base + "q_a_layernorm.weight", a.q_norm)
        self.vector(base + "kv_a_layernorm.weight", a.kv_norm)
        self.matrix(base + "q_b_proj.weight", a.w_q)
        self.matrix(base + "kv_b_proj.weight", a.w_kv)
        self.matrix(base + "o_proj.weight", a.w_out)

    def mlp(self, base, f):
        self.fused(base, f.w_in, (("gate_proj", f.inner), ("up_proj", f.inner)))
        self.matrix(base + "down_proj.weight", f.w_down)

    def moe(self, base, f):
        self.fused(base, f.w_in, (("shared_experts.gate_proj", f.shared_inner),
                                  ("shared_experts.up_proj", f.shared_inner),
                                  ("routed_expert_down_proj", f.latent), ("gate", f.n_experts)))
        self.add(base + "gate.e_score_correction_bias", lambda: f.bias, f.bias.copy_)
        self.matrix(base + "shared_experts.down_proj.weight", f.w_shared_down)
        self.matrix(base + "routed_expert_up_proj.weight", f.w_latent_up)
        self.vector(base + "routed_expert_norm.weight", f.latent_norm)
        for e in range(f.n_experts):
            w13, w2 = f.w13.weight.data[e], f.w2.weight.data[e]
            for name, rows in (("w1", w13[:f.inner]), ("w3", w13[f.inner:]), ("w2", w2)):
                self.expert(base + f"experts.{e}.{name}.weight", rows)

    def expert(self, name, rows):
        self.add(name, lambda: rows, rows.copy_)


def to_released(model):
    """{released name: f32 tensor}, copies."""
    return {name: get().clone() for name, get, _ in _Mapping(model).entries}


def from_released(tensors, config=None):
    """A model with the given released tensors, ready for evaluation."""
    model = Model(config)
    with torch.no_grad():
        for name, _, put in _Mapping(model).entries:
            put(tensors[name].float())
    return model.eval()


def load_run(path):
    """The model of a training state that train.py wrote."""
    model = Model()
    model.load_state_dict(torch.load(path)["model"])
    return model.eval()


# ------------------------------------------------------------ safetensors ---

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "U8": torch.uint8}


def _raw(t):
    t = t.contiguous()
    if t.dtype == torch.bfloat16:                  # numpy has no bf16
        t = t.view(torch.int16)
    return t.numpy().tobytes()


def write_safetensors(path, tensors):
    """Write one shard, tensors by name; returns the bytes of tensor data."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    names = sorted(tensors)
    dtype_names = {v: k for k, v in DTYPES.items()}
    for name in names:
        t, begin = tensors[name], end
        end += t.numel() * t.element_size()
        header[name] = {"dtype": dtype_names[t.dtype], "shape": list(t.shape), "data_offsets": [begin, end]}
    header = json.dumps(header, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        for name in names:
            f.write(_raw(tensors[name]))
    return end


def read_safetensors(path):
    """Every tensor of one shard, as stored."""
    with open(path, "rb") as f:
        data = f.read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            flat = torch.frombuffer(bytearray(data[start + begin:start + end]), dtype=DTYPES[entry["dtype"]])
            out[name] = flat.view(*entry["shape"])
    return out


# ------------------------------------------------------------ directories ---

def read_release(path):
    """Every tensor of a sharded directory, MXFP4 pairs decoded, as f32."""
    with open(os.path.join(path, "model.safetensors.index.json")) as f:
        shards = sorted(set(json.load(f)["weight_map"].values()))
    stored = {}
    for shard in shards:
        stored.update(read_safetensors(os.path.join(path, shard)))
    out = {}
    for name, t in stored.items():
        if name.endswith("_packed"):
            base = name[:-len("_packed")]
            out[base] = mxfp4_values(unpack_nibbles(t), stored[base + "_scale"])
        elif t.dtype != torch.uint8:
            out[name] = t.float()
    return out


def _shards(released, packed):
    """The stored tensors of the two files: embedding and first half of the layers, the rest."""
    half = CONFIG["num_hidden_layers"] // 2
    shards = [{}, {}]
    for name, t in released.items():
        parts = name.split(".")                    # language_model . model . layers . N ...
        second = int(parts[3]) >= half if parts[2] == "layers" else "embed" not in name
        shard = shards[second]
        if is_vector(name, t):
            shard[name] = t.float()
        elif is_expert(name):
            code, scale = mxfp4_codes(t.float())
            if packed:
                shard[name + "_packed"], shard[name + "_scale"] = pack_nibbles(code), scale
            else:
                shard[name] = mxfp4_values(code, scale).to(torch.bfloat16)
        else:
            shard[name] = t.to(torch.bfloat16)
    return shards


QUANTIZATION = {
    "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
    "config_groups": {"group_0": {
        "targets": ["re:.*experts\\.[0-9]+\\.w[123]$"],
        "weights": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": GROUP,
                    "symmetric": True, "scale_dtype": "torch.uint8"}}}}


def _configs(tok, packed):
    """{file name: object} of the JSON files beside the weights."""
    ids = {"bos_token_id": tok.special["[BOS]"], "eos_token_id": tok.special["<|end_of_msg|>"],
           "pad_token_id": tok.special["[EOS]"]}
    config = {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3",
              "torch_dtype": "bfloat16", **ids,
              "media_placeholder_token_id": tok.special["<|media_pad|>"], "tie_word_embeddings": False}
    if packed:
        config["quantization_config"] = QUANTIZATION
    config["text_config"] = {**CONFIG, "vocab_size": tok.n_vocab, **ids, "torch_dtype": "bfloat16"}
    return {
        "config.json": config,
        "generation_config.json": {**ids, "do_sample": False, "max_length": 4096},
        "tokenizer_config.json": {
            "added_tokens_decoder": tok.added_tokens_decoder(), "bos_token": "[BOS]",
            "eos_token": "<|end_of_msg|>", "pad_token": "[EOS]",
            "additional_special_tokens": list(tok.special), "model_max_length": 4096,
            "tokenizer_class": "TikTokenTokenizer", "clean_up_tokenization_spaces": False}}


def write_release(out, released, tok, packed):
    """Write a whole directory; returns its size in bytes."""
    os.makedirs(out, exist_ok=True)
    shards = _shards(released, packed)
    weight_map, total = {}, 0
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        total += write_safetensors(os.path.join(out, file), shard)
        weight_map.update({name: file for name in shard})
    files = _configs(tok, packed)
    files["model.safetensors.index.json"] = {"metadata": {"total_size": total},
                                             "weight_map": dict(sorted(weight_map.items()))}
    for name, content in files.items():
        with open(os.path.join(out, name), "w") as f:
            json.dump(content, f, indent=1)
    tok.save(os.path.join(out, "tiktoken.model"))
    return sum(os.path.getsize(os.path.join(out, f)) for f in os.listdir(out))


def main():
    parser = argparse.ArgumentParser(description="write a trained model as release-style directories")
    parser.add_argument("--run", default=LAST, help="training state (default: run/last.pt)")
    parser.add_argument("--out", default=RUN, help="where the two directories go (default: run/)")
    args = parser.parse_args()
    tok = Tokenizer.load(TOKENIZER)
    released = to_released(load_run(args.run))
    packed_dir, bf16_dir = (os.path.join(args.out, name) for name in ("checkpoint", "checkpoint-bf16"))
    for path, packed in ((packed_dir, True), (bf16_dir, False)):
        print(f"{path}: {write_release(path, released, tok, packed) / 1e6:.2f} MB")

    packed, bf16 = read_release(packed_dir), read_release(bf16_dir)
    assert packed.keys() == bf16.keys() == released.keys()
    assert all(torch.equal(packed[name], bf16[name]) for name in packed)
    again = to_released(from_released(packed))     # and the names map back
    assert all(torch.equal(again[name], packed[name]) for name in packed)
    print(len(packed), "tensors; both directories decode to the same weights")

    total = sum(t.numel() for t in released.values())
    experts = sum(t.numel() for name, t in released.items() if is_expert(name))
    active = total - experts + experts * CONFIG["num_experts_per_token"] // CONFIG["num_experts"]
    print(f"parameters: {total} total, {experts} in experts, {active} active per token "
          f"(of which embedding table {CONFIG['vocab_size'] * CONFIG['hidden_size']})")


if __name__ == "__main__":
    main()
