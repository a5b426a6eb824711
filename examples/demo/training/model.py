"""The model: a K3-family network at toy scale. KDA and gated MLA layers, latent mixture
of experts, attention residuals, SiTU.

One module, three ways to run it; Layout says which:

  * training   tokens of many sequences packed back to back, bf16 matrix products on the
               compute copies that flatten() and emit() provide, C kernels for the rest;
  * packed     the same layout and kernels with the f32 weights: evaluation of many rows;
  * padded     [B, T] batches in plain f32 PyTorch (ops.py): the definition. The other
               two are tested against it.

Gradients reach the f32 masters straight through whatever the compute copies hold, so
quantisation-aware training is nothing but filling them with rounded weights.
"""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from autograd import AttnResidual, Embedding, Experts, KdaScan, Linear, RmsNorm, ShortConv, Situ
from native import call
from ops import attn_residual, kda_chunked, matmul_f32, rms_norm, short_conv, situ

CONFIG = {
    "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear",
    "hidden_size": 256, "num_hidden_layers": 8, "first_k_dense_replace": 1,
    "intermediate_size": 512, "moe_intermediate_size": 128,
    "num_experts": 32, "num_experts_per_token": 4, "num_shared_experts": 1,
    "routed_expert_hidden_size": 128, "latent_moe_use_norm": True,
    "attn_res_block_size": 4, "hidden_act": "situ",
    "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
    "moe_renormalize": True, "moe_router_activation_func": "sigmoid",
    "routed_scaling_factor": 1.0, "num_expert_group": 1, "topk_group": 1,
    "num_attention_heads": 4, "num_key_value_heads": 4,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "kv_lora_rank": 128, "q_lora_rank": 128,
    "mla_use_nope": True, "mla_use_output_gate": True, "rms_norm_eps": 1e-5,
    "linear_attn_config": {
        "head_dim": 32, "num_heads": 8, "short_conv_kernel_size": 4,
        "kda_layers": [1, 2, 3, 5, 6, 7], "full_attn_layers": [4, 8],
        "use_full_rank_gate": True, "gate_lower_bound": -5.0},
    "vocab_size": 2048, "tie_word_embeddings": False, "max_position_embeddings": 4096,
    "num_nextn_predict_layers": 0,
}


class Layout:
    """How the tokens of a forward pass lie: packed when `offsets` is given, else [B, T].

    `offsets` lists where each packed sequence begins, then the total. `exact` keeps the
    attention products of a packed pass in f32; training runs them in bf16.
    """

    def __init__(self, offsets=None, exact=False):
        self.packed, self.exact = offsets is not None, exact
        if self.packed:
            self.offsets = torch.tensor(offsets, dtype=torch.int32)
            starts = np.asarray(offsets)
            lengths = starts[1:] - starts[:-1]
            n, longest = len(lengths), lengths.max()
            # [n, longest] packed rows of the padded batch; past its end a sequence repeats its last row
            self.pad = torch.from_numpy(
                starts[:-1, None] + np.minimum(np.arange(longest)[None], lengths[:, None] - 1))
            sequence = np.repeat(np.arange(n), lengths)
            # [total] padded position of every packed row
            self.unpad = torch.from_numpy(
                sequence * longest + np.arange(starts[-1]) - starts[:-1][sequence])


def norm(x, weight, eps, layout):
    return RmsNorm.apply(x, weight, eps) if layout.packed else rms_norm(x, weight, eps)


def mix_residuals(sources, norm_weight, proj_weight, eps, layout):
    weight = norm_weight * proj_weight
    return AttnResidual.apply(weight, eps, *sources) if layout.packed else attn_residual(sources, weight, eps)


# ------------------------------------------------------------- parameters ---

class Matrix(nn.Module):
    """A weight matrix (or a stack of them), the f32 master, with its bf16 compute copy.

    `kind` names what the matrix is deployed as: "int4" trunk, "int8" embedding table and
    head, "mxfp4" expert. `compute` stays None until Model.flatten.
    """

    def __init__(self, *shape, std=None, kind="int4"):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*shape) * (std if std is not None else shape[-1] ** -0.5))
        self.kind, self.compute = kind, None

    def emit(self, quantise, noise=0.0, seed=0):
        """Refresh the compute copy, rounded to the deployed format if `quantise`."""
        w = self.weight.data
        n, columns, largest = w.numel(), w.shape[-1], 7 if self.kind == "int4" else 127
        if not quantise:
            call("emit_bf16", n, w, self.compute)
        elif self.kind == "mxfp4":
            call("emit_mx", n, w, self.compute, noise, seed & 0xffffffff)
        else:
            call("emit_int", n // columns, columns, 128, largest, w, self.compute)

    def forward(self, x, out_f32=True):
        if self.compute is None:
            return matmul_f32(x, self.weight)
        return Linear.apply(x, self.weight, self.compute, out_f32)


def vector(*shape, fill=1.0):
    return nn.Parameter(torch.full(shape, float(fill)))


def spread_decay(n, gate_floor, low=0.002, high=0.5):
    """Gate offsets whose per-step log decay is log-uniform in (-high, -low): channels that
    remember from a couple of steps to several hundred. Starting with short memories only
    leaves the recurrent layers unable to learn copying at all."""
    decay = torch.exp(torch.empty(n).uniform_(math.log(low), math.log(high)))
    return torch.logit(decay / -gate_floor)


# ----------------------------------------------------------------- layers ---
# The projections that read the same input are one matrix, w_in; a comment gives the order
# of its rows. export.py splits them again under the released names.

class Kda(nn.Module):
    """Kimi Delta Attention: a gated delta-rule recurrence per head."""

    def __init__(self, config):
        super().__init__()
        linear, hidden = config["linear_attn_config"], config["hidden_size"]
        self.n_heads, self.head_dim = linear["num_heads"], linear["head_dim"]
        self.gate_floor, self.eps = linear["gate_lower_bound"], config["rms_norm_eps"]
        self.width = width = self.n_heads * self.head_dim
        self.w_in = Matrix(4 * width + self.head_dim + self.n_heads, hidden)    # q | k | v | gate | f_a | b
        self.w_decay = Matrix(width, self.head_dim, std=0.5 * self.head_dim ** -0.5)        # f_b
        self.w_out = Matrix(hidden, width, std=0.5 * width ** -0.5)
        conv = torch.randn(4, 3 * width) * 0.2
        conv[3] += 0.8
        self.conv = nn.Parameter(conv)                                          # [tap, q | k | v]
        self.A_log = vector(self.n_heads, fill=0.0)
        self.dt_bias = nn.Parameter(spread_decay(width, self.gate_floor))
        self.o_norm = vector(self.head_dim)

    def forward(self, x, layout):
        width, dim = self.width, self.head_dim
        p = self.w_in(x)
        gate, rest = p[..., 3 * width:4 * width], p[..., 4 * width:]
        f_a, b = rest[..., :dim], rest[..., dim:]
        if layout.packed:
            qkv = ShortConv.apply(p, self.conv, layout.offsets)
        else:
            qkv = short_conv(p[..., :3 * width], self.conv)

        def heads(z):
            return z.reshape(*z.shape[:-1], self.n_heads, dim)

        q, k, v = heads(qkv[..., :width]), heads(qkv[..., width:2 * width]), heads(qkv[..., 2 * width:])
        q = q * (torch.rsqrt(q.pow(2).sum(-1, keepdim=True) + 1e-12) * dim ** -0.5)
        k = k * torch.rsqrt(k.pow(2).sum(-1, keepdim=True) + 1e-12)
        z = heads(self.w_decay(f_a) + self.dt_bias)
        g = self.gate_floor * torch.sigmoid(self.A_log.exp().unsqueeze(-1) * z)
        beta = torch.sigmoid(b)
        if layout.packed:
            o = KdaScan.apply(q, k, v, g, beta, layout.offsets)
        else:
            o = kda_chunked(q, k, v, g, beta)
        o = norm(o, self.o_norm, self.eps, layout)
        return self.w_out((o * torch.sigmoid(heads(gate))).reshape(*x.shape[:-1], width))


class Mla(nn.Module):
    """Multi-head latent attention without positions, its output gated per channel."""

    def __init__(self, config):
        super().__init__()
        hidden, self.n_heads = config["hidden_size"], config["num_attention_heads"]
        self.nope_dim, self.rope_dim = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
        self.v_dim, self.eps = config["v_head_dim"], config["rms_norm_eps"]
        self.q_rank, self.kv_rank = config["q_lora_rank"], config["kv_lora_rank"]
        width = self.n_heads * self.v_dim
        # q_a | kv_a | k_rope | gate
        self.w_in = Matrix(self.q_rank + self.kv_rank + self.rope_dim + width, hidden)
        self.q_norm, self.kv_norm = vector(self.q_rank), vector(self.kv_rank)
        self.w_q = Matrix(self.n_heads * (self.nope_dim + self.rope_dim), self.q_rank)
        self.w_kv = Matrix(self.n_heads * (self.nope_dim + self.v_dim), self.kv_rank)
        self.w_out = Matrix(hidden, width, std=0.5 * width ** -0.5)

    def forward(self, x, layout):
        n_heads, width = self.n_heads, self.n_heads * self.v_dim
        qk_dim = self.nope_dim + self.rope_dim
        parts = self.w_in(x).split([self.q_rank, self.kv_rank, self.rope_dim, width], -1)
        q_a, kv_a, k_rope, gate = parts
        q = self.w_q(norm(q_a, self.q_norm, self.eps, layout))
        kv = self.w_kv(norm(kv_a, self.kv_norm, self.eps, layout))
        if layout.packed:
            q, kv, k_rope = (z[layout.pad.view(-1)].view(*layout.pad.shape, -1) for z in (q, kv, k_rope))
        B, T = q.shape[:2]
        q = q.view(B, T, n_heads, qk_dim).transpose(1, 2)
        kv = kv.view(B, T, n_heads, self.nope_dim + self.v_dim).transpose(1, 2)
        # "rope" in name only (mla_use_nope): not rotated; one for all heads
        shared = k_rope.unsqueeze(1).expand(B, n_heads, T, self.rope_dim)
        k, v = torch.cat([kv[..., :self.nope_dim], shared], -1), kv[..., self.nope_dim:]
        product = torch.bfloat16 if layout.packed and not layout.exact else torch.float32
        s = (q.to(product) @ k.to(product).transpose(-1, -2)).float() * qk_dim ** -0.5
        s = s + torch.full((T, T), float("-inf")).triu(1)
        o = (s.softmax(-1).to(product) @ v.to(product)).float().transpose(1, 2).reshape(B, T, width)
        if layout.packed:
            o = o.reshape(B * T, width)[layout.unpad]
        return self.w_out(o * torch.sigmoid(gate))


def gated_activation(h, inner, beta, linear_beta):
    """SiTU on the first 2 * inner columns of h (gate | up): a kernel for bf16, plain for f32."""
    if h.dtype == torch.bfloat16:
        return Situ.apply(h, inner, beta, linear_beta)
    return situ(h[..., :inner], h[..., inner:2 * inner], beta, linear_beta)


class Mlp(nn.Module):
    """The dense SiTU block of the first layer."""

    def __init__(self, config):
        super().__init__()
        hidden, self.inner = config["hidden_size"], config["intermediate_size"]
        self.beta, self.linear_beta = config["activation_situ_beta"], config["activation_situ_linear_beta"]
        self.w_in = Matrix(2 * self.inner, hidden)                              # gate | up
        self.w_down = Matrix(hidden, self.inner, std=0.5 * self.inner ** -0.5)

    def forward(self, x, layout):
        h = self.w_in(x, out_f32=False)
        return self.w_down(gated_activation(h, self.inner, self.beta, self.linear_beta))


class Moe(nn.Module):
    """Latent mixture of experts plus one shared expert on the full hidden state.

    `bias` shifts the selection of experts, not their weights; train.py moves it to even out
    `load`, how many rows chose each expert in the last pass.
    """

    def __init__(self, config):
        super().__init__()
        hidden, self.n_experts = config["hidden_size"], config["num_experts"]
        self.top_k, self.scale = config["num_experts_per_token"], config["routed_scaling_factor"]
        self.inner, self.latent = config["moe_intermediate_size"], config["routed_expert_hidden_size"]
        self.shared_inner = self.inner * config["num_shared_experts"]
        self.beta, self.linear_beta = config["activation_situ_beta"], config["activation_situ_linear_beta"]
        self.eps = config["rms_norm_eps"]
        # shared gate | shared up | latent down | router
        self.w_in = Matrix(2 * self.shared_inner + self.latent + self.n_experts, hidden)
        self.w_in.weight.data[-self.n_experts:] *= 0.5
        self.w_shared_down = Matrix(hidden, self.shared_inner, std=0.5 * self.shared_inner ** -0.5)
        self.w_latent_up = Matrix(hidden, self.latent, std=0.5 * self.latent ** -0.5)
        self.latent_norm = vector(self.latent)
        self.w13 = Matrix(self.n_experts, 2 * self.inner, self.latent, kind="mxfp4")        # gate | up
        self.w2 = Matrix(self.n_experts, self.latent, self.inner, kind="mxfp4")
        self.register_buffer("bias", torch.zeros(self.n_experts))               # e_score_correction_bias
        self.load = torch.zeros(self.n_experts)

    def experts_f32(self, x, chosen, gate):
        """The definition of autograd.Experts: each expert on the rows that chose it."""
        rows, chosen = x.reshape(-1, self.latent), chosen.reshape(-1, self.top_k)
        gate, y = gate.reshape(-1, self.top_k), torch.zeros_like(rows)
        for e in range(self.n_experts):
            t, j = (chosen == e).nonzero(as_tuple=True)
            if len(t):
                h = matmul_f32(rows[t], self.w13.weight[e])
                a = situ(h[:, :self.inner], h[:, self.inner:], self.beta, self.linear_beta)
                y = y.index_add(0, t, matmul_f32(a, self.w2.weight[e]) * gate[t, j].unsqueeze(-1))
        return y.view_as(x)

    def forward(self, x, layout):
        h = self.w_in(x, out_f32=False)
        shared = self.w_shared_down(gated_activation(h, self.shared_inner, self.beta, self.linear_beta))
        begin = 2 * self.shared_inner
        latent = h[..., begin:begin + self.latent].float()
        score = torch.sigmoid(h[..., begin + self.latent:].float())
        chosen = (score + self.bias).topk(self.top_k, -1, sorted=False)[1]
        gate = score.gather(-1, chosen)
        gate = gate / (gate.sum(-1, keepdim=True) + 1e-20) * self.scale
        self.load = torch.bincount(chosen.reshape(-1), minlength=self.n_experts)
        if self.w_in.compute is not None:
            y = Experts.apply(latent, chosen, gate, self)
        else:
            y = self.experts_f32(latent, chosen, gate)
        return self.w_latent_up(norm(y, self.latent_norm, self.eps, layout)) + shared


class Layer(nn.Module):
    """One layer's parts; Model.forward connects them through the attention residuals."""

    def __init__(self, config, index):
        super().__init__()
        hidden = config["hidden_size"]
        self.attn_norm, self.ffn_norm = vector(hidden), vector(hidden)
        self.attn_res_norm, self.attn_res_proj = vector(hidden), vector(hidden, fill=0.0)
        self.ffn_res_norm, self.ffn_res_proj = vector(hidden), vector(hidden, fill=0.0)
        is_kda = index + 1 in config["linear_attn_config"]["kda_layers"]        # the config counts from 1
        self.attn = Kda(config) if is_kda else Mla(config)
        self.ffn = Mlp(config) if index < config["first_k_dense_replace"] else Moe(config)


class Model(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.config = config = config or CONFIG
        hidden = config["hidden_size"]
        self.eps, self.block = config["rms_norm_eps"], config["attn_res_block_size"]
        self.embed = Matrix(config["vocab_size"], hidden, std=0.5, kind="int8")
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config["num_hidden_layers"]))
        self.out_res_norm, self.out_res_proj = vector(hidden), vector(hidden, fill=0.0)
        self.norm = vector(hidden)
        self.head = Matrix(config["vocab_size"], hidden, std=0.02, kind="int8")

    def flatten(self):
        """Prepare for training: move all parameters, gradients and compute copies into flat
        buffers, matrices first (`n_matrix` floats, padding included), so that the optimiser
        is one pass over each group."""
        self.matrices = [m for m in self.modules() if isinstance(m, Matrix)]
        matrix_of = {id(m.weight): m for m in self.matrices}
        vectors = [p for p in self.parameters() if id(p) not in matrix_of]
        parameters = [m.weight for m in self.matrices] + vectors
        total = sum(_room(p) for p in parameters)
        self.flat, self.flat_grad = torch.zeros(total), torch.zeros(total)
        flat_compute = torch.zeros(total, dtype=torch.bfloat16)
        self.n_matrix = sum(_room(m.weight) for m in self.matrices)
        begin = 0
        for p in parameters:
            span = slice(begin, begin + p.numel())
            self.flat[span] = p.data.view(-1)
            p.data = self.flat[span].view_as(p)
            p.grad = self.flat_grad[span].view_as(p)
            if id(p) in matrix_of:
                matrix_of[id(p)].compute = flat_compute[span].view_as(p)
            begin += _room(p)

    def emit(self, quantise, noise=0.0, seed=0):
        """Refresh every compute copy; each matrix gets its own noise."""
        for i, m in enumerate(self.matrices):
            m.emit(quantise, noise, seed * 7919 + i * 104729)

    def forward(self, ids, layout, rows=None):
        """ids packed [N] or [B, T]; logits for all positions or for `rows` (packed)."""
        if self.embed.compute is None:
            x = F.embedding(ids, self.embed.weight)
        else:
            x = Embedding.apply(ids, self.embed.weight, self.embed.compute)
        # `blocks` are the sums that ended with each finished block, the embedding being the
        # first; `partial` is the sum of the block under way, None at its very start.
        def mix(norm_weight, proj_weight):
            return mix_residuals(blocks + [partial], norm_weight, proj_weight, self.eps, layout)

        blocks, partial = [], x
        for i, layer in enumerate(self.layers):
            if blocks:
                x = mix(layer.attn_res_norm, layer.attn_res_proj)
            if i % self.block == 0:
                blocks, partial = blocks + [partial], None
            a = layer.attn(norm(x, layer.attn_norm, self.eps, layout), layout)
            partial = a if partial is None else partial + a
            x = mix(layer.ffn_res_norm, layer.ffn_res_proj)
            partial = partial + layer.ffn(norm(x, layer.ffn_norm, self.eps, layout), layout)
        x = norm(mix(self.out_res_norm, self.out_res_proj), self.norm, self.eps, layout)
        if rows is not None:
            x = x[rows]
        return self.head(x)


def _room(parameter):
    """Floats a parameter takes in the flat buffers: groups of 32 stay aligned."""
    return (parameter.numel() + 31) // 32 * 32
