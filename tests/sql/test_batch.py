"""waste_batch: equals waste_generate row for row; bad rows, NULLs, errors, limits,
interrupts; into a table, killed and run again; while others generate."""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import demo  # noqa: E402
from tap import ROOT, SANITIZED, connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

DEMO = demo.container()
MAX = '{"max_tokens":24}'
WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from tap import connect
db = connect(sys.argv[2])
db.execute("SELECT count(*) FROM waste_batch(?, 'SELECT id, prompt FROM p ORDER BY id', ?)",
           (sys.argv[3], '{"max_tokens":24,"parallel":8,"into":"answers"}')).fetchone()
db.close()
"""
prompts = [r["messages"][0]["content"] for r in demo.rows() if len(r["messages"]) == 1][::4][:60]
db = connect(check_same_thread=False)
db.execute("SELECT waste_register('demo', ?)", (DEMO,))
db.execute("CREATE TABLE p(id INTEGER PRIMARY KEY, prompt TEXT)")
db.executemany("INSERT INTO p VALUES (?, ?)", list(enumerate(prompts, 1)))
db.commit()


def rows(sql, *args):
    return db.execute(sql, args).fetchall()


def batch(query, options=MAX, model="demo"):
    return rows("SELECT key, text, finish, error FROM waste_batch(?, ?, ?)", model, query, options)


want = dict(rows("SELECT id, waste_generate('demo', prompt, ?) FROM p", MAX))

# -- equality
for parallel in (1, 7, 64):
    got = batch("SELECT id, prompt FROM p", json.dumps({"max_tokens": 24, "parallel": parallel}))
    equal({k: t for k, t, f, e in got}, want, f"{parallel} at a time: the texts of waste_generate")
    ok(all(f in ("stop", "length") and e is None for k, t, f, e in got), f"{parallel}: all ended")
counts = rows("SELECT key, prompt_tokens, tokens, ms >= 0 FROM waste_batch('demo', 'SELECT id, prompt FROM p WHERE id < 4', ?)", MAX)
equal(sorted(counts), [tuple(r) for r in rows(
    "SELECT id, j ->> '$.usage.prompt_tokens', j ->> '$.usage.completion_tokens', 1 FROM "
    "(SELECT id, waste_generate_json('demo', prompt, ?) j FROM p WHERE id < 4)", MAX)], "usage is that of single calls")
tiny = cases.make("linear")
ids = json.dumps({"tokens": [5, 6, 7], "max_tokens": 8})
equal(batch(f"SELECT 1, NULL, '{ids}'", None, tiny), [(1, rows("SELECT waste_generate(?, NULL, ?)", tiny, ids)[0][0], "length", None)],
      "a container without a tokenizer takes ids")
sampled = '{"max_tokens":24,"temperature":0.9,"seed":5}'
equal(dict(rows("SELECT key, text FROM waste_batch('demo', 'SELECT id, prompt FROM p WHERE id <= 8', ?)", sampled)),
      dict(rows("SELECT id, waste_generate('demo', prompt, ?) FROM p WHERE id <= 8", sampled)), "sampled texts, too")

# -- rows that go wrong, and rows of nothing
bad = batch("SELECT id, prompt, CASE WHEN id % 10 = 3 THEN '{\"max_tokenz\":1}' END FROM p")
equal({k: t for k, t, f, e in bad if not e}, {k: t for k, t in want.items() if k % 10 != 3}, "one bad row in ten: the others go on")
ok(all("max_tokenz" in e and t is None and f is None for k, t, f, e in bad if k % 10 == 3), "and it says what is wrong")
equal(batch("SELECT id, prompt FROM p WHERE 0"), [], "no rows")
got = batch("SELECT NULL, prompt FROM p WHERE id = 1 UNION ALL SELECT 'n', NULL UNION ALL SELECT x'00', prompt FROM p WHERE id = 1")
equal(sorted(got, key=repr), sorted([(None, want[1], got[0][2] if got[0][0] is None else got[-1][2], None), ("n", None, None, None),
                                     (b"\0", want[1], [g for g in got if g[0] is None][0][2], None)], key=repr), "NULL keys, NULL prompts")
equal(rows("SELECT count(*) FROM waste_batch(NULL, 'SELECT 1, 2')")[0][0], 0, "a NULL model")
own = batch("SELECT id, prompt, json_object('max_tokens', id) FROM p WHERE id IN (1, 2)", '{"max_tokens":24}')
equal(dict((k, t) for k, t, f, e in own), dict(rows("SELECT id, waste_generate('demo', prompt, json_object('max_tokens', id)) FROM p WHERE id < 3")),
      "a row's options go over those of the call")
late = batch("SELECT id, prompt, CASE id WHEN 2 THEN '{\"timeout_ms\":1,\"max_tokens\":3000,\"logit_bias\":{\"2037\":null}}' END FROM p WHERE id < 5")
equal([f for k, t, f, e in late if k == 2], ["timeout"], "a row's timeout ends that row")
equal({k: t for k, t, f, e in late if k != 2}, {k: want[k] for k in (1, 3, 4)}, "and no other")

# -- the query
for query, text in (("", "empty"), ("SELECT 1", "1 column"), ("SELECT 1,2,3,4", "4 columns"), ("SELEC", "syntax"), ("DELETE FROM p", "SELECT"),
                    ("SELECT 1, 'x'; SELECT 2", "more"), ("SELECT ?, 'x'", "parameters"), ("SELECT 1, y FROM nowhere", "nowhere"),
                    ("SELECT 1, 'x'; -- one\nDELETE FROM p", "more"), ("SELECT 1, 'x'; /**/ SELEC", "more"), ("SELECT 1, 'x'\0", "NUL"), ("/* nothing */;", "empty")):
    raises(lambda q=query: batch(q), text, name=f"query {query!r}")
for end in (";", " ; ;\n", "; -- done", " -- done\n;", "; /* done; */", "/* done */ -- and\n-- done"):
    equal(batch("SELECT id, prompt FROM p WHERE id = 1" + end)[0][1], want[1], f"a query that ends in {end!r}")
for options, text in (('{"parallel":0}', "parallel"), ('{"parallel":257}', "parallel"), ('{"parallell":1}', "parallel"), ('{"into":""}', "into"),
                      ('{"tokens":[1]}', "tokens"), ('{"stats":true}', "stats"), ('{"into":"p"}', "p")):
    raises(lambda o=options: batch("SELECT id, prompt FROM p", o), text, name=f"options {options}")
calls = []
db.create_function("boom", 1, lambda x: calls.append(x) or (1 // (x != 50) and "x"))
got = []


def until_boom():
    for row in db.execute("SELECT key, text FROM waste_batch('demo', 'SELECT id, prompt || substr(boom(id), 2) FROM p', ?)", (MAX,)):
        got.append(row)


raises(until_boom, "in the query", name="a query that errors at row 50")
ok(len(got) >= 48 and set(got) <= {(k, want[k]) for k in range(1, 50)}, "after the 49 before")  # Python steps one row ahead
calls.clear()
list(rows("SELECT key FROM waste_batch('demo', 'SELECT id, prompt || substr(boom(id), 2) FROM p', '{\"max_tokens\":4,\"parallel\":2}') LIMIT 1"))
ok(len(calls) <= 3, "LIMIT: the query is read no further than needed")
equal(rows("SELECT count(*) FROM (VALUES('demo')) m, waste_batch(m.column1, 'SELECT id, prompt FROM p WHERE id < 3', '{\"max_tokens\":2}')")[0][0], 2, "in a join")
db.execute("CREATE TEMP VIEW round AS SELECT key, text FROM waste_batch('demo', 'SELECT * FROM round')")
raises(lambda: rows("SELECT * FROM round"), "deep", name="a view that calls itself")

# -- interrupts
endless = json.dumps({"tokens": [5, 6, 7], "max_tokens": 1900000, "logit_bias": {"2": None}})
db.execute("SELECT waste_close(?)", (tiny,))
db.execute("SELECT waste_register('m', ?, '{\"context\":2000000}')", (tiny,))
timer = threading.Timer(0.3, db.interrupt)
timer.start()
began = time.monotonic()
raises(lambda: batch(f"SELECT value, NULL, '{endless}' FROM json_each('[1,2,3,4]')", None, "m"), "interrupted", name="an interrupt")
ok(time.monotonic() - began < 20, "soon")
timer.join()
equal(batch("SELECT id, prompt FROM p WHERE id = 1")[0][1], want[1], "the next call works")

# -- into a table
home = tempfile.mkdtemp()


def base(name, mode="DELETE"):
    path = os.path.join(home, name)
    d = connect(path, check_same_thread=False)
    d.execute(f"PRAGMA journal_mode={mode}")
    d.execute("CREATE TABLE p(id INTEGER PRIMARY KEY, prompt TEXT)")
    d.executemany("INSERT INTO p VALUES (?, ?)", list(enumerate(prompts, 1)))
    d.commit()
    return path, d


def answers(d):
    return d.execute("SELECT key, text, finish, error, prompt_tokens, tokens FROM answers ORDER BY key").fetchall()


INTO = '{"max_tokens":24,"into":"answers","parallel":8}'
path, whole = base("whole.db")
equal(whole.execute("SELECT count(*) FROM waste_batch(?, 'SELECT id, prompt FROM p', ?)", (DEMO, INTO)).fetchone(), (60,), "into a table: all")
equal({r[0]: r[1] for r in answers(whole)}, want, "the texts are there")
equal(whole.execute("SELECT count(*) FROM waste_batch(?, 'SELECT id, prompt FROM p', ?)", (DEMO, INTO)).fetchone(), (0,), "a second run has nothing to do")
path, d = base("dup.db")
equal(d.execute("SELECT count(*) FROM waste_batch(?, 'SELECT id % 3, prompt FROM p UNION ALL SELECT NULL, NULL UNION ALL SELECT NULL, 1', ?)",
                (DEMO, INTO)).fetchone(), (4,), "of each key the first row counts")
equal(dict((r[0], r[1]) for r in answers(d)), {None: None, 1: want[1], 2: want[2], 0: want[3]}, "and that is what is there")
d.execute("BEGIN")
d.execute("DELETE FROM answers")
d.execute("SELECT count(*) FROM waste_batch(?, 'SELECT id, prompt FROM p WHERE id < 4', ?)", (DEMO, INTO)).fetchone()
equal(d.execute("SELECT count(*) FROM answers").fetchone(), (3,), "in a transaction")
d.execute("ROLLBACK")
equal(d.execute("SELECT count(*) FROM answers").fetchone(), (4,), "it belongs to that")
raises(lambda: d.execute("CREATE TABLE t(key, text)") and d.execute("SELECT * FROM waste_batch(?, 'SELECT 1, 2', '{\"into\":\"t\"}')", (DEMO,)).fetchall(),
       "t", name="a table without a unique key")

# each row is committed when it ends, whoever else writes (a write-ahead log)
path, d = base("wal.db", "WAL")
other = connect(path, check_same_thread=False)
other.execute("CREATE TABLE noise(x)")
other.commit()
seen = []
for row in d.execute("SELECT key FROM waste_batch(?, 'SELECT id, prompt FROM p WHERE id < 21', ?)", (DEMO, INTO)):
    seen.append(other.execute("SELECT count(*) FROM answers").fetchone()[0])
    if len(seen) in (5, 12):
        other.execute("INSERT INTO noise VALUES (1)")
        other.commit()
equal(seen, list(range(2, 21)) + [20], "committed one by one, with another writer")

# -- kill -9 and again
path, d = base("kill.db")
d.close()
kills = 0
random.seed(4)
for _ in range(4 if SANITIZED else 8):
    w = subprocess.Popen([sys.executable, "-c", WORKER, os.path.join(ROOT, "tests", "lib"), path, DEMO])
    try:
        w.wait(random.uniform(0.15, 0.6) * (4 if SANITIZED else 1))
    except subprocess.TimeoutExpired:
        w.send_signal(signal.SIGKILL)
        w.wait()
        kills += 1
equal(subprocess.call([sys.executable, "-c", WORKER, os.path.join(ROOT, "tests", "lib"), path, DEMO]), 0, f"after {kills} kills the last run ends")
d = connect(path)
equal(answers(d), answers(whole), "the table is that of an unbroken run")

# -- while others generate
stop = threading.Event()
wrong = []


def generate(n):
    c = connect()
    while not stop.is_set():
        k = random.randint(1, 60)
        if c.execute("SELECT waste_generate(?, ?, ?)", (DEMO, prompts[k - 1], MAX)).fetchone()[0] != want[k]:
            wrong.append(k)
    c.close()


threads = [threading.Thread(target=generate, args=(n,)) for n in range(8)]
for t in threads:
    t.start()
got = batch("SELECT id, prompt FROM p")
stop.set()
for t in threads:
    t.join()
equal({k: t for k, t, f, e in got}, want, "eight other connections: the same texts")
equal(wrong, [], "and theirs are right, too")
done()
