"""The C kernels and the chunked KDA against the plain definitions of ops.py, values and
gradients; the rounded compute copies against quant.py; then the whole model's three
layouts against each other.

  python3 test_kernels.py

Prints every largest difference and stops at the first that is out of bounds.
"""
import torch
import torch.nn.functional as F

from autograd import AttnResidual, Experts, KdaScan, RmsNorm, ShortConv, Situ
from model import CONFIG, Layout, Matrix, Model, Moe
from ops import attn_residual, kda_chunked, kda_stepwise, rms_norm, short_conv, situ
from quant import mxfp4_codes, mxfp4_values, round_int

B, T, H, D = 2, 53, 8, 32                    # T is no multiple of the chunk
EPS = 1e-5


def compare(name, got, want, tolerance=1e-4):
    """The largest difference, relative to the largest value where that exceeds 1."""
    difference = (got - want).abs().max().item() / max(1.0, want.abs().max().item())
    print(f"{name:<28} {difference:.2e}", "ok" if difference < tolerance else "FAIL")
    assert difference < tolerance, name


def compare_gradients(got, got_inputs, want, want_inputs, names):
    """Back-propagate one random gradient through both and compare what arrives."""
    grad = torch.randn(*want.shape)
    got_grads = torch.autograd.grad(got, got_inputs, grad.view_as(got))
    want_grads = torch.autograd.grad(want, want_inputs, grad)
    for name, a, b in zip(names, got_grads, want_grads):
        compare(f"  d {name}", a.view_as(b), b)


def test_kda():
    """Chunked and compiled recurrence, for gates from nearly none to the strongest allowed."""
    gates = {"mild": -5 * torch.sigmoid(torch.randn(B, T, H, D) - 3),
             "extreme": torch.full((B, T, H, D), -4.99),
             "mixed": -5 * torch.sigmoid(4 * torch.randn(B, T, H, D))}
    q = F.normalize(torch.randn(B, T, H, D), dim=-1) * D ** -0.5
    k = F.normalize(torch.randn(B, T, H, D), dim=-1)
    v = torch.randn(B, T, H, D)
    offsets = torch.tensor([0, T, 2 * T], dtype=torch.int32)
    names = ("q", "k", "v", "g", "beta")
    for gate, g in gates.items():
        inputs = [x.clone().requires_grad_() for x in (q, k, v, g, torch.sigmoid(torch.randn(B, T, H)))]
        packed = [x.detach().reshape(B * T, *x.shape[2:]).clone().requires_grad_() for x in inputs]
        chunked = kda_chunked(*inputs)
        compare(f"kda chunked {gate}", chunked, kda_stepwise(*inputs))
        compare_gradients(chunked, inputs, kda_stepwise(*inputs), inputs, names)
        kernel, want = KdaScan.apply(*packed, offsets), kda_stepwise(*inputs)
        compare(f"kda kernel {gate}", kernel.view_as(want), want)
        compare_gradients(kernel, packed, want, inputs, names)


def test_short_conv():
    """On the first 24 of 40 columns, over two sequences."""
    x, w = torch.randn(2 * T, 40).requires_grad_(), torch.randn(4, 24).requires_grad_()
    got = ShortConv.apply(x, w, torch.tensor([0, T, 2 * T], dtype=torch.int32))
    want = short_conv(x.view(2, T, 40)[..., :24], w).reshape(2 * T, 24)
    compare("short conv", got, want)
    compare_gradients(got, (x, w), want, (x, w), ("x", "weight"))


def test_rms_norm():
    x, w = torch.randn(50, 96).requires_grad_(), torch.randn(96).requires_grad_()
    got, want = RmsNorm.apply(x, w, EPS), rms_norm(x, w, EPS)
    compare("rms norm", got, want)
    compare_gradients(got, (x, w), want, (x, w), ("x", "weight"))


def test_attn_residual():
    sources = [torch.randn(50, 96).requires_grad_() for _ in range(3)]
    w = (torch.randn(96) * 0.3).requires_grad_()
    got, want = AttnResidual.apply(w, EPS, *sources), attn_residual(sources, w, EPS)
    compare("attention residual", got, want)
    compare_gradients(got, [w] + sources, want, [w] + sources, ("weight", "source 0", "source 1", "source 2"))


def test_situ():
    """In bf16, so within its rounding."""
    h = (torch.randn(50, 80) * 3).bfloat16().requires_grad_()
    h_f32 = h.detach().float().requires_grad_()
    got, want = Situ.apply(h, 40, 4.0, 25.0), situ(h_f32[:, :40], h_f32[:, 40:], 4.0, 25.0)
    compare("situ (bf16)", got.float(), want, 1e-2)
    grad = torch.randn(*want.shape)
    got_grad, = torch.autograd.grad(got, h, grad.bfloat16())
    want_grad, = torch.autograd.grad(want, h_f32, grad)
    compare("  d h", got_grad.float(), want_grad, 2e-2)


def close_in_norm(name, got, want, tolerance):
    """The norm of the difference relative to the norm: the measure for bf16 results."""
    difference = ((got - want).norm() / (want.norm() + 1e-9)).item()
    assert difference < tolerance, (name, difference)
    return difference


def test_experts():
    """Grouped bf16 experts against each expert in f32 on the rows that chose it."""
    moe = Moe(CONFIG)
    for matrix in (moe.w13, moe.w2):
        matrix.compute = matrix.weight.detach().bfloat16()
        matrix.weight.grad = torch.zeros_like(matrix.weight)
    x, gate = torch.randn(100, moe.latent).requires_grad_(), torch.rand(100, moe.top_k).requires_grad_()
    chosen = torch.rand(100, moe.n_experts).topk(moe.top_k)[1]
    got, want = Experts.apply(x, chosen, gate, moe), moe.experts_f32(x, chosen, gate)
    grad = torch.randn(*want.shape)
    got_grads = [*torch.autograd.grad(got, (x, gate), grad), moe.w13.weight.grad, moe.w2.weight.grad]
    want_grads = torch.autograd.grad(want, (x, gate, moe.w13.weight, moe.w2.weight), grad)
    worst = max(close_in_norm("experts", a, b, 2e-2) for a, b in zip([got, *got_grads], [want, *want_grads]))
    print(f"{'experts (bf16)':<28} {worst:.2e} ok")


def test_rounding():
    """The rounded compute copies against quant.py. Integers may differ where a weight lies on a
    rounding boundary, so their bound is one step for a weight and near nothing on the whole."""
    def emitted(kind, noise=0.0):
        torch.manual_seed(2)
        matrix = Matrix(64, 416, kind=kind)                  # 416: three groups of 128, and 32 more
        matrix.compute = torch.empty_like(matrix.weight, dtype=torch.bfloat16)
        matrix.emit(quantise=True, noise=noise, seed=5)
        return matrix.weight.data, matrix.compute.float()

    for kind, largest in (("int4", 7), ("int8", 127)):
        weight, got = emitted(kind)
        want = round_int(weight, largest).bfloat16().float()
        assert (got - want).abs().max() <= weight.abs().max() / largest * 1.01, kind
        print(f"{'rounding to ' + kind:<28} {close_in_norm(kind, got, want, 1e-3):.2e} ok")
    weight, exact = emitted("mxfp4")
    assert torch.equal(exact, mxfp4_values(*mxfp4_codes(weight)))
    print(f"{'rounding to mxfp4':<28} equal")
    noise = (emitted("mxfp4", noise=0.15)[1] - exact).norm() / weight.norm()
    assert 0.145 < noise < 0.155, noise
    print(f"{'  noise':<28} {noise.item():.3f} ok")


def test_model():
    """The packed and the training layout against the padded one, logits and gradients.

    The selection bias pins four experts per layer: at random weights router scores are
    nearly tied, and bf16 rounding alone would send rows to other experts.
    """
    torch.manual_seed(1)
    padded = Model()
    with torch.no_grad():
        for i, layer in enumerate(padded.layers):
            layer.attn_res_proj.normal_(0, 0.1)
            layer.ffn_res_proj.normal_(0, 0.1)
            if isinstance(layer.ffn, Moe):
                layer.ffn.bias[(torch.arange(4) * 7 + i) % 32] = 10
    packed, training = Model(), Model()
    for other in (packed, training):
        other.load_state_dict(padded.state_dict())
    training.flatten()
    training.emit(quantise=False)

    ids, targets = torch.randint(0, 2048, (B * T,)), torch.randint(0, 2048, (B * T,))
    offsets = [0, T, 2 * T]
    want = padded(ids.view(B, T), Layout()).reshape(B * T, -1)
    F.cross_entropy(want, targets).backward()
    for name, model, layout, tolerance, grad_tolerance in (
            ("model packed f32", packed, Layout(offsets, exact=True), 1e-4, 1e-3),
            ("model training bf16", training, Layout(offsets), 0.1, 0.3)):
        got = model(ids, layout)
        F.cross_entropy(got, targets).backward()
        difference = close_in_norm(name, got, want, tolerance)
        print(f"{name:<28} {difference:.2e} ok")
        # layer 0 has no residual history before its attention, so two parameters have no gradient
        worst = max(close_in_norm(parameter, b.grad, a.grad, grad_tolerance)
                    for (parameter, a), b in zip(padded.named_parameters(), model.parameters())
                    if a.grad is not None)
        print(f"  gradients, worst           {worst:.2e} ok")
    print("parameters", sum(p.numel() for p in padded.parameters()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    test_kda()
    test_short_conv()
    test_rms_norm()
    test_attn_residual()
    test_situ()
    test_experts()
    test_rounding()
    test_model()
