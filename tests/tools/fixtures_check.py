#!/usr/bin/python3
"""Runs the engine over a folder of fixtures that somebody else made.

    fixtures_check.py DIR [--only TEXT] [--fast [--kernels NAME]] [--tolerance X]

Not part of make test: the tests have containers of their own. DIR holds
NAME.waste, the container, and NAME.expected: meta.json with `vocab` and
`sequences` (each with its `ids`), and for each sequence S the logits of every
position in S.exact.bin, float32 little-endian. Fixtures of images are read as
the text models they also are.

Every sequence runs at once, one row at a time and mixed with the others, which
must give the same bits, and in the smallest budget, likewise. The error is the
largest difference over the largest logit of the sequence; above the tolerance
(1e-5; 2e-3 with --fast) the fixture fails, and so it does where another token
becomes the likeliest at any position. Run `make` and `make check` first, or set
WASTE_TEST_BUILD to a build folder with tests/tools/logits in it.
"""
import argparse
import array
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tiny import driver  # noqa: E402


def floats(path):
    a = array.array("f")
    with open(path, "rb") as f:
        a.frombytes(f.read())
    if sys.byteorder == "big":
        a.byteswap()
    return a



def check(folder, name, options, out):
    """The worst error, and what went wrong."""
    container, expected = (os.path.join(folder, name + end) for end in (".waste", ".expected"))
    with open(os.path.join(expected, "meta.json")) as f:
        meta = json.load(f)
    ids = [",".join(map(str, s["ids"])) for s in meta["sequences"].values()]
    code, text = driver.run(*options, "run", container, out, "batch,single,mixed,last", *ids)
    if code:
        return 0.0, text
    got, at, worst, why, vocab = floats(out), 0, 0.0, "", meta["vocab"]
    for name, s in meta["sequences"].items():
        want = floats(os.path.join(expected, name + ".exact.bin"))
        have = got[at:at + len(want)]
        at += len(want)
        largest = max(map(abs, want))
        for i in range(0, len(want), vocab):
            w, h = want[i:i + vocab], have[i:i + vocab]
            error = max(abs(a - b) for a, b in zip(h, w)) / largest
            if error != error:
                error = float("inf")
            worst = max(worst, error)
            if h.index(max(h)) != w.index(max(w)):
                why = f"{name}, position {i // vocab}: another token is the likeliest"
    if at != len(got):
        return worst, f"{len(got)} logits, expected {at}"
    before = got.tobytes()
    code, text = driver.run(*options, "--floor", "run", container, out, "batch,single", *ids)
    if code:
        return worst, "smallest budget: " + text
    return worst, why if floats(out).tobytes() == before else "the smallest budget changes bits"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("folder")
    ap.add_argument("--only", default="")
    ap.add_argument("--fast", action="store_true")
    ap.add_argument("--kernels")
    ap.add_argument("--tolerance", type=float)
    a = ap.parse_args()
    limit = a.tolerance or (2e-3 if a.fast else 1e-5)
    options = ["--fast"] * a.fast + (["--kernels", a.kernels] if a.kernels else [])
    names = sorted(f[:-9] for f in os.listdir(a.folder) if f.endswith(".expected") and a.only in f)
    failed, most = 0, 0.0
    with tempfile.TemporaryDirectory() as temp:
        for name in names:
            worst, why = check(a.folder, name, options, os.path.join(temp, "logits.bin"))
            bad = bool(why) or worst > limit
            failed += bad
            most = max(most, worst)
            print(f"{'FAIL' if bad else 'ok  '} {name:24s} {worst:.1e}  {why}", flush=True)
    print(f"{len(names)} fixtures, {failed} failed, worst error {most:.1e}")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
