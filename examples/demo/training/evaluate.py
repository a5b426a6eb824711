"""Accuracy per skill on held-out prompts, and a way to ask.

  evaluate.py make                    write ../eval.jsonl
  evaluate.py checkpoint [DIR]        accuracy of a released directory (default ../checkpoint)
  evaluate.py run [STATE]             accuracy of a training state (default run/last.pt)
  evaluate.py fresh SEED [WEIGHTS]    the same on newly drawn held-out rows
  evaluate.py ask TEXT... [--weights WEIGHTS]    greedy answers

WEIGHTS is a training state or a released directory (default ../checkpoint). Accuracy is
given twice: of the weights as they are, in f32, and fake-quantised, that is with every
matrix rounded to its deployed format (quant.py) and multiplied in f32.

A row counts as right when the greedy decode reproduces the expected answer exactly and
then closes the response. Here that is one forward pass: greedy decoding yields the
expected tokens if and only if every one of them is the arg max given the ones before it.
"""
import argparse
import collections
import json
import os

import torch

from bpe import Tokenizer
from chat import prompt_ids
from data import eval_rows
from export import from_released, load_run, read_release, to_released
from model import Layout
from paths import CHECKPOINT, EVAL_ROWS, LAST, TOKENIZER
from quant import fake_quantise

PER_SKILL = {"capital": 60, "sentiment": 40, "json": 45, "sql": 45, "arithmetic": 50, "memory": 40,
             "category": 25, "talk": 15, "unknown": 15}
MAX_ROW = 230                    # tokens
MAX_ANSWER = 40
PASS_TOKENS = 3000               # about so many tokens are packed into one forward pass


def released_tensors(path):
    """The tensors, under released names, of a training state or a released directory."""
    return read_release(path) if os.path.isdir(path) else to_released(load_run(path))


def write_rows(tok):
    """The rows of eval.jsonl: PER_SKILL of each skill, the long ones left out."""
    left, rows = dict(PER_SKILL), []
    for row in eval_rows({skill: n + 12 for skill, n in PER_SKILL.items()}):
        length = len(prompt_ids(tok, row["messages"])) + len(tok.encode(row["answer"]))
        if length <= MAX_ROW and left[row["skill"]] > 0:
            left[row["skill"]] -= 1
            rows.append(row)
    with open(EVAL_ROWS, "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(len(rows), "rows")


def read_rows():
    with open(EVAL_ROWS, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def fresh_rows(tok, seed):
    """Twice as many rows as eval.jsonl has, from another seed; no "talk", whose prompts are few."""
    rows = eval_rows({skill: 2 * n for skill, n in PER_SKILL.items() if skill != "talk"}, seed)
    return [row for row in rows if len(prompt_ids(tok, row["messages"])) <= MAX_ROW]


def score(model, tok, rows):
    """One bool per row: whether the answer is exact."""
    right, i = [], 0
    while i < len(rows):
        ids, offsets, spans = [], [0], []
        while i < len(rows) and len(ids) < PASS_TOKENS:
            ids += prompt_ids(tok, rows[i]["messages"])
            begin = len(ids)
            ids += tok.encode(rows[i]["answer"]) + [tok.special["<|close|>"]]
            spans.append((begin, len(ids)))
            offsets.append(len(ids))
            i += 1
        with torch.no_grad():
            best = model(torch.tensor(ids), Layout(offsets, exact=True)).argmax(-1).tolist()
        right += [best[begin - 1:end - 1] == ids[begin:end] for begin, end in spans]
    return right


def accuracy(rows, right):
    """{skill: share of right rows, "ALL": ...}"""
    by_skill = collections.defaultdict(list)
    for row, ok in zip(rows, right):
        by_skill[row["skill"]].append(ok)
    return {**{skill: sum(oks) / len(oks) for skill, oks in by_skill.items()}, "ALL": sum(right) / len(right)}


def generate(model, tok, prompts):
    """Batched greedy decoding by recomputation: the new ids of each prompt (a list of ids)."""
    stop = (tok.special["<|close|>"], tok.special["<|end_of_msg|>"])
    sequences, live = [list(p) for p in prompts], list(range(len(prompts)))
    for _ in range(MAX_ANSWER):
        if not live:
            break
        ids, offsets = [], [0]
        for i in live:
            ids += sequences[i]
            offsets.append(len(ids))
        last_rows = torch.tensor(offsets[1:]) - 1
        with torch.no_grad():
            best = model(torch.tensor(ids), Layout(offsets, exact=True), last_rows).argmax(-1).tolist()
        for i, token in zip(live, best):
            sequences[i].append(token)
        live = [i for i in live if sequences[i][-1] not in stop]
    return [s[len(p):] for s, p in zip(sequences, prompts)]


def report(tok, released, rows, show):
    """Print the accuracy of both forms of the weights, and up to `show` wrong answers of each."""
    for name, tensors in (("f32", released), ("fake-quantised", fake_quantise(released))):
        model = from_released(tensors)
        right = score(model, tok, rows)
        print(name, len(rows), "rows", {skill: round(x, 3) for skill, x in accuracy(rows, right).items()})
        wrong = [row for row, ok in zip(rows, right) if not ok][:show]
        answers = generate(model, tok, [prompt_ids(tok, row["messages"]) for row in wrong])
        for row, ids in zip(wrong, answers):
            print(f"  {row['skill']}: {row['messages'][-1]['content']!r} "
                  f"want {row['answer']!r} got {tok.decode(ids)!r}")


def ask(tok, released, texts):
    prompts = [prompt_ids(tok, [{"role": "user", "content": text}]) for text in texts]
    for text, ids in zip(texts, generate(from_released(released), tok, prompts)):
        print(repr(text), "->", repr(tok.decode(ids)))


def main():
    parser = argparse.ArgumentParser(description="accuracy of the demo model")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make", help="write ../eval.jsonl")
    checkpoint = commands.add_parser("checkpoint", help="accuracy of a released directory")
    checkpoint.add_argument("weights", nargs="?", default=CHECKPOINT)
    run = commands.add_parser("run", help="accuracy of a training state")
    run.add_argument("weights", nargs="?", default=LAST)
    fresh = commands.add_parser("fresh", help="accuracy on newly drawn held-out rows")
    fresh.add_argument("seed", type=int)
    fresh.add_argument("weights", nargs="?", default=CHECKPOINT)
    for command in (checkpoint, run, fresh):
        command.add_argument("--show", type=int, default=0, metavar="N", help="print up to N wrong answers")
    question = commands.add_parser("ask", help="greedy answers to one-turn prompts")
    question.add_argument("texts", nargs="+")
    question.add_argument("--weights", default=CHECKPOINT)
    args = parser.parse_args()

    torch.set_num_threads(1)
    tok = Tokenizer.load(TOKENIZER)
    if args.command == "make":
        write_rows(tok)
    elif args.command == "ask":
        ask(tok, released_tensors(args.weights), args.texts)
    else:
        rows = fresh_rows(tok, args.seed) if args.command == "fresh" else read_rows()
        report(tok, released_tensors(args.weights), rows, args.show)


if __name__ == "__main__":
    main()
