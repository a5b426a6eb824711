"""Databases and statements that mean no good, or are merely odd: schemas that call
the extension, tables that lead back to themselves, other encodings, re-entry."""
import os
import shutil
import sqlite3
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import EXTENSION, connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

PATH, OTHER = cases.make("tiny-chat"), cases.make("linear")
HOME = tempfile.mkdtemp()
FILE = os.path.join(HOME, "a.db")
ANSWER = "Hello, world!"
db = connect(FILE, isolation_level=None)


def one(sql, *args, on=None):
    return (on or db).execute(sql, args).fetchone()[0]


def run(sql):
    return db.execute(sql).fetchall()


one("SELECT waste_register('m', ?)", PATH)

# -- schemas: what a file says may not call us; what this connection made may
for trusted in ("ON", "OFF"):
    run(f"PRAGMA trusted_schema = {trusted}")
    equal(one("SELECT waste_generate('m', 'Hi')"), ANSWER, f"trusted_schema {trusted}: a direct call")
    for kind, sql, use in (("view", "CREATE VIEW h AS SELECT waste_generate('m', 'Hi')", "SELECT * FROM h"),
                           ("view of a table", "CREATE VIEW h AS SELECT * FROM waste_info('m')", "SELECT * FROM h"),
                           ("check", "CREATE TABLE h(a CHECK (waste_generate('m', a) <> ''))", "INSERT INTO h VALUES (1)"),
                           ("check of a path", "CREATE TABLE h(a CHECK (waste_token_count('/no/where', a) > 0))", "INSERT INTO h VALUES (1)"),
                           ("check that registers", f"CREATE TABLE h(a CHECK (waste_register('x', '{PATH}') <> ''))", "INSERT INTO h VALUES (1)"),
                           ("default", "CREATE TABLE h(a, b DEFAULT (waste_generate('m', 'Hi')))", "INSERT INTO h(a) VALUES (1)")):
        run(sql)
        raises(lambda u=use: run(u), "unsafe use", name=f"trusted_schema {trusted}: no {kind}")
        run("DROP VIEW h" if "VIEW" in sql else "DROP TABLE h")
    run("CREATE TABLE h(a)")
    run("CREATE TRIGGER t AFTER INSERT ON h BEGIN SELECT waste_generate('m', new.a); END")
    raises(lambda: run("INSERT INTO h VALUES (1)"), "unsafe use", name=f"trusted_schema {trusted}: no trigger")
    run("DROP TABLE h")
for sql in ("CREATE INDEX i ON waste_models(waste_generate('m', name))", "CREATE INDEX i ON waste_models(waste_version())",
            "CREATE INDEX i ON waste_models(name) WHERE waste_token_count('m', name) > 0", "CREATE TABLE h(a, b AS (waste_generate('m', a)))",
            "CREATE TABLE h(a, b AS (waste_version()))"):
    raises(lambda s=sql: run(s), "non-deterministic", name=sql)
run("CREATE TEMP TABLE h(a CHECK (waste_generate('m', a) <> ''), b)")
run("CREATE TEMP TRIGGER t AFTER INSERT ON h BEGIN UPDATE h SET b = waste_generate('m', new.a) WHERE a = new.a; END")
run("INSERT INTO h(a) VALUES ('Hi')")
equal(run("SELECT * FROM h"), [("Hi", ANSWER)], "a TEMP table's check and trigger may")
run("CREATE TEMP VIEW v AS SELECT waste_generate('m', 'Hi') AS x, (SELECT count(*) FROM waste_info('m')) AS n")
equal(run("SELECT x, n > 5 FROM v"), [(ANSWER, 1)], "and a TEMP view")
run("DROP TABLE h")
run("DROP VIEW v")

# -- waste_models that is something else
run(f"ATTACH '{HOME}/b.db' AS b")
run("CREATE TABLE b.waste_models(name, path, options)")
db.execute("INSERT INTO b.waste_models VALUES ('there', ?, NULL)", (PATH,))
raises(lambda: one("SELECT waste_generate('there', 'Hi')"), "no model 'there'", name="main comes before attached databases")
run("CREATE TEMP TABLE waste_models(name, path, options)")
db.execute("INSERT INTO temp.waste_models VALUES ('m', ?, NULL)", (OTHER,))
equal(one("SELECT value FROM waste_info('m') WHERE key = 'path'"), OTHER, "and temp before main")
run("DROP TABLE temp.waste_models")
for made, words in (("SELECT 'm' AS name, 5 AS path, x'00' AS options", ("options", "not plain text")),
                    ("SELECT 'm' AS name, NULL AS path, NULL AS options", ("no path",)),
                    ("SELECT 'm' AS name, 'x' || char(0) AS path, NULL AS options", ("path", "not plain text")),
                    ("SELECT 'm' AS name, '/no/where' AS path, '[1]' AS options", ("no container at /no/where",)),
                    ("SELECT 'm' AS name, waste_generate('m', 'x') AS path, NULL AS options", ("looking for model 'm'", "call themselves")),
                    ("SELECT 1 AS name", ("no such column: path",))):
    run(f"CREATE TEMP VIEW waste_models AS {made}")
    raises(lambda: one("SELECT waste_generate('m', 'Hi')"), *words, name=f"waste_models is a view: {made}")
    run("DROP VIEW temp.waste_models")
run("CREATE TEMP VIEW waste_models AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT 'm' AS name, max(x) AS path, NULL AS options FROM c")
timer = threading.Timer(0.2, db.interrupt)
timer.start()
raises(lambda: one("SELECT waste_generate('m', 'Hi')"), "interrupt", name="an endless one can be interrupted")
timer.join()
run("DROP VIEW temp.waste_models")
run("CREATE TEMP TRIGGER t AFTER INSERT ON main.waste_models BEGIN SELECT waste_register(new.name || 'x', new.path); END")
raises(lambda: one("SELECT waste_register('n', ?)", PATH), "call themselves", name="a trigger that registers without end")
equal(run("SELECT name FROM waste_models"), [("m",)], "has registered nothing")
run("DROP TRIGGER t")

# -- re-entry: closing and registering from within a statement that generates
equal([r[0] for r in run("SELECT piece, waste_close('m') FROM waste_tokens('m', 'Hi')")], ["Hello", ",", " world", "!", ""], "closing in mid-statement")
equal([r[0] for r in db.execute("SELECT piece, waste_register('m', ?, '{\"context\":' || (60 + n) || '}') FROM waste_tokens('m', 'Hi')", (PATH,))],
      ["Hello", ",", " world", "!", ""], "registering with other options, too")
equal(one("SELECT waste_generate('m', 'Hi')"), ANSWER, "and what comes next works")

# -- the host says no
db.set_progress_handler(lambda: 1, 1)
raises(lambda: one("SELECT waste_generate('m', 'Hi')"), "interrupt", name="a progress handler that stops everything")
raises(lambda: run("SELECT * FROM waste_tokens('m', 'Hi')"), "interrupt", name="also rows")
db.set_progress_handler(None, 0)
db.interrupt()
equal(one("SELECT waste_generate('m', 'Hi')"), ANSWER, "an interrupt before there is a statement stops none")
db.set_authorizer(lambda *a: sqlite3.SQLITE_DENY if a[:2] == (sqlite3.SQLITE_READ, "waste_models") else sqlite3.SQLITE_OK)
raises(lambda: one("SELECT waste_generate('m', 'Hi')"), "prohibited", name="an authorizer")
db.set_authorizer(None)
run("PRAGMA query_only = ON")
equal(one("SELECT waste_generate('m', 'Hi')"), ANSWER, "query_only: generating writes nothing")
raises(lambda: one("SELECT waste_register('n', ?)", PATH), "readonly", name="query_only: registering is refused")
run("PRAGMA query_only = OFF")
readonly = sqlite3.connect(f"file:{FILE}?mode=ro", uri=True)
readonly.enable_load_extension(True)
readonly.load_extension(EXTENSION)
equal(one("SELECT waste_generate('m', 'Hi')", on=readonly), ANSWER, "a read-only database")
readonly.close()
locker = sqlite3.connect(FILE, isolation_level=None)
locker.execute("BEGIN EXCLUSIVE")
waiting = connect(FILE, isolation_level=None, timeout=0.05)
raises(lambda: one("SELECT waste_generate('m', 'Hi')", on=waiting), "locked", name="a locked database")
locker.execute("ROLLBACK")
equal(one("SELECT waste_generate('m', 'Hi')", on=waiting), ANSWER, "and when it is free")
waiting.close()
locker.close()

# -- one statement, many bindings, errors in between
statement = "SELECT count(*) FROM waste_tokens(?, 'Hi', ?)"
for args, want in ((("m", None), 5), (("m", "{"), None), (("m", "{}"), 5), ((None, None), 0), (("nope", None), None), (("m", '{"max_tokens":1}'), 1)):
    try:
        got = db.execute(statement, args).fetchone()[0]
    except sqlite3.Error:
        got = None
    equal(got, want, f"the same statement again, with {args}")

# -- two databases, one name
second = connect(os.path.join(HOME, "c.db"), isolation_level=None)
one("SELECT waste_register('m', ?)", OTHER, on=second)
equal([one("SELECT value FROM waste_info('m') WHERE key = 'path'", on=c) for c in (second, db)], [OTHER, PATH], "a name belongs to its database")
second.close()

# -- a database in UTF-16
wide = connect(os.path.join(HOME, "wide.db"), isolation_level=None)
wide.execute("PRAGMA encoding = 'UTF-16le'")
one("SELECT waste_register('mödel', ?, '{\"usage\":\"table\"}')", PATH, on=wide)
equal(one("PRAGMA encoding", on=wide), "UTF-16le", "UTF-16")
equal(one("SELECT waste_generate('mödel', 'Hi')", on=wide), ANSWER, "answers")
text = "héé😀" + chr(0) + "x"
equal(one("SELECT waste_detokenize('mödel', waste_tokenize('mödel', ?))", text, on=wide), text, "text goes through")
equal(one("SELECT names FROM waste_stats WHERE names IS NOT NULL", on=wide), "mödel", "so do names")
saved = one("SELECT waste_usage_save('mödel')", on=wide)
equal(one("SELECT count(*) FROM waste_usage WHERE hits > 0 AND layer < 8 AND expert < 1000", on=wide), saved, "and learned usage")
ok(saved > 0, "of which there is some")
wide.close()
db.close()
shutil.rmtree(HOME)
done()
