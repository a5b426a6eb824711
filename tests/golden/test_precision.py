#!/usr/bin/env python3
"""What fast arithmetic costs on the demo model: divergence of its next-token
distributions from those of exact arithmetic, over held-out conversations.

    test_precision.py [STEP]    every STEP-th of them (1: all, as in docs/measured.md)
"""
import array
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import demo  # noqa: E402
from tap import SANITIZED, connect, done, equal, ok  # noqa: E402
from tiny import driver  # noqa: E402


def logits(options, ids, out):
    code, text = driver.run(*options, "run", demo.container(), out, "batch",
                            *(",".join(map(str, i)) for i in ids), timeout=600)
    if not ok(code == 0, f"{'fast' if options else 'exact'} arithmetic runs"):
        print(f"# {text}", flush=True)
    a = array.array("f")
    with open(out, "rb") as f:
        a.frombytes(f.read())
    return a


def divergence(p, q):
    """KL(p || q) of two rows of logits, in nats."""
    top_p, top_q = max(p), max(q)
    e = [math.exp(x - top_p) for x in p]
    sum_p, sum_q = math.fsum(e), math.fsum(math.exp(x - top_q) for x in q)
    shift = top_q - top_p + math.log(sum_q) - math.log(sum_p)
    return math.fsum(w * (x - y) for w, x, y in zip(e, p, q)) / sum_p + shift


step = int(sys.argv[1]) if len(sys.argv) > 1 else 112 if SANITIZED else 16
db = connect()
db.execute("SELECT waste_register('demo', ?)", (demo.container(),))
talks = [demo.prompt_tokens(db, "demo", r["messages"] + [{"role": "assistant", "content": r["answer"]}])
         for r in demo.rows()[::step]]
vocab = int(db.execute("SELECT value FROM waste_info('demo') WHERE key = 'vocab'").fetchone()[0])
with tempfile.TemporaryDirectory() as folder:
    exact, fast = (logits(o, talks, os.path.join(folder, "out")) for o in ([], ["--fast"]))
positions = sum(map(len, talks))
equal((len(exact), len(fast)), (positions * vocab,) * 2, "logits of every position")
kl, same = [], 0
for at in range(0, len(exact), vocab):
    p, q = exact[at:at + vocab], fast[at:at + vocab]
    kl.append(divergence(p, q))
    same += p.index(max(p)) == q.index(max(q))
print(f"# {len(talks)} conversations, {positions} positions: KL {math.fsum(kl) / len(kl):.2e} nats, worst {max(kl):.1e}; "
      f"the same first choice in {same}", flush=True)
ok(exact != fast, "the two arithmetics differ")
ok(0 <= math.fsum(kl) / len(kl) < 1e-5, "the mean divergence is below 1e-5 nats")
equal(same, positions, "no first choice changes")
done()
