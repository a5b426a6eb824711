"""How experts come from the disk must not change a bit of the logits: slots of the
cache, reader threads, lookahead, direct or buffered reads, checksums. Also that
these options do something at all.
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lib import tap  # noqa: E402
from tiny import cases, driver  # noqa: E402

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "logits")
# One of each family and record format, narrow and wide.
CASES = ("linear", "linear-wide", "k3", "k3-wide-4p", "v3-odd-4p", "v3-wide-2r")
MODES = "single,batch,mixed"


def evaluate(name, ids, out, *options, modes=MODES):
    """Numbers that the program prints, or None."""
    code, text = driver.run(*options, "run", cases.make(name), out, modes, *ids)
    if code != 0:
        print("#   " + text.replace("\n", "\n#   "))
        return None
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2])))


def read(path):
    with open(path, "rb") as f:
        return f.read()


def variants():
    """Options of one evaluation each, and what its numbers must show."""
    for threads in (1, 2, 8):
        yield f"{threads} reader threads", ("--io-threads", threads), lambda n, t=threads: n["threads"] == t
    for width in (-1, 6, 32):
        yield (f"lookahead {width}", ("--lookahead", width),
               lambda n, w=width: n["lookahead"] == max(w, 0) and n["used"] <= n["guesses"]
               and (n["guesses"] > 0) == (w > 0))
    yield "buffered reads", ("--buffered",), lambda n: n["direct"] == 0 and n["buffered"] > 0
    yield "checksums", ("--verify",), lambda n: n["misses"] > 0


def refused(name):
    path = cases.make(name)
    for options, text in ((("--io-threads", 17), "io_threads 17"), (("--io-threads", -1), "io_threads -1"),
                          (("--lookahead", 65), "lookahead of 65"), (("--lookahead", -2), "lookahead of -2")):
        code, said = driver.run(*options, "open", path)
        tap.ok(code == 1 and text in said, f"{' '.join(map(str, options))} is refused by name ({said})")


def main(folder):
    with open(os.path.join(HERE, "index.json")) as f:
        index = json.load(f)
    want, got = os.path.join(folder, "a.bin"), os.path.join(folder, "b.bin")
    for name in CASES:
        ids = [",".join(map(str, s["ids"])) for s in index[name]["sequences"].values()]
        with open(os.path.join(cases.make(name), "manifest.json")) as f:
            manifest = json.load(f)
        config = manifest["config"].get("text_config", manifest["config"])
        records = sum(b["experts"] for b in manifest["layers"].values())
        plain = evaluate(name, ids, want, "--io-threads", 1, "--lookahead", -1, "--buffered")
        if not tap.ok(plain is not None, f"{name}: runs with one reader and no guesses"):
            continue
        tap.ok(plain["direct"] + plain["buffered"] == len(manifest["layers"]), f"{name}: every bank is counted")
        for room, slots in (("2K slots", 2 * config["num_experts_per_token"]), ("half", records // 2),
                            ("all", records)):
            n = evaluate(name, ids, got, "--slots", slots)
            tap.ok(n is not None and read(got) == read(want), f"{name}: the same bits with {room}")
            if not tap.ok(n is not None and slots <= n["slots"] <= slots + 1, f"{name}: {room}: {slots} slots ({n})"):
                continue
            for label, options, shows in variants():
                n = evaluate(name, ids, got, "--budget", n["budget"], *options)
                tap.ok(n is not None and read(got) == read(want), f"{name}: the same bits with {room}, {label}")
                if not tap.ok(n is not None and slots <= n["slots"] <= slots + 1 and shows(n),
                              f"{name}: {room}, {label}: in force ({n})"):
                    break
    refused(CASES[0])
    tap.done()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as d:
        main(d)
