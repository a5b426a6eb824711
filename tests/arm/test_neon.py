#!/usr/bin/env python3
"""The unit tests on aarch64: built by tests/arm/arm.mk, run under qemu-aarch64. Each
of their points is one here.

WASTE_TEST_EMULATED tells them that they are emulated: the heaviest do less of the same,
and say so.
"""
import glob
import os
import platform
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

BUILD = "build-arm64"
LIBC = "/usr/aarch64-linux-gnu"
MISSING = os.path.join(tap.ROOT, BUILD, "missing")
HANGS = 1200  # seconds after which a program is taken to hang
POINT = re.compile(r"(not )?ok (\d+)(?: - (.*?))?\s*(?:# SKIP ?(.*))?$")


def run(name):
    """A program's points go through; what it says beside them is the reason of a skip,
    or stands behind a failure."""
    path = os.path.join(BUILD, "tests", "unit", name)
    if not os.path.exists(os.path.join(tap.ROOT, path)):
        tap.ok(False, f"{name} was built")
        return []
    try:
        p = subprocess.run(["qemu-aarch64", "-L", LIBC, "-E",
                            f"LD_LIBRARY_PATH={BUILD}/sysroot/usr/lib/aarch64-linux-gnu", path],
                           cwd=tap.ROOT, capture_output=True, text=True, errors="replace", timeout=HANGS,
                           env=dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", WASTE_TEST_EMULATED="1"))
    except subprocess.TimeoutExpired as e:
        tap.ok(False, f"{name}: ran to its end")
        print("# hung for {} s, after\n# {}".format(
            HANGS, "\n# ".join((e.stdout or b"").decode(errors="replace").splitlines()[-20:])), flush=True)
        return []
    points, said, plan = [], [], None
    for line in p.stdout.splitlines():
        m = POINT.match(line)
        if line.startswith("1.."):
            plan = int(line[3:])
        elif not m:
            said.append(line.lstrip("# "))
        elif m[4] is not None:
            tap.skip(" ".join(said) or "no reason given", f"{name}: {m[3] or m[4]}")
            points.append(None)
            said = []
        else:
            if not tap.ok(not m[1], f"{name}: {m[3]}"):
                points.append(None)
            else:
                points.append(m[3])
    tap.ok(p.returncode == 0 and plan == len(points), f"{name}: ran to its end")
    if p.returncode or plan != len(points):
        print("# exit {}, {} of {} points\n# {}".format(
            p.returncode, len(points), plan, "\n# ".join(said[-20:] + p.stderr.splitlines()[-20:])), flush=True)
    return points


if platform.machine() in ("aarch64", "arm64"):
    tap.skip_all("this machine is one: its own unit tests ran on it")
if tap.SANITIZED:
    tap.skip_all("sanitizers run on the machine's own architecture")
if not os.path.exists(MISSING):
    tap.skip_all("not built for aarch64: make check or make arm64 does that")
with open(MISSING, encoding="utf-8") as f:
    reason = f.read().strip()
if reason:
    tap.skip_all("no aarch64 tests: " + reason.splitlines()[-1])

good = {}
for source in sorted(glob.glob(os.path.join(tap.ROOT, "tests", "unit", "test_*.c"))):
    unit = os.path.basename(source)[:-2]
    good[unit] = run(unit)
for table in ("neon", "dotprod"):
    tap.ok(f"{table} matmul_within_its_bound" in good["test_kernels_fast"], f"the table {table} was there")
tap.done()
