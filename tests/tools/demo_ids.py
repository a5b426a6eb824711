#!/usr/bin/python3
"""Token ids of the demo's held-out conversations, answers included, one a line, in
an order that mixes the skills: input of tests/tools/routes.c."""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import demo  # noqa: E402
from tap import connect  # noqa: E402


def lines():
    db = connect()
    db.execute("SELECT waste_register('demo', ?)", (demo.container(),))
    rows = demo.rows()
    random.Random(5).shuffle(rows)
    for row in rows:
        talk = row["messages"] + [{"role": "assistant", "content": row["answer"]}]
        yield demo.prompt_tokens(db, "demo", talk)


if __name__ == "__main__":
    for ids in lines():
        print(*ids)
