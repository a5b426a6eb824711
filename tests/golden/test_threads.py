"""How many threads compute must not change a bit of the logits, for each table of
kernels, whether records are in memory or come from the disk; and the options that
say so are read as documented. Small models are cut into parts as far as that is
worth a thread; tests/unit/test_threads.c cuts them to the last row.
"""
import json
import os
import sys
import tempfile

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "lib")]

import demo  # noqa: E402
import tap  # noqa: E402
from tiny import cases, driver  # noqa: E402

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "logits")
THREADS = (2, 3, 8)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def evaluate(path, ids, out, *options, modes="single,batch,mixed"):
    """Numbers that the program prints, or None."""
    code, text = driver.run(*options, "run", path, out, modes, *ids)
    if code != 0:
        print("#   " + text.replace("\n", "\n#   "))
        return None
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2])))


def compare(name, path, ids, folder, options, label):
    want, got = os.path.join(folder, "a.bin"), os.path.join(folder, "b.bin")
    one = evaluate(path, ids, want, *options, "--threads", 1)
    if not tap.ok(one is not None and one["computing"] == 1, f"{name}: {label}: one thread"):
        return
    for n in THREADS:
        for room in ((), ("--floor",)) if n == 3 else ((),):
            many = evaluate(path, ids, got, *options, *room, "--threads", n)
            tap.ok(many is not None and many["computing"] == n and read(got) == read(want),
                   f"{name}: {label}: {n} threads give the same bits{' in the smallest budget' if room else ''}")


def refused(path):
    for options, text in ((("--threads", 65), "threads 65"), (("--threads", -1), "threads -1"),
                          (("--cpus", "0,,3"), "cpus '0,,3'"), (("--cpus", "5-0"), "cpus '5-0'"),
                          (("--cpus", "1024"), "cpus '1024'"), (("--cpus", "0 3"), "cpus '0 3'")):
        code, said = driver.run(*options, "open", path)
        tap.ok(code == 1 and text in said, f"{' '.join(map(str, options))} is refused by name ({said})")


def main(folder):
    with open(os.path.join(HERE, "index.json")) as f:
        index = json.load(f)
    for name in ("linear", "linear-wide", "k3", "k3-wide-4p", "v3-odd-4p", "v3-wide-2r"):
        ids = [",".join(map(str, s["ids"])) for s in index[name]["sequences"].values()]
        for options, label in (((), "exact"), (("--fast",), "fast")):
            if options or "wide" not in name:  # to exact arithmetic these are as the others
                compare(name, cases.make(name), ids, folder, options, label)
    path = demo.container()
    ids = [",".join(str(i * 7 % 200) for i in range(n)) for n in (40, 3)]
    for options, label in (((), "exact"), (("--fast",), "fast")):
        compare("demo", path, ids, folder, options, label)
    for kernels, *half in (("plain",), ("avx2",), ("avx2", "--half")):
        options, label = ("--fast", "--kernels", kernels, *half), " ".join(("fast,", kernels, *half))
        why = driver.without_kernels(kernels, path)
        if why:
            tap.skip(why, f"demo: {label}")
        else:
            compare("demo", path, ids, folder, options, label)
    refused(path)
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if allowed:
        n = evaluate(path, ids, "-", "--cpus", f" {allowed[0]} , {allowed[-1]}", modes="single")
        tap.equal(n and n["computing"], len(set((allowed[0], allowed[-1]))), "a thread for each CPU listed")
    tap.done()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as d:
        main(d)
