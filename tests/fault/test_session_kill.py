"""kill -9 in the middle of turns: the session is as it was before the turn, or as it is
after it, and goes on from there like a run that nobody killed."""
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from session import file, fresh, head, messages, one, orphans, stats, turn  # noqa: E402
from tap import ROOT, SANITIZED, connect, done, equal, ok  # noqa: E402
from tiny import cases  # noqa: E402

MODEL = cases.make("tiny-chat")
KILLS = 20 if SANITIZED else 100
TALK = f"""
import sys
import time
sys.path[:0] = [{os.path.join(ROOT, 'tests', 'lib')!r}]
from session import *
db = connect(sys.argv[1])
i = int(sys.argv[2])
print("ready", flush=True)
for i in range(i, i + 8):  # a few, so that a fast machine does not fill the context
    one(db, "SELECT waste_chat('s', ?)", f"Turn {{i}} of many.")
    print(i, flush=True)
time.sleep(60)
"""


def run(name, wal):
    """Kills a process that talks, again and again; what is wrong afterwards."""
    fresh(name, MODEL, {}, wal=wal).close()
    rng, wrong, turns = random.Random(7), [], 0
    for k in range(KILLS // 2):
        p = subprocess.Popen([sys.executable, "-c", TALK, file(name), str(turns)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.readline()
        if not turns:
            p.stdout.readline()  # one turn at least, however slow the machine
        time.sleep(rng.uniform(0, 0.5 if SANITIZED else 0.04))
        p.send_signal(signal.SIGKILL)
        p.communicate()
        db = sqlite3.connect(file(name))  # recovers what the crash left
        rows = db.execute("SELECT seq, role, content, tokens IS NOT NULL, span IS NOT NULL FROM waste_messages ORDER BY seq").fetchall()
        turns = len(rows) // 2
        if [r[0] for r in rows] != list(range(2 * turns)) or [r[1] for r in rows] != ["user", "assistant"] * turns:
            wrong.append(f"kill {k}: half a turn: {rows[-2:]}")
        if [r[2] for r in rows[::2]] != [f"Turn {i} of many." for i in range(turns)] or not all(r[3] and r[4] for r in rows):
            wrong.append(f"kill {k}: wrong rows")
        if turns and orphans(db):
            wrong.append(f"kill {k}: orphans")
        rev, n = db.execute("SELECT state_rev, n_tokens FROM waste_sessions").fetchone()
        if rev != turns or n != one(db, "SELECT coalesce(sum(n_tokens), 0) FROM waste_messages"):
            wrong.append(f"kill {k}: the session's row says {rev}, {n}")
        db.close()
        if n > 2800:
            break
    return wrong, turns


for wal in (False, True):
    how = "WAL" if wal else "rollback journal"
    name = f"kill{wal}.db"
    wrong, turns = run(name, wal)
    equal(wrong, [], f"{how}: after every kill the rows are those of whole turns")
    ok(turns > 0, f"{how}: {turns} turns came to their end")
    db = connect(file(name))
    equal(one(db, "PRAGMA integrity_check"), "ok", f"{how}: the database is sound")
    got = [head(db, "s"), messages(db, "s"), turn(db, "s", "Still there?")]
    equal([stats(db, "s")[k] for k in ("source", "rejected")], ["rows", 0], f"{how}: it goes on from its rows")
    alone = fresh(f"kill-alone{wal}.db", MODEL, {})
    for i in range(turns):
        one(alone, "SELECT waste_chat('s', ?)", f"Turn {i} of many.")
    equal(got[:2], [head(alone, "s"), messages(alone, "s")], f"{how}: the session is what nobody killed")
    equal(got[2], turn(alone, "s", "Still there?"), f"{how}: and so is what follows")
    db.close()
    alone.close()
done()
