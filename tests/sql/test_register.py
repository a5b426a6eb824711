"""Registering: what the row holds, an open model registered again with other options,
rollback; and what is said to somebody whose name or path leads nowhere."""
import json
import os
import shutil
import sqlite3
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

HOME = os.path.realpath(tempfile.mkdtemp())
FILE = os.path.join(HOME, "file.db")
CONTAINER = os.path.join(HOME, "tiny.waste")
shutil.copytree(cases.make("tiny-chat"), CONTAINER)
os.chdir(HOME)
db = connect(FILE, isolation_level=None)


def one(sql, *args):
    return db.execute(sql, args).fetchone()[0]


def register(options=None, name="m", path="tiny.waste"):
    return one("SELECT waste_register(?, ?, ?)", name, path if "/" in path else "./" + path, None if options is None else json.dumps(options))


def context():
    return json.loads(one("SELECT waste_open('m')"))["context"]


def is_open():
    return one("SELECT count(*) FROM waste_stats")


# -- an open model gets new options
register({"context": 64})
equal(context(), 64, "opened with its options")
register({"context": 128})
equal((is_open(), context()), (0, 128), "registered anew with others it is closed, and opens with them")
register()
equal((is_open(), context()), (0, 4096), "also when the new ones are none")
tokens = one("SELECT waste_generate('m', 'Hi')") and one("SELECT tokens FROM waste_stats")
register({})
register({"usage": "table"})
register({"usage": False, "budget": None})
equal((is_open(), one("SELECT tokens FROM waste_stats") >= tokens), (1, True), "the same options in other words, or another usage, close nothing")
cursor = db.execute("SELECT piece FROM waste_tokens('m', 'Hi')")
cursor.fetchone()
register({"context": 256})
equal(len(cursor.fetchall()), 4, "a statement that reads from it reads on")
equal(context(), 256, "and after it the new options apply")

# -- somebody else has it
other = connect(FILE, isolation_level=None)
equal(json.loads(other.execute("SELECT waste_open('m')").fetchone()[0])["connections"], 2, "two connections")
equal(json.loads(register({"context": 512}))["name"], "m", "registering is fine")
equal(is_open(), 1, "and closes nothing")
raises(lambda: one("SELECT waste_generate('m', 'Hi')"), "open here by 2 connections with context 256, not 512", "waste_close", name="using it says who has it")
raises(lambda: other.execute("SELECT waste_generate('m', 'Hi')").fetchone(), "2 connections", name="there, too: the row is the same")
other.close()
raises(lambda: one("SELECT waste_generate('m', 'Hi')"), "1 connection ", name="when the other is gone it is still open here")
register({"context": 512})
equal(context(), 512, "and registering closes it")

# -- what it learned is kept
register({"usage": os.path.join(HOME, "learned")})
one("SELECT waste_generate('m', 'Hi')")
register({"usage": os.path.join(HOME, "learned"), "context": 64})
ok(os.path.getsize(os.path.join(HOME, "learned")) > 16, "closing by registering saves as waste_close does")

# -- transactions
db.execute("BEGIN")
register({"context": 32})
equal(context(), 32, "inside a transaction")
db.execute("ROLLBACK")
equal(json.loads(one("SELECT options FROM waste_models WHERE name = 'm'"))["context"], 64, "rolled back, the row is the old one")
raises(lambda: context(), "context 32, not 64", name="what was opened meanwhile says so")
one("SELECT waste_close('m')")
equal(context(), 64, "until it is closed")
one("SELECT waste_close('m')")

# -- relative paths
register({"usage": "./sub/u.waste", "context": 64})
equal(json.loads(one("SELECT options FROM waste_models WHERE name = 'm'")), {"usage": os.path.join(HOME, "sub/u.waste"), "context": 64},
      "a relative path of the usage is made absolute, as the container's is")
register({"usage": "sub/v.waste"})
equal(one("SELECT options ->> 'usage' FROM waste_models WHERE name = 'm'") if sqlite3.sqlite_version_info >= (3, 38) else HOME + "/sub/v.waste",
      os.path.join(HOME, "sub/v.waste"), "without ./ as well")
equal(one("SELECT path FROM waste_models"), CONTAINER, "the container's")
text = ' {"context": 64, "usage": "/abs/olute"} '
one("SELECT waste_register('m', ?, ?)", CONTAINER, text)
equal(one("SELECT options FROM waste_models"), text, "other options are kept to the letter")

# -- names and paths that lead nowhere
for where, sql in (("a table", "SELECT * FROM waste_info('tiny.waste')"), ("a function", "SELECT waste_generate('tiny.waste', 'x')"),
                   ("register itself", "SELECT waste_register('x', '/nowhere/at/all')")):
    raises(lambda s=sql: one(s), "./tiny.waste" if "tiny" in sql else "no container at /nowhere/at/all: it does not exist", name=f"said by {where}")
memory = connect()
raises(lambda: memory.execute("SELECT waste_open('tiny.waste')"), "'./tiny.waste'", name="also without a table")
memory.execute("SELECT waste_setup()")
raises(lambda: memory.execute("SELECT waste_open('tiny.waste')"), "is empty", "'./tiny.waste'", name="and with an empty one")
raises(lambda: memory.execute("SELECT waste_open('tinny.waste')"), "no model 'tinny.waste'", name="which names nothing that is not there")
for sql in ("SELECT waste_open('/no/where')", "SELECT waste_generate('/no/where', 'x')", "SELECT * FROM waste_info('/no/where')",
            "SELECT * FROM waste_plan('/no/where')", "SELECT waste_register('x', '/no/where')", "SELECT waste_token_count('/no/where', 'x')",
            "SELECT piece FROM waste_tokens('/no/where', 'x')", "SELECT piece FROM waste_next('/no/where', 'x')"):
    raises(lambda s=sql: one(s), "no container at /no/where: it does not exist", name=sql)
os.mkdir("empty")
raises(lambda: one("SELECT * FROM waste_convert('empty', 'target.waste')"), "empty is no checkpoint: it has no config.json", name="a directory that is no checkpoint")
raises(lambda: one("SELECT * FROM waste_info('./empty')"), "no container at ./empty: it has no manifest.json", name="or no container")
db.close()
memory.close()
shutil.rmtree(HOME)
done()
