#!/usr/bin/env python3
"""engine/text/unicode_tables.h is what make_unicode.py makes."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

TEXT = os.path.join(tap.ROOT, "engine", "text")
DATA = "/usr/share/unicode"

if not os.path.exists(os.path.join(DATA, "UnicodeData.txt")):
    tap.skip_all("the package unicode-data is not installed, so the table cannot be made anew")
made = subprocess.run([sys.executable, os.path.join(TEXT, "make_unicode.py"), DATA],
                      capture_output=True, text=True)
if made.returncode and "has Unicode" in made.stderr:
    tap.skip_all(made.stderr.strip())
with open(os.path.join(TEXT, "unicode_tables.h"), encoding="utf-8") as f:
    committed = f.read()
tap.equal(made.stderr, "", "make_unicode.py says nothing")
tap.ok(made.stdout == committed, "unicode_tables.h is what make_unicode.py makes of this data")
tap.done()
