"""Sessions and transactions: a turn is all or nothing, in the caller's transaction or in
its own; what others do meanwhile is noticed; what fails leaves nothing behind."""
import json
import os
import sqlite3
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import session as S  # noqa: E402
from session import everything, fresh, head, messages, number, one, orphans, stats, turn  # noqa: E402
from tap import connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

MODEL = cases.make("tiny-chat")


def start(db, session, text, rows=2, **options):
    """A turn that is under way: its cursor, with some tokens read."""
    c = db.execute("SELECT piece FROM waste_chat_tokens(?, ?, ?)", (session, text, json.dumps(options)))
    for _ in range(rows):
        c.fetchone()
    return c


for wal in (False, True):
    mode = "WAL" if wal else "rollback journal"
    # -- the caller's transaction
    a = fresh(f"tx{wal}.db", MODEL, {}, wal=wal)
    a.isolation_level = None
    b = connect(S.file(f"tx{wal}.db"))
    b.isolation_level = None
    alone = fresh(f"alone{wal}.db", MODEL, {})
    turn(a, "s", "Hello.")
    turn(alone, "s", "Hello.")
    before = everything(a)
    a.execute("BEGIN")
    turn(a, "s", "This is taken back.")
    ok(everything(a) != before and everything(b) == before, f"{mode}: a turn in a transaction is seen by nobody else")
    ok(a.in_transaction, f"{mode}: the transaction stays open")
    a.execute("ROLLBACK")
    equal(everything(a), before, f"{mode}: ROLLBACK takes it back")
    got = turn(a, "s", "And this stays.")
    want = turn(alone, "s", "And this stays.")
    equal([got, head(a, "s"), messages(a, "s")], [want, head(alone, "s"), messages(alone, "s")], f"{mode}: what follows knows nothing of it")
    a.execute("BEGIN")
    turn(a, "s", "One.")
    a.execute("SAVEPOINT x")
    turn(a, "s", "Two, taken back.")
    turn(a, "s", "Three, taken back.")
    a.execute("ROLLBACK TO x")
    turn(a, "s", "Two.")
    a.execute("RELEASE x")
    ok(len(messages(b, "s")) == 4, f"{mode}: not seen before COMMIT")
    a.execute("COMMIT")
    turn(alone, "s", "One.")
    turn(alone, "s", "Two.")
    equal([head(a, "s"), messages(a, "s")], [head(alone, "s"), messages(alone, "s")], f"{mode}: likewise a SAVEPOINT")
    equal([head(b, "s"), messages(b, "s")], [head(alone, "s"), messages(alone, "s")], f"{mode}: and then by all")
    equal(turn(b, "s", "From there."), turn(alone, "s", "From there."), f"{mode}: the second connection goes on")
    equal(turn(a, "s", "And back."), turn(alone, "s", "And back."), f"{mode}: and the first, which notices")
    equal(orphans(a), 0, f"{mode}: no orphans")

    # -- two at once
    before = everything(a)
    c = start(a, "s", "I am slow.")
    turn(b, number(b, "s"), "I am quick.") if wal else None
    if wal:
        raises(c.fetchall, "session 1", "changed", "nothing was written", name=f"{mode}: who comes second is told")
        equal(messages(a, "s")[-2][1], "I am quick.", f"{mode}: and the first has it")
        c = start(a, "s", "I am slow.")
        b.execute("CREATE TABLE IF NOT EXISTS notes(x)")
        b.execute("INSERT INTO notes VALUES(1)")
        ok(len(c.fetchall()) > 0, f"{mode}: others may write while a turn is streamed")
        c.close()
        equal(messages(b, "s")[-2][1], "I am slow.", f"{mode}: and the turn is written all the same")
        c = start(a, "s", "Nobody listens.")
        b.execute("DELETE FROM waste_sessions WHERE name = 's'")
        raises(c.fetchall, "session 1", "deleted", "nothing was written", name=f"{mode}: a session that is deleted in mid-turn")
        equal([x[0] for x in everything(a)], [0, 0, 0], f"{mode}: nothing comes back")
    else:
        c.close()
        equal(everything(a), before, f"{mode}: a cursor that is closed early has written nothing")
    a.close()
    b.close()
    alone.close()

# -- waste_chat holds no lock: another connection writes while it computes
db = fresh("lock.db", MODEL, {})
other = sqlite3.connect(S.file("lock.db"), timeout=0, check_same_thread=False, isolation_level=None)
other.execute("CREATE TABLE notes(x)")
written, over = [0], threading.Event()


def write():
    while not over.is_set():
        try:
            other.execute("INSERT INTO notes VALUES(1)")
            written[0] += 1
        except sqlite3.OperationalError:
            pass  # the moment in which the turn is written
        time.sleep(0.001)


t = threading.Thread(target=write, daemon=True)
t.start()

began, most = time.monotonic(), 0
for i in range(5):
    one(db, "SELECT waste_chat('s', ?)", "word " * 300)
over.set()
t.join()
ok(written[0] > 3, "others write while waste_chat computes")
equal(one(db, "SELECT count(*) FROM waste_messages"), 10, "and the turns are all there")
other.execute("BEGIN IMMEDIATE")
timer = threading.Timer(0.3, lambda: other.execute("COMMIT"))
timer.start()
equal(one(db, "SELECT waste_chat('s', 'Hi')"), "Hello, world!", "a writer who is busy for a moment is waited for")
timer.join()
# threads on two connections: one of them wins, or both in turn
errors = []


def talk(k):
    mine = connect(S.file("lock.db"))
    for i in range(4):
        try:
            one(mine, "SELECT waste_chat('s', ?)", f"{k} says {i}")
        except sqlite3.Error as e:
            errors.append(str(e))
    mine.close()


count = one(db, "SELECT count(*) FROM waste_messages")
threads = [threading.Thread(target=talk, args=(k,), daemon=True) for k in range(3)]
for t in threads:
    t.start()
for t in threads:
    t.join()
ok(all("nothing was written" in e or "locked" in e for e in errors), "of threads on one session, those who lose are told")
equal(one(db, "SELECT count(*) FROM waste_messages"), count + 2 * (12 - len(errors)), "and each of the others has its two rows")
texts = [r[0] for r in db.execute("SELECT content FROM waste_messages WHERE role = 'user' ORDER BY seq")]
alone = fresh("lock-alone.db", MODEL, {})
for text in texts:
    one(alone, "SELECT waste_chat('s', ?)", text)
equal(head(db, "s"), head(alone, "s"), "the state is that of the rows, in their order")
alone.close()
other.close()

# -- inside a statement that writes
db.execute("CREATE TABLE log(q, a)")
db.execute("INSERT INTO log(q) VALUES('First?'), ('Second?')")
db.commit()
count = one(db, "SELECT count(*) FROM waste_messages")
db.execute("UPDATE log SET a = waste_chat('s', q)")
db.commit()
equal([r[0] for r in db.execute("SELECT a FROM log")], ["Hello, world!"] * 2, "UPDATE ... SET a = waste_chat(...)")
equal(one(db, "SELECT count(*) FROM waste_messages"), count + 4, "writes the turns with it")
before = everything(db)
db.execute("UPDATE log SET a = waste_chat('s', q)")
db.rollback()
equal(everything(db), before, "and takes them back with it")
db.isolation_level = None
db.execute("INSERT INTO log SELECT 'x', waste_chat('s', 'Third?')")
ok(not db.in_transaction and len(messages(db, "s")) == count + 6, "also without a transaction around it")
equal(len(db.execute("SELECT waste_chat('s', q) FROM log").fetchall()), 3, "over the rows of a table")
equal(orphans(db), 0, "no orphans")
db.close()

# -- what fails leaves the session as it was
db = fresh("fail.db", MODEL, {"state": 2})
db.isolation_level = None
turn(db, "s", "Hello.")
before = everything(db)
pages = one(db, "PRAGMA page_count")


def full(sql, *args):
    db.execute(f"PRAGMA max_page_count = {pages + 1}")
    raises(lambda: db.execute(sql, args).fetchall(), "full", name=f"a full disk: {sql[:40]}")
    db.execute("PRAGMA max_page_count = 1073741823")
    if db.in_transaction:
        db.execute("ROLLBACK")
    equal(everything(db), before, "the session is as it was")


full("SELECT waste_chat('s', ?)", "word " * 200)
full("SELECT n FROM waste_chat_tokens('s', ?)", "word " * 200)
db.execute("BEGIN")
full("SELECT waste_chat('s', ?)", "word " * 200)
db.execute("CREATE TABLE IF NOT EXISTS log(q, a)")
pages = one(db, "PRAGMA page_count")
full("INSERT INTO log SELECT 1, waste_chat('s', ?)", "word " * 200)
equal(one(db, "SELECT waste_chat('s', 'Hi')"), "Hello, world!", "it goes on when there is room")

before = everything(db)
db.execute("PRAGMA query_only = 1")
raises(lambda: one(db, "SELECT waste_chat('s', 'Hi')"), "read-only", name="query_only")
db.execute("PRAGMA query_only = 0")
ro = sqlite3.connect(f"file:{S.file('fail.db')}?mode=ro", uri=True)
ro.enable_load_extension(True)
from tap import EXTENSION  # noqa: E402
ro.load_extension(EXTENSION)
raises(lambda: one(ro, "SELECT waste_chat('s', 'Hi')"), "database 'main' is read-only", name="a read-only database")
raises(lambda: one(ro, "SELECT waste_session('m')"), "readonly", name="a session in a read-only database")
raises(lambda: one(ro, "SELECT waste_fork('s')"), "readonly", name="a fork in one")
ro.close()
raises(lambda: one(db, "SELECT waste_chat('s', ?, '{\"timeout_ms\":1}')", "word " * 1500), "timeout_ms 1", "nothing was written", name="a timeout")
rows = db.execute("SELECT finish FROM waste_chat_tokens('s', ?, '{\"timeout_ms\":1}')", ("word " * 1500,)).fetchall()
equal(rows[-1], ("timeout",), "waste_chat_tokens says so in its last row")
equal(everything(db), before, "and neither has written anything")
for sql in ("SELECT waste_chat('s', ?)", "SELECT count(*) FROM waste_chat_tokens('s', ?)"):
    for delay in (0.0, 0.002, 0.01, 0.03):
        timer = threading.Timer(delay, db.interrupt)
        timer.start()
        try:
            while True:
                db.execute(sql, ("word " * 1000,)).fetchall()
                db.execute("DELETE FROM waste_messages WHERE seq > 3")  # it was quicker: once more
                db.execute("UPDATE waste_sessions SET state_rev = 2")
                if not timer.is_alive():
                    break
        except sqlite3.OperationalError as e:
            ok("interrupted" in str(e), f"interrupted: {sql[:30]} after {delay} s")
        timer.join()
equal(one(db, "SELECT count(*) FROM waste_messages"), 4, "nothing is left of what was interrupted")
ok(not db.in_transaction, "and no transaction is open")
equal(orphans(db), 0, "no orphans")
alone = fresh("fail-alone.db", MODEL, {"state": 2})
for text in ("Hello.", "Hi", "And on."):
    want = turn(alone, "s", text, max_tokens=256)
equal([turn(db, "s", "And on.", max_tokens=256), head(db, "s")], [want, head(alone, "s")], "the session is usable, and as it was")
alone.close()

# -- a TEMP table that stands in the way, a trigger that refuses
db.execute("CREATE TRIGGER no AFTER INSERT ON waste_messages WHEN NEW.role = 'assistant' BEGIN SELECT RAISE(ABORT, 'not today'); END")
before = everything(db)
raises(lambda: one(db, "SELECT waste_chat('s', 'Hi')"), "not today", name="a trigger of the application refuses")
equal(everything(db), before, "then all of the turn is undone")
raises(lambda: db.execute("INSERT INTO log SELECT 1, waste_chat('s', 'Hi')"), "not today", name="also inside a statement that writes")
equal(everything(db), before, "and there")
db.execute("INSERT INTO log(q) VALUES('Hi')")
db.execute("BEGIN")
for sql in ("INSERT INTO log SELECT 1, waste_chat('s', 'Hi')", "UPDATE log SET a = waste_chat('s', 'Hi')", "INSERT INTO log VALUES(1, waste_chat('s', 'Hi'))",
            "DELETE FROM log WHERE waste_chat('s', 'Hi') = ''"):
    raises(lambda: db.execute(sql), "not today", name=f"in a transaction: {sql[:20]}")
    equal(everything(db), before, "all of it is undone there, too")
db.execute("COMMIT")
equal(everything(db), before, "and so it stays")
db.execute("DROP TRIGGER no")
equal(one(db, "SELECT waste_chat('s', 'Hi')"), "Hello, world!", "without it all is well")
db.close()
done()
