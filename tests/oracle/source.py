"""A checkpoint read without the engine: what tests/oracle/logits.py's Oracle needs of a container, from safetensors.

Plain F32, F16, BF16, fp8 with block scales and MXFP4 pairs; Mixtral's and DeepSeek's names; nested configurations. Every weight
is what the checkpoint says, in float64.
"""
import json
import math
import os
import struct

import numpy as np
import torch

MX = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
SIZE = {"F32": 4, "F16": 2, "BF16": 2}


def fp8(exponent_bits):
    """All 256 values."""
    mantissa_bits = 7 - exponent_bits
    bias, out = (1 << exponent_bits - 1) - 1, []
    for b in range(256):
        e, m = b >> mantissa_bits & (1 << exponent_bits) - 1, b & (1 << mantissa_bits) - 1
        v = (m / (1 << mantissa_bits) + (e > 0)) * 2.0 ** (max(e, 1) - bias)
        if exponent_bits == 4 and b & 127 == 127:
            v = math.nan
        if exponent_bits == 5 and e == 31:
            v = math.nan if m else math.inf
        out.append(-v if b & 128 else v)
    return np.array(out)


FP8 = {"F8_E4M3": fp8(4), "F8_E5M2": fp8(5)}


class Source:
    def __init__(self, path):
        with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
            outer = json.load(f)
        nested = "text_config" in outer
        self.config = dict(outer["text_config"] if nested else outer)
        self.prefix = "language_model." if nested else ""
        quant = outer.get("quantization_config") or self.config.get("quantization_config") or {}
        self.block = quant.get("weight_block_size") or [128, 128]
        for ours, theirs in (("num_experts", "n_routed_experts"), ("num_experts_per_token", "num_experts_per_tok"),
                             ("num_shared_experts", "n_shared_experts")):
            if ours not in self.config and theirs in self.config:
                self.config[ours] = self.config[theirs]
        if self.config.get("norm_topk_prob"):
            self.config.setdefault("moe_renormalize", True)
        self.where, self.known = {}, {}
        for name in sorted(f for f in os.listdir(path) if f.endswith(".safetensors")):
            data = np.memmap(os.path.join(path, name), np.uint8, "r")
            n, = struct.unpack("<Q", data[:8].tobytes())
            for t, d in json.loads(data[8:8 + n].tobytes()).items():
                if t != "__metadata__":
                    lo, hi = d["data_offsets"]
                    self.where[t] = (d["dtype"], d["shape"], data[8 + n + lo:8 + n + hi])

    def raw(self, name):
        dtype, shape, data = self.where[name]
        if dtype == "BF16":
            v = (np.frombuffer(data.tobytes(), "<u2").astype(np.uint32) << 16).view(np.float32)
        elif dtype in ("F32", "F16"):
            v = np.frombuffer(data.tobytes(), "<f4" if dtype == "F32" else "<f2")
        else:
            v = np.frombuffer(data.tobytes(), np.uint8)
        return v.reshape(shape)

    def matrix(self, name):
        """The weight as [rows][cols], or None."""
        if name + "_packed" in self.where:
            packed, scale = self.raw(name + "_packed"), self.raw(name + "_scale").astype(np.float64)
            w = np.stack([MX[packed & 15], MX[packed >> 4]], -1).reshape(len(packed), -1)
            return w * np.repeat(np.where(scale > 0, 2.0 ** (scale - 127), 0), 32, 1)
        if name not in self.where:
            return None
        dtype, v = self.where[name][0], self.raw(name)
        if dtype in FP8:
            scale = np.repeat(np.repeat(self.raw(name + "_scale_inv").astype(np.float64), self.block[0], 0), self.block[1], 1)
            return FP8[dtype][v] * scale[:v.shape[0], :v.shape[1]]
        return v.astype(np.float64).reshape(-1, v.shape[-1]) if v.ndim else v.astype(np.float64).reshape(1, 1)

    def get(self, name, flat=False):
        if name not in self.known:
            w = self.matrix(self.prefix + name)
            if w is None:
                w = self.matrix(self.prefix + name.replace(".block_sparse_moe.", ".mlp."))
            if w is None and name == "lm_head.weight":
                w = self.matrix(self.prefix + "model.embed_tokens.weight")
            self.known[name] = None if w is None else torch.from_numpy(np.ascontiguousarray(w))
        w = self.known[name]
        return w.reshape(-1) if flat and w is not None else w

    def expert(self, layer, number, width, inner):
        key = layer, number
        if key not in self.known:
            at = f"{self.prefix}model.layers.{layer}."
            names = [f"{at}block_sparse_moe.experts.{number}.{w}.weight" for w in ("w1", "w3", "w2")]
            if self.matrix(names[0]) is None:
                names = [f"{at}mlp.experts.{number}.{w}.weight" for w in ("gate_proj", "up_proj", "down_proj")]
            self.known[key] = [torch.from_numpy(np.ascontiguousarray(self.matrix(n))) for n in names]
        return self.known[key]
