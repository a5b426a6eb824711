"""The model's operations in plain PyTorch: what each one means.

Evaluation runs these, and test_kernels.py holds the C kernels to them. B is the batch,
T the steps, H the heads, D the size of a head.
"""
import torch
import torch.nn.functional as F


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def situ(gate, up, beta, linear_beta):
    """The SiTU activation: SiLU's gate and the linear branch, each bounded by a tanh."""
    return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * linear_beta * torch.tanh(up / linear_beta)


def attn_residual(sources, weight, eps):
    """Softmax mix of the residual sources (a list of [..., hidden]); `weight` = norm * proj."""
    v = torch.stack(sources, -2)
    score = (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + eps) * weight).sum(-1)
    return (score.softmax(-1).unsqueeze(-1) * v).sum(-2)


def short_conv(x, weight):
    """x [B, T, C], weight [4, C] (last tap is the current step); causal, then SiLU."""
    steps = x.shape[1]
    padded = F.pad(x, (0, 0, 3, 0))
    return F.silu(sum(padded[:, j:j + steps] * weight[j] for j in range(4)))


def kda_stepwise(q, k, v, g, beta):
    """The KDA recurrence as defined, a step at a time.

    q, k, v, g [B, T, H, D], beta [B, T, H] -> o [B, T, H, D]; g is the log decay.
    """
    B, T, H, D = q.shape
    S = q.new_zeros(B, H, D, D)
    out = []
    for t in range(T):
        S = S * g[:, t].exp().unsqueeze(-1)
        u = v[:, t] - torch.einsum("bhkv,bhk->bhv", S, k[:, t])
        S = S + torch.einsum("bhk,bhv->bhkv", k[:, t], u * beta[:, t].unsqueeze(-1))
        out.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]))
    return torch.stack(out, 1)


def kda_chunked(q, k, v, g, beta, chunk=16):
    """Same function as kda_stepwise, `chunk` steps at a time.

    With G the running sum of g inside a chunk, U solves a unit lower-triangular
    system, (I + diag(beta) tril(A, -1)) U = diag(beta) (V - K~ S0), where
    A[t,s] = sum_d k_t k_s exp(G_t - G_s) and K~ = k exp(G). The exponent is split
    around the middle of the chunk; the bounded gate (g > -5) keeps both factors
    inside e^+-40. The solution is kept as Uv - Uk S0, since S0 is known only when the
    chunk's turn comes.
    """
    B, T, H, D = q.shape
    pad = -T % chunk
    if pad:
        q, k, v, g = (F.pad(x, (0, 0, 0, 0, 0, pad)) for x in (q, k, v, g))
        beta = F.pad(beta, (0, 0, 0, pad))
    n = (T + pad) // chunk

    def chunks(x):
        return x.reshape(B, n, chunk, H, -1).permute(0, 1, 3, 2, 4)       # [B, n, H, chunk, D]

    q, k, v, g, beta = (chunks(x) for x in (q, k, v, g, beta))
    G = g.cumsum(-2)
    middle = G[..., chunk // 2 - 1:chunk // 2, :]
    up, down = (G - middle).exp(), (middle - G).exp()
    k_down = k * down
    A = (k * up) @ k_down.transpose(-1, -2)
    Q = ((q * up) @ k_down.transpose(-1, -2)).tril()
    M = torch.eye(chunk, dtype=q.dtype) + beta * A.tril(-1)
    rhs = torch.cat([beta * v, beta * k * G.exp()], -1)
    solution = torch.linalg.solve_triangular(M, rhs, upper=False, unitriangular=True)
    Uv, Uk = solution[..., :D], solution[..., D:]
    q_from_start = q * G.exp()
    last = G[..., -1:, :]
    k_to_end = (k * (last - G).exp()).transpose(-1, -2)
    S = q.new_zeros(B, H, D, D)
    out = []
    for i in range(n):
        U = Uv[:, i] - Uk[:, i] @ S
        out.append(q_from_start[:, i] @ S + Q[:, i] @ U)
        S = S * last[:, i].exp().transpose(-1, -2) + k_to_end[:, i] @ U
    o = torch.stack(out, 1).permute(0, 1, 3, 2, 4).reshape(B, T + pad, H, D)
    return o[:, :T]


def matmul_f32(x, weight):
    """x W^T in f32; through MKL-DNN when no gradient is wanted, because the PyTorch build
    this was made with has no fast f32 BLAS."""
    if torch.is_grad_enabled() or x.dtype != torch.float32:
        return x @ weight.t()
    shape = x.shape
    rows = x.reshape(-1, shape[-1]).to_mkldnn()
    y = F.linear(rows, weight.detach().contiguous().to_mkldnn()).to_dense()
    return y.view(*shape[:-1], weight.shape[0])
