"""Loading: all or nothing, twice, through SQL; and many times over without growth."""
import os
import re
import sqlite3
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import EXTENSION, ROOT, SANITIZED, connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

PATH = cases.make("tiny-chat")


def ours(db):
    return [r[0] for r in db.execute("SELECT name FROM pragma_function_list WHERE name LIKE 'waste%'"
                                     " UNION ALL SELECT name FROM pragma_module_list WHERE name LIKE 'waste%'")]


# -- a load that fails leaves nothing: a running statement protects a function of ours that is there already
db = sqlite3.connect(":memory:")
db.enable_load_extension(True)
db.create_function("waste_close", 1, lambda x: "mine")
raises(lambda: db.execute("SELECT load_extension(?)", (EXTENSION,)).fetchone(), "waste_close", name="a load that fails says where")
equal(sorted(set(ours(db))), ["waste_close"], "and leaves nothing behind")
equal(db.execute("SELECT waste_close('m')").fetchone(), ("mine",), "what was there still works")
raises(lambda: db.execute("SELECT waste_version()"), "no such function", name="nothing of ours is callable")
db.load_extension(EXTENSION)
equal(db.execute("SELECT waste_generate(?, 'Hi')", (PATH,)).fetchone(), ("Hello, world!",), "a load without the obstacle works")

# -- loading again
db.load_extension(EXTENSION)
equal(db.execute("SELECT waste_close(?)", (PATH,)).fetchone(), (0,), "a second load starts anew")
equal(db.execute("SELECT waste_generate(?, 'Hi')", (PATH,)).fetchone(), ("Hello, world!",), "and works")
raises(lambda: db.execute("SELECT load_extension(?)", (EXTENSION,)).fetchone(), "active statements", name="not while a statement runs")
equal(db.execute("SELECT group_concat(piece, '') FROM waste_tokens(?, 'Hi')", (PATH,)).fetchone(), ("Hello, world!",),
      "which leaves the first load whole")
cursor = db.execute("SELECT piece FROM waste_tokens(?, 'Hi')", (PATH,))
equal(cursor.fetchone(), ("Hello",), "a cursor")
raises(lambda: db.load_extension(EXTENSION), "active statements", name="nor while a cursor is open")
equal(len(cursor.fetchall()), 4, "which reads on")
db.close()

fresh = sqlite3.connect(":memory:")
fresh.enable_load_extension(True)
equal(fresh.execute("SELECT load_extension(?)", (EXTENSION,)).fetchone(), (None,), "loading through SQL")
equal(fresh.execute("SELECT waste_generate(?, 'Hi')", (PATH,)).fetchone(), ("Hello, world!",), "works")
names = set(ours(fresh))
with open(os.path.join(ROOT, "ext", "ext.c"), encoding="utf-8") as f:
    equal(sorted(names), sorted(set(re.findall(r'\{"(waste_\w+)",', f.read()))), "every name of ext.c's table is there")
fresh.close()

# -- a connection that dies with everything open
db = connect()
cursor = db.execute("SELECT n FROM waste_tokens(?, 'Hi')", (PATH,))
cursor.fetchone()
del cursor, db
ok(True, "a connection dropped with an open cursor")


# -- cycles: open, load, register, one token, close
def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def cycle():
    c = connect()
    c.execute("SELECT waste_register('m', ?)", (PATH,))
    got = c.execute("SELECT piece FROM waste_tokens('m', 'Hi') LIMIT 1").fetchone()
    c.close()
    return got


def growth(n):
    before = rss()
    wrong = sum(cycle() != ("Hello",) for _ in range(n))
    return rss() - before, wrong


warm, cycles = (10, 50) if SANITIZED else (100, 1000)
growth(warm)
grown, wrong = growth(cycles)
equal(wrong, 0, f"{cycles} cycles answer")
if not SANITIZED:
    ok(grown < 2 << 20, f"memory stays flat over {cycles} cycles ({grown} bytes)")
done()
