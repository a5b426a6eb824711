"""The deployed number formats in PyTorch: MXFP4 codes for the experts, and the rounding
of every matrix. emit_mx and emit_int of kernels.c compute the same values."""
import torch
import torch.nn.functional as F

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])     # codes 0..7; 8..15 are negative
GROUP = 32                                                        # inputs that share an MXFP4 scale


def mxfp4_codes(w):
    """[out, in] -> (codes [out, in] 0..15, scale bytes [out, in / 32], 2^(byte - 127)).

    The scale is the smallest power of two with 6 * scale >= the group's largest magnitude;
    ties round to the even code.
    """
    groups = w.reshape(w.shape[0], -1, GROUP)
    bits = (groups.abs().amax(-1) / 6.0).contiguous().view(torch.int32)
    exponent = ((bits >> 23) + ((bits & 0x7FFFFF) != 0).int()).clamp(1, 253)      # rounded up
    a = groups.abs() / torch.exp2((exponent - 127).float()).unsqueeze(-1)
    steps = [a > 0.25, a >= 0.75, a > 1.25, a >= 1.75, a > 2.5, a >= 3.5, a > 5.0]
    code = sum(s.to(torch.uint8) for s in steps)
    code = code | ((groups < 0).to(torch.uint8) << 3)
    return code.view(w.shape), exponent.to(torch.uint8)


def mxfp4_values(code, scale):
    """The f32 values of codes and scale bytes; exact in BF16 as well."""
    v = torch.cat([E2M1, -E2M1])[code.long()].view(*scale.shape, GROUP)
    return (v * torch.exp2(scale.float() - 127).unsqueeze(-1)).view(code.shape)


def pack_nibbles(code):
    """Two codes a byte, the first in the low half."""
    return (code[:, 0::2] | (code[:, 1::2] << 4)).contiguous()


def unpack_nibbles(packed):
    return torch.stack([packed & 15, packed >> 4], -1).view(packed.shape[0], -1)


def round_int(w, largest, group=128):
    """Symmetric integers up to `largest`, scale amax / largest (kept in fp16) per `group` inputs."""
    rows, n = w.shape
    x = F.pad(w, (0, -n % group)).view(rows, -1, group)
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / largest
    q = torch.round(x / scale).clamp(-largest - 1, largest)
    return (q * scale.half().float()).view(rows, -1)[:, :n].contiguous()


def is_vector(name, t):
    """Whether a released tensor is kept in F32 and never quantised."""
    return t.dim() == 1 or t.shape[0] == 1 or "conv1d" in name


def is_expert(name):
    return ".experts." in name


def fake_quantise(released):
    """Released tensors {name: tensor} with every matrix rounded as deployed, as f32: experts
    MXFP4, embedding table and head int8, the other matrices int4."""
    out = {}
    for name, t in released.items():
        t = t.float()
        if is_vector(name, t):
            out[name] = t
        elif is_expert(name):
            out[name] = mxfp4_values(*mxfp4_codes(t))
        else:
            out[name] = round_int(t, 127 if "embed_tokens" in name or "lm_head" in name else 7)
    return out
