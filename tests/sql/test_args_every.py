"""Every name the extension has, called first on a fresh connection with 0 to 6
NULLs or values that mean nothing to it, and with many values on a used one: NULL,
no rows, an answer or an error with a sentence. A crash ends this script.

Names come from SQLite's own lists, so a function that is added is covered."""
import os
import random
import shutil
import sqlite3
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import SANITIZED, connect, done, equal, ok  # noqa: E402
from tiny import cases  # noqa: E402

HOME = tempfile.mkdtemp()
os.chdir(HOME)
CHAT, NO_TEXT = cases.make("tiny-chat"), cases.make("linear")
VALUES = [None, 0, -1, 1, 7, 2**63 - 1, -2**63, 0.5, 1e308, float("inf"), float("-inf"), "", " ", "m", "s", "nobody", "/", "./", "/nowhere/at/all",
          CHAT, NO_TEXT, "{}", "[]", "[1,2,3]", "[-1]", '[{"role":"user","content":"Hi"}]', '[{"role":5}]', '{"max_tokens":2}', '{"x":1}', '{"x":1,"x":2}',
          '{"tokens":[5,6],"max_tokens":2}', "{", "SELECT 1", "SELECT 1, 'Hi'", "SELECT", "DROP TABLE waste_models", b"", b"\0", b"{}", "a\0b", "\0",
          CHAT + "\0x", "[" * 10000, '{"a":' * 10000, "x" * 3000, "😀" * 50, "\ud7ff\uffff"]
RAW = ["CAST(x'ff' AS TEXT)", "CAST(x'eda080' AS TEXT)", "zeroblob(100000)"]
NAMELESS = ("", "not an error", "unknown error", "SQL logic error", "bad parameter or other API misuse")
names = connect()
FUNCTIONS = sorted({r[0] for r in names.execute("SELECT name FROM pragma_function_list WHERE name LIKE 'waste%'")})
TABLES = sorted({r[0] for r in names.execute("SELECT name FROM pragma_module_list WHERE name LIKE 'waste%'")})
names.close()
ok(len(FUNCTIONS) >= 16 and len(TABLES) >= 11, f"{len(FUNCTIONS)} functions and {len(TABLES)} tables")
unnamed, calls, failures = set(), 0, 0


def call(db, name, args, holes=None):
    """(rows, None) or (None, message); a few rows of a table are enough."""
    global calls, failures
    calls += 1
    holes = ",".join(holes or "?" * len(args))
    try:
        return db.execute(f"SELECT * FROM {name}({holes}) LIMIT 3" if name in TABLES else f"SELECT {name}({holes})", args).fetchall(), None
    except sqlite3.Error as e:
        failures += 1
        if str(e) in NAMELESS:
            unnamed.add((name, repr(args)[:200], str(e)))
        return None, str(e)


surprising = []
for name in FUNCTIONS + TABLES:
    for n in range(7):
        for value in (None, "", 0, float("inf"), "{", b"\0", "x" * 3000):
            db = connect()
            got, error = call(db, name, [value] * n)
            db.close()
            if value is None and n and not error and name != "waste_stats" and got not in ([], [(None,)]):
                surprising.append((name, n, got))
equal(surprising, [], "with nothing but NULLs: NULL, no rows, or an error")

db = connect(os.path.join(HOME, "a.db"), isolation_level=None)
db.execute("SELECT waste_register('m', ?, '{\"context\":256}')", (CHAT,))
db.execute("SELECT waste_session('m', 's')").fetchone()
rng = random.Random(2)
rounds = 30 if SANITIZED else 250
for name in FUNCTIONS + TABLES:
    for _ in range(rounds):
        args = [rng.choice(VALUES) for _ in range(rng.randrange(7))]
        if args and rng.random() < 0.5:
            args[0] = rng.choice(["m", "s", CHAT])
        call(db, name, args)
    for raw in RAW:
        for holes in ([raw], [raw, "'Hi'"], ["'m'", raw], ["'s'", raw], ["'m'", "'Hi'", raw], ["'s'", "'Hi'", raw], ["'m'", "'Hi'", "NULL", raw]):
            call(db, name, [], holes)
ok(0 < failures < calls, f"{calls} calls, {failures} errors, no crash")
equal(unnamed, set(), "every error has a sentence")
equal(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)], "the database is whole")
db.close()
db = connect()
equal(db.execute("SELECT waste_generate(?, 'Hi')", (CHAT,)).fetchone(), ("Hello, world!",), "and a model still answers")
db.close()
os.chdir("/")
shutil.rmtree(HOME)
done()
