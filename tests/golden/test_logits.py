"""Logits of the small containers against the oracle's, and against themselves:
how rows are grouped, and how little memory there is, must not change a bit.

The expected values were written by tests/oracle/logits.py; index.json beside
them says which rows they are.
"""
import array
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lib import tap  # noqa: E402
from tiny import cases, driver  # noqa: E402

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "logits")
EXACT, FAST = 1e-5, 2e-3  # of the largest logit
# Models with matrices that are wide enough for 16-bit arithmetic; the others have no rounding
# but that of f32.
ROUNDED = ("linear-odd", "linear-wide", "k3-odd-4p", "k3-wide-4p", "v3-wide-2r")
TABLES = ("avx2", "avx512bw")  # besides the one that is chosen
HALF = 5e-3  # and with latents in binary16, exact otherwise
MODES = "batch,single,mixed,last"
# Little memory: one with and one without experts, one record format each.
AT_FLOOR = ("linear", "linear-dense", "linear-wide", "k3", "k3-odd-4p", "k3-wide-4p", "v3", "v3-wide-2r")
# Latents in binary16: every family, and widths that fill no vector.
IN_HALF = ("linear", "linear-odd", "k3", "k3-odd-4p", "v3-k2")


def fast_bound(name):
    return FAST if name in ROUNDED else EXACT


def read_floats(path):
    a = array.array("f")
    with open(path, "rb") as f:
        a.frombytes(f.read())
    if sys.byteorder == "big":
        a.byteswap()
    return a


def distance(entry, golden, got):
    """The largest error in any row that is kept, relative to the largest logit."""
    vocab, at, start, worst = entry["vocab"], 0, 0, 0.0
    for s in entry["sequences"].values():
        for row in s["rows"]:
            want = golden[at:at + vocab]
            have = got[(start + row) * vocab:(start + row + 1) * vocab]
            d = max(abs(a - b) for a, b in zip(want, have))
            worst = max(worst, d / s["largest"]) if d == d else float("inf")
            at += vocab
        start += len(s["ids"])
    return worst


def evaluate(name, entry, out, *options, modes=MODES):
    ids = [",".join(map(str, s["ids"])) for s in entry["sequences"].values()]
    return driver.run(*options, "run", cases.make(name), out, modes, *ids)


def at_floor(name, entry, out, again):
    """`out` holds the logits of the last evaluation, in a budget of the engine's choice."""
    code, text = evaluate(name, entry, again, "--fast", "--floor", modes="single,batch")
    if not tap.ok(code == 0, f"{name}: runs in the smallest budget"):
        print("#   " + text)
        return
    words = text.split()
    numbers = dict(zip(words[::2], map(int, words[1::2])))
    tap.ok(numbers["memory"] <= numbers["budget"], f"{name}: stays within the smallest budget ({text})")
    with open(out, "rb") as a, open(again, "rb") as b:
        tap.ok(a.read() == b.read(), f"{name}: the same bits in the smallest budget")


def in_half(name, entry, golden, out):
    code, text = evaluate(name, entry, out, "--half")
    if tap.ok(code == 0, f"{name}: kv f16: the same bits one row at a time, at once and mixed"):
        error = distance(entry, golden, read_floats(out))
        tap.ok(EXACT < error <= HALF, f"{name}: kv f16: rounds, within {HALF:g} of the oracle ({error:.1e})")
    else:
        print("#   " + text.replace("\n", "\n#   "))
    code, text = evaluate(name, entry, out, "--half", "--fast")
    tap.ok(code == 0, f"{name}: kv f16, fast: the same bits one row at a time, at once and mixed")


def other_tables(name, entry, golden, out, tables):
    for kernels in tables:
        code, text = evaluate(name, entry, out, "--fast", "--kernels", kernels, modes="batch")
        error = distance(entry, golden, read_floats(out)) if code == 0 else text
        tap.ok(code == 0 and error <= fast_bound(name),
               f"{name}: {kernels}: within {fast_bound(name):g} of the oracle ({error})")


def greedy(name, want):
    ids = ",".join(map(str, want["prompt"]))
    code, text = driver.run("greedy", cases.make(name), len(want["tokens"]), ids)
    got = [int(x) for x in text.split()] if code == 0 else text
    tap.equal(got, want["tokens"], f"{name}: the oracle's greedy continuation")


def main(folder):
    with open(os.path.join(HERE, "index.json")) as f:
        index = json.load(f)
    tap.equal(sorted(index), sorted(cases.CASES), "every case has expected logits")
    out, again = os.path.join(folder, "a.bin"), os.path.join(folder, "b.bin")
    tables = []
    for kernels in TABLES:
        why = driver.without_kernels(kernels, cases.make("linear"))
        if why:
            tap.skip(why, f"{kernels}: logits")
        else:
            tables.append(kernels)
    for name, entry in index.items():
        same = cases.digest(name) == entry["digest"]
        if not tap.ok(same, f"{name}: the container is the one of the expected logits"):
            print("#   run tests/oracle/logits.py --all after changing tests/tiny")
            continue
        golden = read_floats(os.path.join(HERE, name + ".bin"))
        for precision, bound in (("exact", EXACT), ("fast", fast_bound(name))):
            code, text = evaluate(name, entry, out, *(["--fast"] if precision == "fast" else []))
            if tap.ok(code == 0, f"{name}: {precision}: the same bits one row at a time, at once and mixed"):
                error = distance(entry, golden, read_floats(out))
                tap.ok(error <= bound, f"{name}: {precision}: within {bound:g} of the oracle ({error:.1e})")
            else:
                print("#   " + text.replace("\n", "\n#   "))
        other_tables(name, entry, golden, again, tables)
        if name in AT_FLOOR:
            at_floor(name, entry, out, again)
        if name in IN_HALF:
            in_half(name, entry, golden, out)
        if "greedy" in entry:
            greedy(name, entry["greedy"])
    tap.done()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as d:
        main(d)
