"""The pieces of waste_tokens are the text of waste_generate: characters that come a
byte at a time, stop strings that span tokens or end inside a character, and
max_tokens at every place; and LIMIT ends the work.

The reply is forced. A large bias puts the bytes of a text in order, and the
repetition penalty takes each out of the race once it has been said."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import connect, done, equal  # noqa: E402
from tiny import cases  # noqa: E402

TEXT = "😀éZ世!"
BYTES = list(TEXT.encode())
assert len(set(BYTES)) == len(BYTES)  # a byte can be said only once
FORCE = {"raw": True, "repetition_penalty": 100, "logit_bias": {str(b): 1e6 - 1e4 * i for i, b in enumerate(BYTES)}}
MODEL = cases.make("tiny-text")
db = connect()


def forced(n, **more):
    """(text, text in JSON, pieces, tokens, finish) of a reply of at most n tokens."""
    options = json.dumps(dict(FORCE, max_tokens=n, **more))
    whole = db.execute("SELECT waste_generate(?, 'x', ?)", (MODEL, options)).fetchone()[0]
    told = json.loads(db.execute("SELECT waste_generate_json(?, 'x', ?)", (MODEL, options)).fetchone()[0])["text"]
    rows = db.execute("SELECT token, piece, finish FROM waste_tokens(?, 'x', ?)", (MODEL, options)).fetchall()
    return whole, told, [r[1] for r in rows], [r[0] for r in rows], rows[-1][2]


def cut(n):
    """What the first n bytes are as text: one U+FFFD for a character that is not complete."""
    return bytes(BYTES[:n]).decode("utf-8", "replace")


equal(db.execute("SELECT waste_detokenize(?, ?)", (MODEL, json.dumps(BYTES))).fetchone()[0], TEXT, "this vocabulary has a token for each byte")

for n in range(1, len(BYTES) + 1):
    whole, told, pieces, tokens, finish = forced(n)
    equal((tokens, finish), (BYTES[:n], "length"), f"{n} tokens: the bytes come in order")
    equal((whole, told, "".join(pieces)), (cut(n),) * 3, f"{n} tokens: text, JSON and pieces are {cut(n)!r}")
pieces = forced(len(BYTES))[2]
equal(pieces, ["", "", "", "😀", "", "é", "Z", "", "", "世", "!"], "a character comes with its last byte")

for stop, want in (("éZ", "😀"), ("😀", ""), ("Z世", "😀é"), ("世!", "😀éZ"), ("é", "😀"), (["nothing", "Z", "é"], "😀"), ("!", "😀éZ世"),
                   ("😀é", ""), ("éx", TEXT), (["Z世x", "世"], "😀éZ")):
    whole, told, pieces, tokens, finish = forced(len(BYTES), stop=stop)
    equal((whole, told, "".join(pieces)), (want,) * 3, f"stop {stop!r} leaves {want!r}")
    equal(finish, "length" if want == TEXT else "stop", f"stop {stop!r}: {finish}")
for n in range(1, len(BYTES) + 1):
    for stop in ("éZ世?", "😀éZ世!", "Z世"):
        whole, told, pieces, _, _ = forced(n, stop=stop)
        equal((told, "".join(pieces)), (whole,) * 2, f"stop {stop!r} and {n} tokens: pieces and JSON are the text")

for limit in (1, 2, 5):
    cursor = db.execute("SELECT token FROM waste_tokens(?, 'x', ?) LIMIT ?", (MODEL, json.dumps(dict(FORCE, max_tokens=30)), limit))
    equal([r[0] for r in cursor], BYTES[:limit], f"LIMIT {limit}")
used = "SELECT tokens FROM waste_stats"
before = db.execute(used).fetchone()[0]
db.execute("SELECT token FROM waste_tokens(?, 'x', ?) LIMIT 2", (MODEL, json.dumps(dict(FORCE, max_tokens=30)))).fetchall()
equal(db.execute(used).fetchone()[0] - before <= 3, True, "after which nothing more is computed")
done()
