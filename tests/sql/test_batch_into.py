"""waste_batch into tables of every kind: where they are, what they take for one key, what
they refuse, what they set off; and while the database is locked or changes."""
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import demo  # noqa: E402
from tap import connect, done, equal, ok, raises  # noqa: E402

DEMO = demo.container()
HOME = tempfile.mkdtemp()
LOCKED = """
import sys
sys.path.insert(0, sys.argv[1])
from tap import connect
db, other = connect(sys.argv[2], isolation_level=None, timeout=0), connect(sys.argv[2], isolation_level=None)
other.execute("BEGIN IMMEDIATE")
try:
    print(db.execute("SELECT * FROM waste_batch(?, 'SELECT 5, 6', json_object('into', 't', 'max_tokens', 2))", (sys.argv[3],)).fetchall())
except Exception as e:
    print(e)
"""
REST = "text TEXT, finish TEXT, error TEXT, prompt_tokens INTEGER, reused_tokens INTEGER, tokens INTEGER, ms REAL"
SAY = "SELECT value, 'Say ' || value FROM json_each('[1,2,3,4]')"


def open_base(name, mode="DELETE"):
    d = connect(os.path.join(HOME, name), isolation_level=None, check_same_thread=False)
    d.execute(f"PRAGMA journal_mode={mode}")
    return d


def batch(d, query, into="t", **more):
    return d.execute("SELECT key, text FROM waste_batch(?, ?, ?)",
                     (DEMO, query, json.dumps(dict({"max_tokens": 6, "into": into}, **more)))).fetchall()


def count(d, table):
    return d.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


# waits for 10 s, beside all that follows
open_base("locked.db").execute(f"CREATE TABLE t(key PRIMARY KEY, {REST})")
locked = subprocess.Popen([sys.executable, "-c", LOCKED, os.path.dirname(sys.modules["tap"].__file__), os.path.join(HOME, "locked.db"), DEMO],
                          stdout=subprocess.PIPE, text=True)

db = open_base("kinds.db")
db.create_collation("same", lambda a, b: 0)
made = 0


def table(columns, after=""):
    global made
    made += 1
    db.execute(f"CREATE TABLE t{made}({columns}){after}")
    return f"t{made}"


# -- names
for name in ("a b", 'a"b', "a'b", "select", "1", "ü", "x;DROP TABLE t", "[x]", "main.x", "a\nb", "é" * 400):
    batch(db, "SELECT 1, 'Hi'", name, max_tokens=1)
    equal([r[0] for r in db.execute("SELECT count(*) FROM \"%s\"" % name.replace('"', '""'))], [1], f"a table called {name[:20]!r}")
for name in ("", "é" * 600, "a\0b"):
    raises(lambda: batch(db, "SELECT 1, 'Hi'", name), "'into'", name=f"none is called {name[:20]!r}")

for model, query, more in (("nobody", SAY, {}), (HOME, SAY, {}), (DEMO, "SELECT 1", {}), (DEMO, SAY, {"parallel": 0})):
    raises(lambda: db.execute("SELECT * FROM waste_batch(?, ?, ?)", (model, query, json.dumps(dict({"into": "early"}, **more)))), "", name="a call that cannot begin")
equal(count(db, "sqlite_master WHERE name = 'early'"), 0, "makes no table")

# -- where: temp, main, then attached
db.execute(f"ATTACH '{HOME}/other.db' AS other")
db.execute(f"CREATE TABLE other.there(key PRIMARY KEY, {REST})")
batch(db, SAY, "there")
equal((count(db, "other.there"), count(db, "main.sqlite_master WHERE name = 'there'")), (4, 0), "a table of an attached database")
db.execute(f"CREATE TABLE main.there(key PRIMARY KEY, {REST})")
batch(db, SAY, "There")
equal((count(db, "main.there"), count(db, "other.there")), (4, 4), "main comes before it")
db.execute(f"CREATE TEMP TABLE there(key PRIMARY KEY, {REST})")
db.execute(f"CREATE TEMP TABLE brief(key PRIMARY KEY, {REST})")
batch(db, SAY, "there")
batch(db, SAY, "brief")
equal((count(db, "temp.there"), count(db, "temp.brief"), count(db, "main.sqlite_master WHERE name = 'brief'")), (4, 4, 0), "and temp before main")

# -- keys: equal ones are those that the column makes equal, and of them the first row counts
HI = db.execute("SELECT waste_generate(?, 'Hi', '{\"max_tokens\":6}')", (DEMO,)).fetchone()[0]
PAIRS = "SELECT {}, 'Hi' UNION ALL SELECT {}, 'Say 3'"
for column, one, two in (("", "1", "1.0"), ("", "NULL", "NULL"), ("", "x'41'", "x'41'"), ("TEXT", "1", "'1'"), ("INT", "'1'", "1"), ("REAL", "'1'", "1"),
                         ("NUMERIC", "'1e0'", "1"), ("TEXT COLLATE NOCASE", "'a'", "'A'"), ("TEXT COLLATE RTRIM", "'a'", "'a  '"), ("TEXT COLLATE same", "'a'", "'b'")):
    t = table(f"key {column} PRIMARY KEY, {REST}")
    got = batch(db, PAIRS.format(one, two), t)
    equal([text for _, text in got], [HI], f"{column or 'no type'}: {one} and {two} are one key")
    equal(db.execute(f"SELECT text FROM {t}").fetchall(), [(HI,)], "and one row")
    equal(batch(db, PAIRS.format(two, one), t), [], "which is there the next time, whichever it was")
for column, one, two in (("", "1", "'1'"), ("", "'A'", "x'41'"), ("TEXT", "1", "1.0"), ("TEXT", "'a'", "'A'"), ("BLOB", "1", "'1'")):
    t = table(f"key {column} PRIMARY KEY, {REST}")
    equal((len(batch(db, PAIRS.format(one, two), t)), count(db, t)), (2, 2), f"{column or 'no type'}: {one} and {two} are two keys")
t = table(f"key INTEGER PRIMARY KEY, {REST}")
raises(lambda: batch(db, PAIRS.format("NULL", 1), t, parallel=1), t, "INTEGER PRIMARY KEY", "NULL", name="a NULL key is given no number")
equal(batch(db, "SELECT 1, 'Say 3'", t) and db.execute(f"SELECT key, text FROM {t}").fetchall(), batch(db, "SELECT 1, 'Say 3'", table(f"key PRIMARY KEY, {REST}")),
      "nor is 1 taken for it")
big = "x" * 1000
equal(batch(db, f"SELECT '{big}', 'Hi' UNION ALL SELECT '{big}y', 'Hi'", max_tokens=1)[0][0], big, "long keys")

# -- tables that are otherwise: what they are, or which row they do not take
for columns, after in ((f"key PRIMARY KEY, {REST}", " WITHOUT ROWID"), (f"key INT PRIMARY KEY, {REST}", " STRICT"), (f"{REST}, key UNIQUE, more DEFAULT 5", ""),
                       (f"key PRIMARY KEY, {REST}, length AS (length(text))", "")):
    t = table(columns, after)
    equal((len(batch(db, SAY, t)), count(db, t), len(batch(db, SAY, t))), (4, 4, 0), f"({columns}){after}")
for columns, after, key, text in ((f"key PRIMARY KEY, {REST}", " WITHOUT ROWID", "NULL", "NOT NULL"), (f"key INT PRIMARY KEY, {REST}", " STRICT", "'ab'", "TEXT value"),
                                  (f"key INTEGER PRIMARY KEY, {REST}", "", "'ab'", "datatype"), (f"key PRIMARY KEY CHECK (key <> 7), {REST}", "", "7", "CHECK"),
                                  (f"key PRIMARY KEY, {REST}, UNIQUE(finish)", "", "7", "UNIQUE"), (f"key PRIMARY KEY CHECK (key <> x'07'), {REST}", "", "x'07'", "CHECK")):
    t = table(columns, after)
    raises(lambda: batch(db, f"SELECT 1, 'Hi' UNION ALL SELECT {key}, 'Hi'", t, parallel=1), "key " + key.strip("'").replace("x'07", "(a BLOB)"), t, text,
           name=f"the row that it does not take is named: {columns[-30:]}")
    equal(count(db, t), 1, "what was written before stays")
db.execute("CREATE VIEW seen AS SELECT 1 AS key")
for name, text in (("seen", "view"), (table("key PRIMARY KEY, text"), "finish"), (table(f"key, {REST}"), "UNIQUE"), ("sqlite_x", "reserved")):
    raises(lambda: batch(db, SAY, name), name, text, name=f"no place for rows: {text}")

# -- triggers
t = table(f"key PRIMARY KEY, {REST}")
db.execute(f"CREATE TRIGGER skip BEFORE INSERT ON {t} WHEN new.key = 2 BEGIN SELECT RAISE(IGNORE); END")
equal((len(batch(db, SAY, t)), count(db, t)), (4, 3), "a trigger may keep a row out")
t = table(f"key PRIMARY KEY, {REST}")
db.execute(f"CREATE TRIGGER no BEFORE INSERT ON {t} WHEN new.key = 3 BEGIN SELECT RAISE(ROLLBACK, 'not this one'); END")
raises(lambda: batch(db, SAY, t, parallel=1), "key 3", "not this one", name="and says why it stops all")
equal(count(db, t), 2, "after what was committed")
t = table(f"key PRIMARY KEY, {REST}")
db.execute(f"""CREATE TEMP TRIGGER round AFTER INSERT ON {t} BEGIN SELECT count(*) FROM waste_batch('{DEMO}',
  'SELECT ' || (new.key + 1) || ', ''Hi''', '{{"into":"{t}","max_tokens":1}}'); END""")
raises(lambda: batch(db, "SELECT 1, 'Hi'", t), "call themselves", "3 deep", name="one that writes to its own table without end")
equal(count(db, t), 0, "has written nothing")

# -- what is wrong with a row is its answer; that there is no room for it now is none
floor = db.execute("SELECT value FROM waste_plan(?) WHERE part = 'floor'", (DEMO,)).fetchone()[0]
db.execute("SELECT waste_close(?)", (DEMO,))
full = connect()
full.execute("SELECT waste_open(?, json_object('budget', ?))", (DEMO, floor))
held = []
for prompt in ("word " * 400, "Hi"):
    try:
        while len(held) < 100:
            held.append(full.execute("SELECT piece FROM waste_tokens(?, ?, '{\"prefix_cache\":false}')", (DEMO, prompt)))
    except sqlite3.Error as e:
        ok("for sequences" in str(e), "a budget that others have used up")
t = table(f"key PRIMARY KEY, {REST}")
MIXED = "SELECT 1, 'Hi' UNION ALL SELECT 2, 'Hi', '{\"x\":1}'".replace("'Hi' U", "'Hi', NULL U")
got = db.execute("SELECT key, error FROM waste_batch(?, ?, ?) ORDER BY key", (DEMO, MIXED, json.dumps({"into": t}))).fetchall()
equal((got[0][0], "for sequences" in got[0][1], "'x'" in got[1][1]), (1, True, True), "rows say what is wrong")
equal(db.execute(f"SELECT key FROM {t}").fetchall(), [(2,)], "the one without room is not written")
for c in held:
    c.close()
equal(db.execute("SELECT key, error FROM waste_batch(?, ?, ?)", (DEMO, MIXED, json.dumps({"into": t}))).fetchall(), [(1, None)], "and is tried again by the next call")
full.close()

# -- a statement that writes is a transaction
db.execute("CREATE TABLE sink(k CHECK (k <> 3))")
raises(lambda: db.execute("INSERT INTO sink SELECT key FROM waste_batch(?, ?, '{\"into\":\"inner\",\"max_tokens\":2,\"parallel\":1}')", (DEMO, SAY)),
       "CHECK", name="INSERT ... SELECT that fails")
equal(count(db, "sqlite_master WHERE name = 'inner'"), 0, "takes the rows back")
equal(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)], "all is well")

# -- others
other = connect(os.path.join(HOME, "kinds.db"), isolation_level=None, check_same_thread=False)
db.execute("PRAGMA busy_timeout=0")
t = table(f"key PRIMARY KEY, {REST}")
other.execute("BEGIN IMMEDIATE")
timer = threading.Timer(0.5, lambda: other.execute("ROLLBACK"))
timer.start()
equal((len(batch(db, SAY, t)), count(db, t)), (4, 4), "a lock is waited for")
timer.join()
w = open_base("wal.db", "WAL")
w.execute("PRAGMA foreign_keys=1")
w.execute("CREATE TABLE known(id INTEGER PRIMARY KEY)")
w.execute("INSERT INTO known VALUES (1), (2), (3)")
w.execute(f"CREATE TABLE child(key INTEGER PRIMARY KEY REFERENCES known, {REST})")
w.execute(f"CREATE TABLE watched(key PRIMARY KEY, {REST})")
w.execute("CREATE TABLE log(key)")
w.execute("CREATE TEMP TRIGGER watch AFTER INSERT ON watched BEGIN INSERT INTO log VALUES (new.key); END")
w2 = connect(os.path.join(HOME, "wal.db"), isolation_level=None)


def meanwhile(into, **more):
    """Somebody else writes after each row."""
    c = w.execute("SELECT key FROM waste_batch(?, ?, ?)", (DEMO, SAY, json.dumps(dict({"max_tokens": 2, "into": into, "parallel": 1}, **more))))
    for row in c:
        w2.execute("CREATE TABLE IF NOT EXISTS noise(x)")
        w2.execute("INSERT INTO noise VALUES (1)")


raises(lambda: meanwhile("child"), "key 4", "FOREIGN KEY", name="the settings of the connection hold when others write")
equal(count(w, "child"), 3, "all that belong there are there")
raises(lambda: meanwhile("watched"), "watched", "TEMP triggers", name="a TEMP trigger is not passed over")
equal(w.execute("SELECT key FROM watched").fetchall(), w.execute("SELECT key FROM log").fetchall(), "it has seen all rows that are there")
w.execute(f"ATTACH '{HOME}/aside.db' AS aside")
w.execute("PRAGMA aside.journal_mode=WAL")
w.execute(f"CREATE TABLE aside.far(key PRIMARY KEY, {REST})")
w3 = connect(os.path.join(HOME, "aside.db"), isolation_level=None)
w3.execute("CREATE TABLE noise(x)")
c = w.execute("SELECT key FROM waste_batch(?, ?, ?)",
              (DEMO, "SELECT value, 'Say ' || value FROM json_each('[1,2,3,4,5,6]') WHERE value NOT IN (SELECT x FROM aside.noise)",
               json.dumps({"max_tokens": 2, "into": "far", "parallel": 1})))
for row in c:
    w3.execute("INSERT INTO noise VALUES (100)")
equal((count(w3, "far"), count(w, "main.sqlite_master WHERE name = 'far'")), (6, 0), "in an attached database, too, all rows go where the table is")
said = locked.communicate()[0]
ok("key 5" in said and "database is locked" in said, f"a lock that is not released is an error: {said.strip()}")
done()
