#!/usr/bin/env python3
"""Unit tests for Windows, of the base and store layers above all: built by
tests/win/win.mk, run under wine. Each of their points is one here.
"""
import os
import platform
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

BUILD = "build-win"
PROGRAMS = os.path.join(tap.ROOT, BUILD, "programs")

tap.cross_built(BUILD, "Windows", "make windows does that")
if platform.system() != "Linux":
    tap.skip_all("wine is set up for Linux")

# A prefix of its own: what wine keeps in the home directory stays as it is.
os.environ.update(WINEPREFIX=os.path.join(tap.ROOT, BUILD, "prefix"), WINEDEBUG="-all")
with open(PROGRAMS, encoding="utf-8") as f:
    programs = f.read().split()
tap.ok("test_reader" in programs and "test_plat" in programs, "the programs that read files are among them")
for name in programs:
    tap.program(name, os.path.join(BUILD, "tests", "unit", name + ".exe"), ["wine"])
tap.done()
