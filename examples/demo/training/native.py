"""Builds and calls kernels.c.

`call("rms_fwd", n, d, eps, x, ...)` passes tensors by address and numbers by value, in
the order of the C parameters. Nothing checks shapes, types or strides here: whoever
calls hands over contiguous f32 tensors, unless the kernel takes a stride or bf16.
"""
import ctypes
import os
import subprocess

import torch

from paths import HERE

SOURCE = os.path.join(HERE, "kernels.c")
LIBRARY = os.path.join(HERE, "kernels.so")
FLAGS = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]

# The parameters of each kernel: l long, i int, u uint32_t, f float, p pointer.
_SIGNATURES = {
    "rms_fwd": "lifpppp", "rms_bwd": "lipppppp",
    "ares_fwd": "liifpppp", "ares_bwd": "liifpppppp",
    "conv_fwd": "ipiplpp", "conv_bwd": "ipiplppplp",
    "kda_fwd": "ipipppppp", "kda_bwd": "ipippppppppppp",
    "situ_fwd": "liffplp", "situ_bwd": "liffplppl",
    "adamw": "lppppffffffff", "sumsq": "lp",
    "emit_bf16": "lpp", "emit_int": "liiipp", "emit_mx": "lppfu",
}
_TYPES = {"l": ctypes.c_long, "i": ctypes.c_int, "u": ctypes.c_uint32, "f": ctypes.c_float,
          "p": ctypes.c_void_p}
_library = None


def _build():
    """Compile beside the target and rename, so that a second process never loads half a file."""
    fresh = f"{LIBRARY}.{os.getpid()}"
    subprocess.run(["gcc", *FLAGS, SOURCE, "-o", fresh, "-lm"], check=True)
    os.replace(fresh, LIBRARY)


def library():
    """The loaded kernels, compiled first when kernels.c is newer than the last build."""
    global _library
    if _library is None:
        if not os.path.exists(LIBRARY) or os.path.getmtime(LIBRARY) < os.path.getmtime(SOURCE):
            _build()
        _library = ctypes.CDLL(LIBRARY)
        for name, letters in _SIGNATURES.items():
            getattr(_library, name).argtypes = [_TYPES[c] for c in letters]
            getattr(_library, name).restype = None
        _library.sumsq.restype = ctypes.c_float
    return _library


def call(name, *args):
    """Run one kernel; a tensor argument becomes the address of its data."""
    return getattr(library(), name)(*[a.data_ptr() if isinstance(a, torch.Tensor) else a for a in args])


def addresses(tensors):
    """A C array of the tensors' data pointers. The tensors must outlive the call."""
    return (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
