#!/usr/bin/python3
"""What conversion costs the demo model: containers against their checkpoint, both in PyTorch and float64.

  fidelity.py [--experts] [--importance FILE] [--rows FIRST:LAST:STEP] CONTAINER...

Over the answers of examples/demo/eval.jsonl: KL divergence per position in nats, and how often the likeliest token is the same.
With --experts everything but the experts is the checkpoint's. The error of the experts is ||W - W'|| / ||W|| over all of them, and
with an importance file also with squares weighed by its numbers. Rows can be left out, as those that a file was calibrated on.
"""
import argparse
import json
import math
import os
import sys

import numpy as np
import torch

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), p) for p in ("", "..", "../lib")]
import demo  # noqa: E402
from logits import Container, Oracle  # noqa: E402
from source import Source  # noqa: E402
from tap import connect  # noqa: E402


class Mixed:
    """The checkpoint with a container's experts."""

    def __init__(self, source, container):
        self.config, self.get, self.expert = source.config, source.get, container.expert


def rows_of(db, container, part):
    """(ids of conversation and answer, where the answer begins)."""
    out = []
    for r in demo.rows()[part]:
        head = demo.prompt_tokens(db, container, r["messages"])
        tail = json.loads(db.execute("SELECT waste_tokenize(?, ?)", (container, r["answer"])).fetchone()[0])
        out.append((head + tail, len(head)))
    return out


def log_probs(weights, rows):
    oracle = Oracle(weights)
    return [torch.log_softmax(torch.from_numpy(oracle.logits(ids))[at - 1:], -1) for ids, at in rows]


def divergence(want, got):
    kl = torch.cat([(w.exp() * (w - g)).sum(-1) for w, g in zip(want, got)])
    same = torch.cat([w.argmax(-1) == g.argmax(-1) for w, g in zip(want, got)])
    return kl.mean().item(), same.double().mean().item(), len(kl)


def expert_error(source, container, importance):
    """Plain and weighted."""
    k = source.config
    wide = k.get("routed_expert_hidden_size") or k["hidden_size"]
    off = np.zeros((2, 2))
    for layer in range(k.get("first_k_dense_replace", 0), k["num_hidden_layers"]):
        weigh = [np.ones(1)] * 3
        if importance:
            weigh = [np.array(importance[str(layer)][n]) for n in ("gate_up", "gate_up", "down")]
        for e in range(k["num_experts"]):
            for a, b, h in zip(source.expert(layer, e, wide, k["moe_intermediate_size"]),
                               container.expert(layer, e, wide, k["moe_intermediate_size"]), weigh):
                a, b = a.numpy(), b.numpy()
                off[0] += ((a - b) ** 2).sum(), (a * a).sum()
                off[1] += (h * (a - b) ** 2).sum(), (h * a * a).sum()
    return [math.sqrt(x / y) for x, y in off]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--experts", action="store_true")
    p.add_argument("--importance")
    p.add_argument("--rows", default="::")
    p.add_argument("containers", nargs="+")
    o = p.parse_args()
    importance = None
    if o.importance:
        with open(o.importance, encoding="utf-8") as f:
            importance = json.load(f)["layers"]
    source = Source(demo.CHECKPOINT)
    part = slice(*(int(x) if x else None for x in o.rows.split(":")))
    rows = rows_of(connect(), os.path.abspath(o.containers[0]), part)
    want = log_probs(source, rows)
    for path in o.containers:
        container = Container(path)
        kl, same, n = divergence(want, log_probs(Mixed(source, container) if o.experts else container, rows))
        plain, weighted = expert_error(source, container, importance)
        print(f"{path}: error {100 * plain:.2f} %{f', weighted {100 * weighted:.2f} %' if importance else ''}, KL {kl:.6f},"
              f" first choice equal {same:.4f}, {n} positions of {len(rows)} rows", flush=True)


if __name__ == "__main__":
    main()
