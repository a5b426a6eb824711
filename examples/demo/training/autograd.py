"""The training path's operations: the C kernels, and bf16 matrix products, as autograd
functions. ops.py has the plain definition of each.

Activations are packed: [N, ...] rows of many sequences back to back, `offsets` holding
where each sequence begins and the last one ends (int32). Weight matrices are multiplied
in their bf16 compute copy (model.Matrix.compute), and their gradients are added straight
to the f32 master's .grad: so the gradient passes through whatever rounding the compute
copy holds, which is all that quantisation-aware training needs.
"""
import torch

from native import addresses, call


class Linear(torch.autograd.Function):
    """y = x W^T with the compute copy of W; y is f32 if `out_f32`, else bf16."""

    @staticmethod
    def forward(ctx, x, weight, compute, out_f32):
        x_bf16 = x.to(torch.bfloat16)
        y = x_bf16 @ compute.t()
        ctx.x, ctx.weight, ctx.compute, ctx.x_type = x_bf16, weight, compute, x.dtype
        return y.float() if out_f32 else y

    @staticmethod
    def backward(ctx, dy):
        dy = dy.to(torch.bfloat16)
        ctx.weight.grad.add_(dy.t() @ ctx.x)
        return (dy @ ctx.compute).to(ctx.x_type), None, None, None


class Embedding(torch.autograd.Function):
    """Rows `ids` of the compute copy, as f32."""

    @staticmethod
    def forward(ctx, ids, weight, compute):
        ctx.save_for_backward(ids)
        ctx.weight = weight
        return compute[ids].float()

    @staticmethod
    def backward(ctx, dy):
        ctx.weight.grad.index_add_(0, ctx.saved_tensors[0], dy)
        return None, None, None


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        d = x.shape[-1]
        x = x.contiguous()
        y, inv_rms = torch.empty_like(x), x.new_empty(x.numel() // d)
        call("rms_fwd", inv_rms.numel(), d, eps, x, weight, y, inv_rms)
        ctx.save_for_backward(x, weight, inv_rms)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, inv_rms = ctx.saved_tensors
        dy, dx, dw = dy.contiguous(), torch.empty_like(x), torch.zeros_like(weight)
        call("rms_bwd", inv_rms.numel(), x.shape[-1], x, weight, inv_rms, dy, dx, dw)
        return dx, dw, None


class AttnResidual(torch.autograd.Function):
    """Softmax mix of the sources, each [N, hidden]."""

    @staticmethod
    def forward(ctx, weight, eps, *sources):
        count, (n, d) = len(sources), sources[0].shape
        sources = [s.contiguous() for s in sources]
        out, prob = torch.empty_like(sources[0]), sources[0].new_empty(n, count)
        call("ares_fwd", n, d, count, eps, addresses(sources), weight, out, prob)
        ctx.save_for_backward(weight, prob, *sources)
        ctx.eps = eps
        return out

    @staticmethod
    def backward(ctx, dout):
        weight, prob, *sources = ctx.saved_tensors
        count, (n, d) = len(sources), sources[0].shape
        dout, dw = dout.contiguous(), torch.zeros_like(weight)
        dsources = [torch.empty_like(s) for s in sources]
        call("ares_bwd", n, d, count, ctx.eps, addresses(sources), weight, prob, dout,
             addresses(dsources), dw)
        return (dw, None, *dsources)


class ShortConv(torch.autograd.Function):
    """Short convolution + SiLU on the first weight.shape[1] columns of x [N, X]."""

    @staticmethod
    def forward(ctx, x, weight, offsets):
        n, c = x.shape[0], weight.shape[1]
        y = x.new_empty(n, c)
        call("conv_fwd", len(offsets) - 1, offsets, c, x, x.stride(0), weight, y)
        ctx.save_for_backward(x, weight, offsets)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, offsets = ctx.saved_tensors
        dy, dx, dw = dy.contiguous(), torch.zeros_like(x), torch.zeros_like(weight)
        call("conv_bwd", len(offsets) - 1, offsets, weight.shape[1], x, x.stride(0), weight, dy,
             dx, dx.stride(0), dw)
        return dx, dw, None


class KdaScan(torch.autograd.Function):
    """The KDA recurrence. q, k, v, g [N, H, 32], beta [N, H] -> o [N, H, 32]."""

    @staticmethod
    def forward(ctx, q, k, v, g, beta, offsets):
        q, k, v, g, beta = (x.contiguous() for x in (q, k, v, g, beta))
        assert q.shape[-1] == 32, "kernels.c is compiled for heads of 32"
        o = torch.empty_like(q)
        call("kda_fwd", len(offsets) - 1, offsets, q.shape[1], q, k, v, g, beta, o)
        ctx.save_for_backward(q, k, v, g, beta, offsets)
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, g, beta, offsets = ctx.saved_tensors
        do = do.contiguous()
        grads = [torch.empty_like(x) for x in (q, k, v, g, beta)]
        call("kda_bwd", len(offsets) - 1, offsets, q.shape[1], q, k, v, g, beta, do, *grads)
        return (*grads, None)


class Situ(torch.autograd.Function):
    """bf16 [N, >= 2 inner] (gate | up) -> bf16 [N, inner]; extra columns are not touched."""

    @staticmethod
    def forward(ctx, h, inner, beta, linear_beta):
        a = h.new_empty(h.shape[0], inner)
        call("situ_fwd", h.shape[0], inner, beta, linear_beta, h, h.stride(0), a)
        ctx.save_for_backward(h)
        ctx.args = (inner, beta, linear_beta)
        return a

    @staticmethod
    def backward(ctx, da):
        h, = ctx.saved_tensors
        dh, da = torch.zeros_like(h), da.contiguous()
        call("situ_bwd", h.shape[0], *ctx.args, h, h.stride(0), da, dh, dh.stride(0))
        return dh, None, None, None


class Experts(torch.autograd.Function):
    """Routed experts of one model.Moe. x [N, latent] f32, chosen [N, top_k] expert ids,
    gate [N, top_k] their weights -> [N, latent].

    Rows are grouped by expert and every group is padded to a multiple of 32 rows: MKL-DNN
    compiles a kernel per shape, and this keeps the number of shapes small.
    """

    @staticmethod
    def _groups(room):
        """(expert, first row, last row + 1) of every group that is not empty."""
        begin = 0
        for expert, rows in enumerate(room):
            if rows:
                yield expert, begin, begin + rows
            begin += rows

    @staticmethod
    def forward(ctx, x, chosen, gate, moe):
        n, top_k = chosen.shape
        flat = chosen.reshape(-1)
        order = flat.argsort()                                 # (token, k) pairs sorted by expert
        count = torch.bincount(flat, minlength=moe.n_experts)
        room = (count + 31) // 32 * 32
        shift = (room.cumsum(0) - room) - (count.cumsum(0) - count)
        place = torch.arange(n * top_k) + shift[flat[order]]   # sorted position -> padded row
        row = torch.empty_like(order)
        row[order] = place                                     # (token, k) -> padded row
        room = room.tolist()
        n_rows = sum(room)
        xs = torch.zeros(n_rows, moe.latent, dtype=torch.bfloat16)
        xs[place] = x.to(torch.bfloat16)[order // top_k]
        h, a = xs.new_empty(n_rows, 2 * moe.inner), xs.new_empty(n_rows, moe.inner)
        y = xs.new_empty(n_rows, moe.latent)
        for e, b, end in Experts._groups(room):
            torch.mm(xs[b:end], moe.w13.compute[e].t(), out=h[b:end])
        call("situ_fwd", n_rows, moe.inner, moe.beta, moe.linear_beta, h, h.stride(0), a)
        for e, b, end in Experts._groups(room):
            torch.mm(a[b:end], moe.w2.compute[e].t(), out=y[b:end])
        y_chosen = y[row].float().view(n, top_k, moe.latent)
        ctx.save_for_backward(place, order, row, xs, h, a, y_chosen, gate)
        ctx.room, ctx.moe = room, moe
        return (y_chosen * gate.unsqueeze(-1)).sum(1)

    @staticmethod
    def backward(ctx, dout):
        place, order, row, xs, h, a, y_chosen, gate = ctx.saved_tensors
        moe, (n, top_k) = ctx.moe, gate.shape
        dgate = (y_chosen * dout.unsqueeze(1)).sum(-1)
        dy = torch.zeros_like(xs)
        per_choice = (dout.unsqueeze(1) * gate.unsqueeze(-1)).to(torch.bfloat16)
        dy[place] = per_choice.view(n * top_k, moe.latent)[order]
        da, dh, dx = torch.empty_like(a), torch.empty_like(h), torch.empty_like(xs)
        for e, b, end in Experts._groups(ctx.room):
            torch.mm(dy[b:end], moe.w2.compute[e], out=da[b:end])
            moe.w2.weight.grad[e].add_(dy[b:end].t() @ a[b:end])
        call("situ_bwd", len(xs), moe.inner, moe.beta, moe.linear_beta, h, h.stride(0), da, dh, dh.stride(0))
        for e, b, end in Experts._groups(ctx.room):
            torch.mm(dh[b:end], moe.w13.compute[e], out=dx[b:end])
            moe.w13.weight.grad[e].add_(dh[b:end].t() @ xs[b:end])
        return dx[row].view(n, top_k, moe.latent).float().sum(1), None, dgate, None
