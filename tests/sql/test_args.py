"""Any function, called first on a fresh connection, with any arguments: NULL, an
answer, or an SQL error. A crash ends this script, which is how it would show."""
import itertools
import os
import random
import sqlite3
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import SANITIZED, connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

PATH = cases.make("tiny-chat")
NO_TEXT = cases.make("linear")
FUNCTIONS = ["waste_version", "waste_setup", "waste_register", "waste_open", "waste_close", "waste_tokenize", "waste_detokenize",
             "waste_token_count", "waste_generate", "waste_generate_json"]
TABLES = ["waste_tokens", "waste_next", "waste_info", "waste_tensors", "waste_experts", "waste_convert"]
ALL = FUNCTIONS + TABLES
VALUES = [None, 0, -1, 3, 2**63 - 1, -2**63, 0.5, 1e308, float("inf"), float("-inf"), "", " ", "m", "nobody", "/", "./", "/nowhere/at/all",
          PATH, NO_TEXT, "{}", "[]", "[1,2,3]", "[-1]", "[1e99]", '{"max_tokens":2}', '{"tokens":[5,6],"max_tokens":2}', '{"x":1}', "{",
          b"", b"\0", b"{}", "a\0b", "\0", PATH + "\0x", "[" * 10000, '{"a":' * 10000, "x" * 3000, "😀" * 50, "é", "\ud7ff\uffff"]
RAW = ["CAST(x'ff' AS TEXT)", "CAST(x'c328' AS TEXT)", "CAST(x'f0' AS TEXT)", "CAST(x'eda080' AS TEXT)", "zeroblob(100000)"]
os.chdir(tempfile.mkdtemp())


def call(db, name, args, holes=None):
    """(rows, None) or (None, message)."""
    holes = ",".join(holes or "?" * len(args))
    sql = f"SELECT * FROM {name}({holes}) LIMIT 3" if name in TABLES else f"SELECT {name}({holes})"
    try:
        return db.execute(sql, args).fetchall(), None
    except sqlite3.Error as e:
        return None, str(e)


# -- first call on a fresh connection, 0 to 6 NULLs
answers = {}
for name in ALL:
    for n in range(7):
        db = connect()
        answers[name, n] = call(db, name, [None] * n)
        db.close()
ok(all(e or g in ([], [(None,)], [("ok",)]) or name == "waste_version" for (name, n), (g, e) in answers.items()), "NULLs give NULL, no rows or an error")
for name in ("waste_generate", "waste_generate_json", "waste_tokenize", "waste_detokenize", "waste_token_count"):
    equal(answers[name, 2], ([(None,)], None), f"{name}(NULL, NULL) is NULL")
equal(answers["waste_generate", 6], ([(None,)], None), "also with parts")
equal([answers[n, 1][0] for n in ("waste_open", "waste_close", "waste_info", "waste_tensors", "waste_experts")], [[(None,)]] * 2 + [[]] * 3,
      "a NULL model is no model")
ok("NULL" in answers["waste_register", 2][1], "but nothing is registered silently")
for name in ("waste_generate", "waste_generate_json"):
    equal([answers[name, n][1] for n in (0, 1)], [f"{name} needs a model and a prompt"] * 2, f"{name} says what it needs")
for name in ("waste_version", "waste_setup", "waste_register", "waste_close", "waste_tokenize"):
    ok("wrong number of arguments" in answers[name, 4][1], f"{name} with too many")

# -- every value in every place, fresh and used connections
db = connect()
db.execute("SELECT waste_register('m', ?, '{\"context\":256}')", (PATH,))
calls = failures = 0
rng = random.Random(1)
step = 7 if SANITIZED else 1
plan = [(name, [v] * n) for name in ALL for v in VALUES for n in range(1, 5)]
plan += [(name, args) for name in ALL for args in itertools.product(["m", PATH, None], VALUES, [None, "", '{"max_tokens":1}'])]
plan += [(name, [rng.choice(VALUES) for _ in range(rng.randrange(7))]) for name in ALL for _ in range(400)]
plan += [("waste_generate", ["m", "Hi", '{"max_tokens":1}'] + [rng.choice(VALUES) for _ in range(3)]) for _ in range(50)]
unnamed = set()
for name, args in plan[::step]:
    got, error = call(db, name, args)
    calls += 1
    failures += error is not None
    if error in ("", "not an error", "unknown error", "SQL logic error", "bad parameter or other API misuse"):
        unnamed.add((name, repr(args)[:200], error))
ok(calls > 200 and 0 < failures < calls, f"{calls} calls, {failures} errors, no crash")
equal(unnamed, set(), "every error has a sentence")
db.execute("SELECT waste_register('m', ?, '{\"context\":256}')", (PATH,))  # the calls may have changed it
db.execute("SELECT waste_close('m')")
for name in ALL:
    for raw in RAW:
        for holes in ([raw], [raw, "'x'"], ["'m'", raw], ["'m'", "'Hi'", raw], ["'m'", "'Hi'", "NULL", raw]):
            call(db, name, [], holes)
ok(True, "text that is no UTF-8, everywhere")
equal(db.execute("SELECT waste_generate('m', 'Hi')").fetchone(), ("Hello, world!",), "and the connection still answers")
equal(sorted(os.listdir(".")), [], "no file was left behind")

# -- what the errors say
for sql, words in (
        ("waste_generate('a' || char(0) || 'b', 'x')", ("model", "NUL")),
        ("waste_register('a' || char(0), '/x')", ("name", "NUL")),
        ("waste_register('a', '/x' || char(0) || 'y')", ("path", "NUL")),
        ("waste_register('', '/x')", ("name", "empty")),
        ("waste_register('a/b', '/x')", ("'a/b'", "/")),
        ("waste_register('a', '')", ("path", "empty")),
        ("waste_register('a', x'2f')", ("path", "BLOB")),
        ("waste_register(x'2f', '/x')", ("name", "BLOB")),
        ("waste_generate('', 'x')", ("model", "empty")),
        ("waste_generate(x'6d', 'x')", ("model", "BLOB")),
        ("waste_generate('m', x'00')", ("prompt", "BLOB", "TEXT")),
        ("waste_generate('m', 'x', NULL, 'a', x'00')", ("argument 5", "BLOB", "images")),
        ("waste_tokenize('m', x'00')", ("BLOB",)),
        ("waste_detokenize('m', 'x')", ("waste_detokenize", "JSON")),
        ("waste_detokenize('m', '{}')", ("array", "an object")),
        ("waste_detokenize('m', '[1,null]')", ("tokens[1]", "null")),
        ("waste_detokenize('m', '[1,100000]')", ("100000", "vocabulary")),
        ("waste_detokenize('m', x'5b5d')", ("BLOB",)),
        ("waste_generate(5, 'x')", ("no model '5'",)),
        ("waste_generate('/nowhere', 'x')", ("/nowhere",))):
    raises(lambda s=sql: db.execute(f"SELECT {s}").fetchone(), *words, name=sql)
raises(lambda: db.execute("SELECT waste_generate(?, 'x')", (NO_TEXT,)).fetchone(), "tokenizer", name="text for a container without tokenizer")

# -- errors keep no memory

def memory():
    return db.execute("SELECT json_extract(waste_open('m'), '$.memory_bytes')").fetchone()[0]


WRONG = ['{"x":1}', '{"max_tokenz":1}', '{"into":"t"}', '{"tools":[]}', '{"cache":5}', '{"max_tokens":0}', '{"stop":[1]}', '{"logit_bias":{"a":1}}', '[1]', '{']
seen = []
for _ in range(20):
    seen.append(memory())
    for o in WRONG:
        for name in ("waste_generate", "waste_generate_json", "waste_tokens"):
            call(db, name, ["m", "x", o])
        call(db, "waste_tokenize", ["m", "x", o])
        call(db, "waste_open", ["m", o])
        db.execute("SELECT error FROM waste_batch('m', 'SELECT 1, ''x'', ' || quote(?))", (o,)).fetchall()
equal(memory(), seen[1], "options that are refused leave nothing behind")

# -- prompts are bytes
equal(len(db.execute("SELECT * FROM waste_next('m', ?, 1)", ("a\0b",)).fetchall()), 1, "NULs in a prompt survive")
n = [db.execute("SELECT json_extract(waste_generate_json('m', ?, '{\"max_tokens\":1}'), '$.usage.prompt_tokens')", (p,)).fetchone()[0]
     for p in ("ab", "a\0b")]
equal(n[1] - n[0], db.execute("SELECT waste_token_count('m', 'a' || char(0) || 'b') - waste_token_count('m', 'ab')").fetchone()[0],
      "and are counted")
big = "word " * 20000
equal(db.execute("SELECT waste_token_count('m', ?) > 20000", (big,)).fetchone(), (1,), "long text")
raises(lambda: db.execute("SELECT waste_generate('m', ?)", (big,)).fetchone(), "context", name="a prompt that does not fit says so")
raises(lambda: db.execute("SELECT * FROM waste_next('m', ?)", (big,)).fetchone(), "context", name="waste_next too")
done()
