#!/usr/bin/env python3
"""The unit tests on aarch64: built by tests/arm/arm.mk, run under qemu-aarch64. Each
of their points is one here.

WASTE_TEST_EMULATED tells them that they are emulated: the heaviest do less of the same,
and say so.
"""
import glob
import os
import platform
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

BUILD = "build-arm64"
LIBC = "/usr/aarch64-linux-gnu"


def run(name):
    return tap.program(name, os.path.join(BUILD, "tests", "unit", name),
                       ["qemu-aarch64", "-L", LIBC, "-E", f"LD_LIBRARY_PATH={BUILD}/sysroot/usr/lib/aarch64-linux-gnu"])


if platform.machine() in ("aarch64", "arm64"):
    tap.skip_all("this machine is one: its own unit tests ran on it")
tap.cross_built(BUILD, "aarch64", "make check or make arm64 does that")

good = {}
for source in sorted(glob.glob(os.path.join(tap.ROOT, "tests", "unit", "test_*.c"))):
    unit = os.path.basename(source)[:-2]
    good[unit] = run(unit)
for table in ("neon", "dotprod"):
    tap.ok(f"{table} matmul_within_its_bound" in good["test_kernels_fast"], f"the table {table} was there")
tap.done()
