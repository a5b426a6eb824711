"""Who may use a model, and until when: options that disagree, forked processes,
exclusive ownership, threads that come and go."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import SANITIZED, connect, done, equal, ok, raises, skip  # noqa: E402
from tiny import cases  # noqa: E402

CHAT, K3 = cases.make("tiny-chat"), cases.make("k3")
ANSWER = "Hello, world!"


def one(db, sql, *args):
    row = db.execute(sql, args).fetchone()
    return row[0] if row else None


# -- what others opened it with
a, b = connect(), connect()
one(a, "SELECT waste_open(?, '{\"budget\":\"1G\",\"io_threads\":1,\"lookahead\":3,\"threads\":3}')", K3)
for options, words in (('{"budget":"2G"}', ("budget 1073741824", "not 2147483648")), ('{"context":99}', ("context 4096", "not 99")),
                       ('{"direct_io":false}', ("direct_io on", "not off")), ('{"io_threads":5}', ("io_threads 1", "not 5")),
                       ('{"lookahead":0}', ("lookahead 3", "not 0")), ('{"exclusive":true}', ("exclusive off", "not on")),
                       ('{"threads":7}', ("threads 3", "not 7")), ('{"cpus":"0"}', ("cpus ''", "not '0'"))):
    raises(lambda o=options: one(b, "SELECT waste_open(?, ?)", K3, o), K3, "is open here by 1 connection with", "waste_close", *words,
           name=f"opened without {options}")
equal(json.loads(one(b, "SELECT waste_open(?, '{\"budget\":1073741824,\"direct_io\":true,\"lookahead\":3,\"usage\":\"table\"}')", K3))["connections"],
      2, "what agrees shares; usage is each connection's own")
raises(lambda: one(connect(), "SELECT waste_open(?, '{\"budget\":\"2G\"}')", K3), "by 2 connections", name="now by two")
one(a, "SELECT waste_close(?)", K3)
one(b, "SELECT waste_close(?)", K3)
for options, words in (('{"io_threads":-1}', "0 to 16"), ('{"io_threads":99}', "0 to 16"), ('{"io_threads":1.5}', "0 to 16"), ('{"lookahead":-1}', "0 to 64"),
                       ('{"lookahead":"x"}', "0 to 64"), ('{"direct_io":"x"}', "true or false"), ('{"direct_io":2}', "true or false"),
                       ('{"exclusive":2}', "true or false"), ('{"threads":-1}', "0 to 64"), ('{"threads":65}', "0 to 64"),
                       ('{"threads":"2"}', "0 to 64"), ('{"cpus":0}', "CPU numbers"), ('{"cpus":""}', "CPU numbers"),
                       ('{"cpus":"0,"}', "CPU numbers"), ('{"cpus":"5-0"}', "CPU numbers"), ('{"cpus":"0 3"}', "CPU numbers")):
    key = list(json.loads(options))[0]
    raises(lambda o=options: one(a, "SELECT waste_open(?, ?)", K3, o), f"option '{key}'", words, name=f"{options}")
tokens = '{"tokens":[5,6,7],"max_tokens":12}'
want = one(a, "SELECT group_concat(token) FROM waste_tokens(?, NULL, ?)", K3, tokens)
one(a, "SELECT waste_close(?)", K3)
for options in ('{"direct_io":false}', '{"io_threads":0}', '{"io_threads":8}', '{"lookahead":0}', '{"lookahead":32}', '{"exclusive":true,"verify":true}',
                '{"threads":1}', '{"threads":8}', '{"cpus":"0"}', '{"threads":2,"cpus":" 0 - 1 , 1000 "}'):
    one(a, "SELECT waste_open(?, ?)", K3, options)
    equal(one(a, "SELECT group_concat(token) FROM waste_tokens(?, NULL, ?)", K3, tokens), want, f"{options} changes no token")
    one(a, "SELECT waste_close(?)", K3)
a.close()
b.close()


# -- fork
def child(f, seconds=60):
    """What f() returns in a forked process, or how that ended."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(seconds)
        os.close(r)
        try:
            text = str(f())
        except BaseException as e:  # noqa: BLE001
            text = f"{type(e).__name__}: {e}"
        os.write(w, text.encode()[:4000])
        os._exit(0)
    os.close(w)
    out = b""
    while True:
        got = os.read(r, 4096)
        if not got:
            break
        out += got
    os.close(r)
    status = os.waitpid(pid, 0)[1]
    return out.decode() if status == 0 else f"ended with {status}"


if "thread" in SANITIZED:
    skip("ThreadSanitizer does not follow a fork of a process with threads", "fork")
else:
    db = connect(check_same_thread=False)
    one(db, "SELECT waste_register('m', ?)", CHAT)
    equal(one(db, "SELECT waste_generate('m', 'Hi')"), ANSWER, "the parent's model")
    for name, sql in (("waste_generate", "SELECT waste_generate('m', 'Hi')"), ("waste_tokens", "SELECT n FROM waste_tokens('m', 'Hi')"),
                      ("waste_open", "SELECT waste_open('m')"), ("waste_next", "SELECT n FROM waste_next('m', 'Hi', 1)")):
        said = child(lambda q=sql: one(db, q))
        ok("forked after the model was opened" in said and "open a new connection" in said and CHAT in said, f"{name} in the child: {said[:60]}")
    equal(child(lambda: one(db, "SELECT waste_token_count('m', 'Hello')")), "1", "text functions need no model")
    equal(child(lambda: db.execute("SELECT * FROM waste_stats").fetchall()), "[]", "the child has no model open")
    equal(child(lambda: (one(connect(), "SELECT waste_generate(?, 'Hi')", CHAT))), ANSWER, "a connection of its own works")
    equal(child(lambda: (one(db, "SELECT waste_close('m')"), one(db, "SELECT waste_generate('m', 'Hi')"))), str((1, ANSWER)),
          "so does the old one, closed and opened anew")
    equal(child(lambda: db.close()), "None", "closing the connection does not hang")
    equal(child(lambda: child(lambda: one(connect(), "SELECT waste_generate(?, 'Hi')", CHAT))), ANSWER, "a child's child as well")
    equal(one(db, "SELECT waste_generate('m', 'Hi')"), ANSWER, "the parent goes on")
    long = '{"tokens":[5,6,7],"max_tokens":100000,"logit_bias":{"2":null}}'
    linear = cases.make("linear")
    one(db, "SELECT waste_open(?, '{\"context\":1000000}')", linear)

    busy = connect(check_same_thread=False)

    def generate():
        try:
            one(busy, "SELECT waste_generate(?, NULL, ?)", linear, long)
        except Exception:  # noqa: BLE001: interrupted
            pass

    t = threading.Thread(target=generate)
    t.start()
    time.sleep(0.05)
    if "address" in SANITIZED:
        skip("AddressSanitizer's allocator stays locked in a child when another thread was in it", "forked in the middle of another's step")
    else:
        said = [child(lambda: one(db, "SELECT waste_generate(?, NULL, '{\"tokens\":[5],\"max_tokens\":1}')", linear)) for _ in range(5)]
        ok(all("forked after" in s for s in said), "forked in the middle of another's step")
        said = [child(lambda: one(connect(), "SELECT count(*) FROM waste_tokens(?, NULL, '{\"tokens\":[5],\"max_tokens\":3}')", linear)) for _ in range(5)]
        equal(said, ["3"] * 5, "and with a new connection")
    while t.is_alive():
        busy.interrupt()
        t.join(0.05)
    busy.close()
    db.close()

# -- exclusive ownership, between processes
HOLD = """
import sys
sys.path.insert(0, sys.argv[1])
from lib.tap import connect
db = connect()
try:
    db.execute("SELECT waste_open(?, ?)", (sys.argv[2], sys.argv[3])).fetchone()
    print("open", flush=True)
except Exception as e:
    print(e, flush=True)
sys.stdin.readline()
"""


class Other:
    """A process that has the model open, or says why not."""

    def __init__(self, path, options):
        tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.p = subprocess.Popen([sys.executable, "-c", HOLD, tests, path, options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said = self.p.stdout.readline().strip()

    def end(self):
        self.p.communicate("\n", timeout=60)

    def kill(self):
        self.p.kill()
        self.p.wait()


MINE = '{"exclusive":true}'
db = connect()
other = Other(CHAT, MINE)
equal(other.said, "open", "another process owns it")
raises(lambda: one(db, "SELECT waste_open(?, ?)", CHAT, MINE), CHAT, "owned by another process", name="so this one is refused")
equal(db.execute("SELECT count(*) FROM waste_stats").fetchone(), (0,), "and opens nothing")
equal(one(db, "SELECT waste_generate(?, 'Hi')", CHAT), ANSWER, "who does not ask to own it is not asked")
one(db, "SELECT waste_close(?)", CHAT)
link = os.path.join(tempfile.mkdtemp(), "link")
os.symlink(CHAT, link)
raises(lambda: one(db, "SELECT waste_open(?, ?)", link, MINE), "owned by another process", name="by whatever path")
os.unlink(link)
os.rmdir(os.path.dirname(link))
other.end()
one(db, "SELECT waste_open(?, ?)", CHAT, MINE)
equal(Other(CHAT, MINE).said.startswith(CHAT), True, "when it is gone, it is ours")
second = connect()
equal(one(second, "SELECT waste_generate(?, 'Hi')", CHAT), ANSWER, "connections of one process share it")
one(db, "SELECT waste_close(?)", CHAT)
equal("owned by another" in Other(CHAT, MINE).said, True, "until the last has closed it")
second.close()
other = Other(CHAT, MINE)
equal(other.said, "open", "then it is free")
other.kill()
equal(json.loads(one(db, "SELECT waste_open(?, ?)", CHAT, MINE))["connections"], 1, "a killed owner owns nothing")
one(db, "SELECT waste_close(?)", CHAT)
raises(lambda: one(db, "SELECT waste_open(?, '{\"exclusive\":true,\"budget\":1}')", CHAT), "budget", name="an open that fails")
other = Other(CHAT, MINE)
equal(other.said, "open", "owns nothing either")
other.end()
box = tempfile.mkdtemp()
os.rmdir(box)
shutil.copytree(CHAT, box)
for f in os.listdir(box):
    os.chmod(os.path.join(box, f), 0o444)
os.chmod(box, 0o555)
equal(json.loads(one(db, "SELECT waste_open(?, ?)", box, MINE))["connections"], 1, "a read-only container can be owned")
one(db, "SELECT waste_close(?)", box)
equal(sorted(os.listdir(box)), sorted(os.listdir(CHAT)), "nothing is written to it")
os.chmod(box, 0o755)
shutil.rmtree(box)
db.close()

# -- eight threads, each opening, generating, interrupting and closing in its own order
linear = cases.make("linear")
SHORT = '{"tokens":[5,6,7],"max_tokens":20,"logit_bias":{"2":null}}'
LONG = '{"tokens":[5,6,7],"max_tokens":3000,"logit_bias":{"2":null}}'
check = connect()
expected = one(check, "SELECT group_concat(token) FROM waste_tokens(?, NULL, ?)", linear, SHORT)
check.close()
wrong, answers = [], []


def worker(seed):
    steps = ["open", "generate", "tokens", "interrupt", "stats", "close", "reconnect", "cursor"]
    steps = steps[seed:] + steps[:seed]
    if seed % 2:
        steps.reverse()
    db = connect(check_same_thread=False)
    cursor = None
    for _ in range(2 if SANITIZED else 6):
        for step in steps:
            try:
                if step == "open":
                    one(db, "SELECT waste_open(?)", linear)
                elif step == "generate":
                    one(db, "SELECT waste_generate(?, NULL, ?)", linear, SHORT)
                elif step == "tokens":
                    got = one(db, "SELECT group_concat(token) FROM waste_tokens(?, NULL, ?)", linear, SHORT)
                    answers.append(got)
                    if got != expected:
                        wrong.append((seed, got))
                elif step == "interrupt":
                    cursor = None  # an interrupt lasts as long as any statement runs
                    timer = threading.Timer(0.01, db.interrupt)
                    timer.start()
                    try:
                        one(db, "SELECT count(*) FROM waste_tokens(?, NULL, ?)", linear, LONG)
                    except Exception as e:  # noqa: BLE001
                        if "interrupted" not in str(e):
                            wrong.append((seed, step, e))
                    timer.join()
                elif step == "stats":
                    db.execute("SELECT * FROM waste_stats").fetchall()
                elif step == "close":
                    one(db, "SELECT waste_close(?)", linear)
                elif step == "cursor":
                    cursor = db.execute("SELECT token FROM waste_tokens(?, NULL, ?)", (linear, SHORT))
                    cursor.fetchone()
                else:
                    cursor = None
                    db.close()
                    db = connect(check_same_thread=False)
            except Exception as e:  # noqa: BLE001
                wrong.append((seed, step, e))
    cursor = None
    db.close()


threads = [threading.Thread(target=worker, args=(i,)) for i in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
equal(wrong, [], "eight threads in eight orders: no error but interrupts")
equal(len(answers), 8 * (2 if SANITIZED else 6), "and every answer")
check = connect()
equal(check.execute("SELECT count(*) FROM waste_stats").fetchone(), (0,), "nothing is left open")
check.close()
done()
