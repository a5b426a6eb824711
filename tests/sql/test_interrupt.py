"""Stopping: sqlite3_interrupt from another thread, progress handlers, timeout_ms;
in the prompt and in the reply; and the next call works."""
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

PATH = cases.make("linear")
SLACK = 20  # seconds; a layer of these takes microseconds, but the machine may be busy
db = connect(check_same_thread=False)
db.execute("SELECT waste_register('m', ?, '{\"context\":2000000}')", (PATH,))
REPLY = json.dumps({"tokens": [5, 6, 7], "max_tokens": 1900000, "logit_bias": {"2": None}})
PROMPT = json.dumps({"tokens": [5 + i % 80 for i in range(500000)]})


def one(sql, *args):
    return db.execute(sql, args).fetchone()


one("SELECT waste_open('m')")
short = one("SELECT group_concat(token) FROM waste_tokens('m', NULL, '{\"tokens\":[5,6,7],\"max_tokens\":8}')")


def interrupted(call, name):
    """call() must end in SQLITE_INTERRUPT soon after the interrupt, and not before."""
    timer = threading.Timer(0.3, db.interrupt)
    began = time.monotonic()
    timer.start()
    raises(call, "interrupted", name=name)
    took = time.monotonic() - began
    timer.join()
    ok(0.29 < took < 0.3 + SLACK, f"{name}: at once")
    equal(one("SELECT group_concat(token) FROM waste_tokens('m', NULL, '{\"tokens\":[5,6,7],\"max_tokens\":8}')"), short,
          f"{name}: the next call works")


interrupted(lambda: one("SELECT waste_generate('m', NULL, ?)", REPLY), "waste_generate in the reply")
interrupted(lambda: one("SELECT waste_generate('m', NULL, ?)", PROMPT), "waste_generate in the prompt")
interrupted(lambda: one("SELECT waste_generate_json('m', NULL, ?)", REPLY), "waste_generate_json")
interrupted(lambda: one("SELECT count(*) FROM waste_tokens('m', NULL, ?)", REPLY), "waste_tokens in the reply")
interrupted(lambda: one("SELECT count(*) FROM waste_tokens('m', NULL, ?)", PROMPT), "waste_tokens in the prompt")
interrupted(lambda: one("SELECT count(*) FROM waste_next('m', NULL, 1, ?)", PROMPT), "waste_next")
interrupted(lambda: one("WITH p(x) AS (SELECT ?) SELECT sum(t.n) FROM p, waste_tokens('m', NULL, p.x) t", REPLY), "in a join")
db.execute("CREATE TABLE t(x)")
interrupted(lambda: db.execute("INSERT INTO t SELECT waste_generate('m', NULL, ?)", (REPLY,)), "inside a write")
equal(one("SELECT count(*) FROM t"), (0,), "which leaves no row")
db.rollback()

# -- an interrupt that comes before the work, in the same statement: no luck of timing
db.create_function("stop", 0, lambda: db.interrupt() or 1)
one("SELECT waste_open(?)", PATH)
for call in ("waste_generate({m}, NULL, ?)", "waste_generate_json({m}, NULL, ?)", "(SELECT count(*) FROM waste_tokens({m}, NULL, ?))",
             "(SELECT count(*) FROM waste_next({m}, NULL, 1, ?))"):
    for model in ("'m'", f"'{PATH}'"):
        raises(lambda c=call.format(m=model): one(f"SELECT stop() + {c}", PROMPT), "interrupted", name=f"stop() + {call} of {model[:2]}")

# -- a progress handler that says stop is obeyed as well
calls = []
db.set_progress_handler(lambda: calls.append(1) or len(calls) > 20, 50)
raises(lambda: one("SELECT waste_generate('m', NULL, ?)", REPLY), "interrupted", name="a progress handler stops it")
db.set_progress_handler(None, 0)
equal(one("SELECT waste_generate('m', NULL, '{\"tokens\":[5],\"max_tokens\":2}')"), ("",), "the next call works")


# -- timeouts
def timed(call, name):
    began = time.monotonic()
    got = call()
    took = time.monotonic() - began
    ok(0.19 < took < 0.2 + SLACK, f"{name}: in time")
    return got


def with_timeout(options):
    return json.dumps(dict(json.loads(options), timeout_ms=200))


timed(lambda: raises(lambda: one("SELECT waste_generate('m', NULL, ?)", with_timeout(REPLY)), "timeout_ms 200", "tokens",
                     name="waste_generate's error says how far it got"), "waste_generate")
timed(lambda: raises(lambda: one("SELECT waste_generate('m', NULL, ?)", with_timeout(PROMPT)), "timeout_ms 200", "0 tokens",
                     name="also in the prompt"), "waste_generate in the prompt")
reply = json.loads(timed(lambda: one("SELECT waste_generate_json('m', NULL, ?)", with_timeout(REPLY)), "waste_generate_json")[0])
equal(reply["finish_reason"], "timeout", "waste_generate_json says timeout")
ok(reply["usage"]["completion_tokens"] > 0, "and keeps what was made")
rows = timed(lambda: db.execute("SELECT n, token, finish FROM waste_tokens('m', NULL, ?)", (with_timeout(REPLY),)).fetchall(), "waste_tokens")
equal(rows[-1][1:], (None, "timeout"), "the last row carries no token and says timeout")
ok(len(rows) > 1 and all(r[1] is not None and r[2] is None for r in rows[:-1]), "the rows before it are tokens")
equal([r[0] for r in rows], list(range(1, len(rows) + 1)), "n counts on")
rows = timed(lambda: db.execute("SELECT token, finish FROM waste_tokens('m', NULL, ?)", (with_timeout(PROMPT),)).fetchall(),
             "waste_tokens in the prompt")
equal(rows, [(None, "timeout")], "a timeout in the prompt is that one row")
timed(lambda: raises(lambda: one("SELECT count(*) FROM waste_next('m', NULL, 1, ?)", with_timeout(PROMPT)), "timeout_ms 200",
                     name="waste_next: an error"), "waste_next")
equal(one("SELECT group_concat(token) FROM waste_tokens('m', NULL, '{\"tokens\":[5,6,7],\"max_tokens\":8,\"timeout_ms\":60000}')"), short,
      "a timeout that does not pass changes nothing")

# -- an interrupt while a cursor is open between rows
cursor = db.execute("SELECT n FROM waste_tokens('m', NULL, ?)", (REPLY,))
cursor.fetchone()
db.interrupt()
raises(lambda: [cursor.fetchone() for _ in range(3)], "interrupted", name="an interrupt between rows ends the statement")
cursor.close()
equal(one("SELECT group_concat(token) FROM waste_tokens('m', NULL, '{\"tokens\":[5,6,7],\"max_tokens\":8}')"), short, "the next call works")
done()
