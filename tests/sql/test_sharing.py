"""One model, many users: connections share it, options must agree, closing here
does not disturb there, and what is on disk may change."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import SANITIZED, connect, done, equal, ok, raises, skip  # noqa: E402
from tiny import cases, driver  # noqa: E402

PATH = cases.make("tiny-chat")
HOME = tempfile.mkdtemp()
FILE = os.path.join(HOME, "test.db")


def one(db, sql, *args):
    return db.execute(sql, args).fetchone()[0]


def users(db, model):
    return json.loads(one(db, "SELECT waste_open(?)", model))["connections"]


# -- connections and paths lead to one model
a, b = connect(FILE), connect(FILE)
one(a, "SELECT waste_register('m', ?, '{\"context\":256}')", PATH)
a.commit()
os.symlink(PATH, os.path.join(HOME, "link"))
equal(users(a, "m"), 1, "opened once")
equal(users(b, "m"), 2, "the second connection joins")
equal(users(a, os.path.join(HOME, "link")), 2, "a link to it is the same model")
equal(users(a, PATH + "/."), 2, "so is another spelling of the path")
one(a, "SELECT waste_register('twin', ?)", PATH)
a.commit()
equal(users(b, "twin"), 2, "and another name")

# -- options must agree
for options, words in (('{"context":512}', ("context 256", "512")), ('{"precision":"exact"}', ("precision 'fast'", "'exact'")), ('{"kv":"f16"}', ("kv 'f32'", "'f16'")),
                       ('{"verify":true}', ("verify off", "on")), ('{"budget":"1G"}', ("budget", "1073741824"))):
    raises(lambda o=options: one(b, "SELECT waste_open('m', ?)", o), PATH, "waste_close", *words, name=f"open already, without {options}")
equal(users(b, "m"), 2, "which changes nothing")
equal(json.loads(one(b, "SELECT waste_open('m', '{\"context\":256,\"precision\":\"fast\",\"verify\":false}')"))["context"], 256,
      "the same options are fine")
b.execute("UPDATE waste_models SET options = '{\"context\":300}' WHERE name = 'm'")
raises(lambda: one(b, "SELECT waste_generate('m', 'Hi')"), "context 256", "300", name="a row that was changed meanwhile counts")
b.rollback()
equal(one(b, "SELECT waste_generate('m', 'Hi')"), "Hello, world!", "rolled back, it agrees again")

# -- closing
equal(one(a, "SELECT waste_close('m')"), 1, "a closes")
equal(one(b, "SELECT waste_generate('m', 'Hi')"), "Hello, world!", "b still answers")
equal(users(b, "m"), 1, "alone")
equal(one(b, "SELECT waste_close('twin')"), 1, "closing by another name")
equal(json.loads(one(b, "SELECT waste_open('m', '{\"precision\":\"exact\"}')"))["precision"], "exact", "then other options are possible")
raises(lambda: one(a, "SELECT waste_open('m', '{\"precision\":\"fast\"}')"), "precision 'exact'", name="which now hold for all")
equal(one(a, "SELECT waste_generate('m', 'Hi')"), "Hello, world!", "who has no wish shares")
b.close()
equal(users(a, "m"), 1, "the end of a connection is the end of its use")
one(a, "SELECT waste_close('m')")

# -- two models at once do not disturb one another
other = cases.make("tiny-text")
alone = one(a, "SELECT waste_generate(?, 'Hi', '{\"max_tokens\":20}')", other)
both = a.execute("SELECT x.piece, y.piece FROM waste_tokens('m', 'Hi') x JOIN waste_tokens(?, 'Hi', '{\"max_tokens\":20}') y ON y.n = x.n"
                 " ORDER BY x.n", (other,)).fetchall()
equal("".join(r[0] for r in both), "Hello, world!", "one of two")
equal(one(a, "SELECT waste_generate(?, 'Hi', '{\"max_tokens\":20}')", other), alone, "and the other")

# -- many threads, each with connections of its own, opening, generating, closing
expected = one(a, "SELECT waste_generate(?, 'Hi', '{\"max_tokens\":30}')", other)
one(a, "SELECT waste_close(?)", other)
wrong = []


def work(seed):
    for i in range(3 if SANITIZED else 15):
        try:
            db = connect(FILE, check_same_thread=False)
            for _ in range(2):
                got = one(db, "SELECT waste_generate(?, 'Hi', '{\"max_tokens\":30}')", other)
                if got != expected or one(db, "SELECT waste_generate('m', 'Hi')") != "Hello, world!":
                    wrong.append(got)
                if (i + seed) % 3 == 0:
                    one(db, "SELECT waste_close(?)", other)
            if (i + seed) % 2:
                db.close()
        except Exception as e:  # noqa: BLE001
            wrong.append(e)


threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
equal(wrong, [], "four threads opening and closing at once always get their answer")

# -- closing while another thread generates
long = json.dumps({"tokens": [5, 6, 7], "max_tokens": 200 if SANITIZED else 2000, "logit_bias": {"2": None}})
linear = cases.make("linear")
want = one(a, "SELECT group_concat(token) FROM waste_tokens(?, NULL, ?)", linear, long)
result = []


def generate():
    db = connect(check_same_thread=False)
    result.append(one(db, "SELECT group_concat(token) FROM waste_tokens(?, NULL, ?)", linear, long))


t = threading.Thread(target=generate)
t.start()
closed = 0
while t.is_alive():
    one(a, "SELECT waste_open(?)", linear)
    closed += one(a, "SELECT waste_close(?)", linear)
t.join()
ok(closed > 0 and result == [want], f"{closed} closings during another's generation change nothing")

# -- the container is replaced on disk
box = os.path.join(HOME, "box.waste")
shutil.copytree(PATH, box)
equal(one(a, "SELECT value FROM waste_info(?) WHERE key = 'vocab'", box), 367, "a container")
equal(one(a, "SELECT waste_generate(?, 'Hi')", box), "Hello, world!", "answers")
shutil.rmtree(box)
shutil.copytree(cases.make("linear"), box)
equal(one(a, "SELECT value FROM waste_info(?) WHERE key = 'vocab'", box), 96, "replaced, it is looked at anew")
equal(one(a, "SELECT count(*) FROM waste_tokens(?, NULL, '{\"tokens\":[5],\"max_tokens\":3}')", box), 3, "and opened anew")
b = connect()
one(b, "SELECT waste_open(?)", box)
manifest = os.path.join(box, "manifest.json")
with open(manifest, "rb") as f:
    text = f.read()
with open(manifest + ".tmp", "wb") as f:
    f.write(text + b"\n")
os.rename(manifest + ".tmp", manifest)
raises(lambda: one(a, "SELECT waste_open(?)", box), box, "replaced", name="replaced in place while others use it: an error, not a guess")
b.close()
equal(users(a, box), 1, "when they are gone it opens")
shutil.rmtree(box)
raises(lambda: one(a, "SELECT waste_generate(?, 'Hi')", box), box, name="gone from the disk")
equal(one(a, "SELECT waste_close(?)", box), 1, "it can still be closed")

# -- the database opens and dumps without the extension
a.commit()
a.close()
if shutil.which("sqlite3"):
    dump = subprocess.run(["sqlite3", FILE, ".dump"], capture_output=True, text=True, env=driver.environment())
    ok("CREATE TABLE" in dump.stdout and "waste_models" in dump.stdout and not dump.stderr,
       f"a shell without the extension dumps it ({dump.returncode} {dump.stderr[:200]})")
    schema = dump.stdout[dump.stdout.index("CREATE TABLE"):dump.stdout.index("INSERT")]
    ok("waste_models" in schema and "waste_" not in schema.replace("waste_models", ""), "no function of ours in the schema")
else:
    skip("there is no sqlite3 shell", "a shell without the extension dumps it", 2)
shutil.rmtree(HOME)
done()
