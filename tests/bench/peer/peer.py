"""This engine beside llama.cpp, in turn, on the same weights: a random container of Kimi-Linear's
shape (tests/tools/mkbig.c) and the GGUF file that mkgguf.c makes of it.

    python3 tests/bench/peer/peer.py CONTAINER FILE MODULES [--pairs N] [--threads N] [--realtime]
                                     [--limit BYTES --budget BYTES] [--only NAME,..]

MODULES is the folder that node-llama-cpp is installed in. Measured are, in pairs of processes,
    decode, prefill 64, prefill 512    all in memory: once before, then the same tokens again
    streaming                          in a control group of --limit bytes (needs root), --budget of which
                                       are the engine's; the files out of the page cache; 4 tokens, then
                                       12, of which llama.cpp makes as many as it can in 8 s
--realtime is for a machine with other work: both at real-time priority, llama.cpp once its file is open. A
process that takes longer than --timeout seconds (60) is ended, and its pair left out, which is said.

Prints a JSON line for each process, and at the end one for each measurement with medians:
tokens/s, CPU ms, ms of the median step and MB read per token, peak of the process (the group's where there is one), and the
ratio of speeds in pairs (ours over theirs) with the smallest and the largest."""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

from lib import cgroup, tap  # noqa: E402

MODEL = os.path.join(tap.BUILD, "tests", "bench", "model")
ALL = "5G"  # a budget that holds the container's experts
STREAMED = ["--decode", "12", "--prompt", "4"]


def size(text):
    return int(float(text[:-1]) * (1 << {"K": 10, "M": 20, "G": 30}[text[-1]])) if text[-1] in "KMG" else int(text)


def files(path):
    return [os.path.join(path, f) for f in sorted(os.listdir(path))] if os.path.isdir(path) else [path]


def forget(path):
    """Out of the page cache, so that whoever reads it again pays for it."""
    for name in files(path):
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def warm(path):
    with open(path, "rb", buffering=0) as f:
        while f.read(16 << 20):
            pass


def measure(o, who, name, command, group):
    """The last line of the command's output, or None and a word on stderr."""
    p = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                         preexec_fn=(lambda: cgroup.enter(group)) if group else None)
    try:
        out = p.communicate(timeout=o.timeout)[0]
    except subprocess.TimeoutExpired:
        p.kill()
        p.communicate()
        print(f"peer: {name}, {who}: no end after {o.timeout} s", file=sys.stderr)
        return None
    if p.returncode:
        print(f"peer: {name}, {who}: exit {p.returncode}", file=sys.stderr)
        return None
    got = json.loads(out.strip().splitlines()[-1])
    got = {"measured": name, "who": who, "tok_s": got["tok_s"], "ms_median": got["ms_median"], "mb_per_token": got["mb_per_token"],
           "tokens": got["tokens"], "cpu_ms": 1e3 * got["cpu_s"] / got["tokens"], "walk": got["walk"], "peak": cgroup.peak(group) if group else got["peak_rss"]}
    print(json.dumps(got), flush=True)
    return got


def commands(o, name):
    """Ours and theirs."""
    ours = [MODEL, "--container", o.container, "--threads", str(o.threads), "--disk-seconds", "0", "--memory", "0", "--context", "1024"]
    theirs = ["node", os.path.join(HERE, "llama.mjs"), o.modules, o.file, "--threads", str(o.threads), "--context", "1024"]
    if o.realtime:
        ours, theirs = ["chrt", "-f", "1"] + ours, theirs + ["--realtime"]
    if name == "streaming":
        return ours + ["--budget", str(size(o.budget))] + STREAMED, theirs + ["--seconds", "8"] + STREAMED
    what = ["--decode", "32", "--prompt", "16"] if name == "decode" else ["--decode", "0", "--prefill", name.split()[1]]
    return ours + ["--budget", ALL, "--again", "--repeat", "2"] + what, theirs + ["--repeat", "2"] + what


def pair(o, name):
    got = []
    for who, command in zip(("ours", "theirs"), commands(o, name)):
        group = None
        if name == "streaming":
            forget(o.container)
            forget(o.file)
            group, why = cgroup.make(size(o.limit))
            if not group:
                sys.exit(f"peer: {why}")
        elif who == "theirs":
            warm(o.file)
        try:
            got.append(measure(o, who, name, command, group))
        finally:
            if group:
                os.rmdir(group)
    return got


def summary(name, pairs):
    line = {"measured": name, "pairs": len(pairs)}
    for i, who in enumerate(("ours", "theirs")):
        line[who] = {k: round(statistics.median(p[i][k] for p in pairs), 3)
                     for k in ("tokens", "tok_s", "ms_median", "cpu_ms", "mb_per_token", "peak", "walk")}
    for k in ("tok_s", "ms_median", "cpu_ms"):
        ratio = sorted(p[0][k] / p[1][k] if k == "tok_s" else p[1][k] / p[0][k] for p in pairs)
        line["ratio_" + k] = [round(x, 2) for x in (ratio[0], statistics.median(ratio), ratio[-1])]
    print(json.dumps(line), flush=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("container")
    a.add_argument("file")
    a.add_argument("modules")
    a.add_argument("--pairs", type=int, default=5)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--realtime", action="store_true")
    a.add_argument("--limit", default="1536M")
    a.add_argument("--budget", default="1400M")
    a.add_argument("--timeout", type=float, default=60)
    a.add_argument("--only", default="decode,prefill 64,prefill 512,streaming")
    o = a.parse_args()
    got = {name: [] for name in o.only.split(",")}
    for _ in range(o.pairs):
        for name in got:
            p = pair(o, name)
            if None not in p:
                got[name].append(p)
    for name, pairs in got.items():
        if pairs:
            summary(name, pairs)


main()
