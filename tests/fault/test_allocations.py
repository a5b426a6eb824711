"""Memory that runs out in the loaded extension, at each of its allocations in turn,
once or from then on: while a model is opened, reads its prompt, writes its reply, is
asked for its statistics and is closed. Each statement ends in an error, or does no
harm; the next call works; and nothing more is held.

Opening reads the manifest and the tokenizer in thousands of small pieces; of those
that are alike a sample fails, or with the argument --all each."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from fault.shim import start  # noqa: E402
from lib import tap  # noqa: E402
from lib.tap import connect, done, equal, ok  # noqa: E402
from tiny import cases  # noqa: E402

if tap.SANITIZED:  # tests/unit/test_fault_memory.c is the engine's part of this, leaks included
    tap.skip_all("a sanitizer's own allocator takes the place of the one that fails on demand")
shim = start()
PATH = cases.make("tiny-chat")
OPTIONS = json.dumps({"context": 300, "verify": True})
FIRST, LAST, STRIDE = 50, 150, 41  # of many allocations each of these fails, and between them one in so many
ANSWER = "Hello, world!"


def rows(db, sql, *args):
    return db.execute(sql, args).fetchall()


def answer(db):
    return rows(db, "SELECT waste_generate(?, 'Hi')", PATH)


def opened():
    db = connect()
    rows(db, "SELECT waste_open(?, ?)", PATH, OPTIONS)
    return db


def held():
    """Bytes of the extension with the model open and idle, and descriptors."""
    db = opened()
    answer(db)
    n = rows(db, "SELECT memory_bytes FROM waste_stats")[0][0]
    rows(db, "SELECT waste_close(?)", PATH)
    left = rows(db, "SELECT count(*) FROM waste_stats")[0][0]
    db.close()
    return n, left, len(os.listdir("/proc/self/fd"))


def explained(e):
    text = str(e).lower()
    return "memory" in text or isinstance(e, MemoryError)


def chosen(total):
    """Which allocations fail in turn; the last of them is one that nobody asks for."""
    middle = range(FIRST, total - LAST, 1 if "--all" in sys.argv else STRIDE)
    return sorted({*range(1, min(FIRST, total) + 1), *middle, *range(max(1, total - LAST), total + 2)})


def each(name, prepare, call, stay):
    """call(db) after prepare() with one allocation failing."""
    before = held()
    with_all = prepare()
    if not shim.memory(0):
        tap.skip_all("the extension was not found among the loaded libraries")
    want = call(with_all)
    total = shim.allocations()
    with_all.close()
    failed, tried, problems = 0, chosen(total), []
    for n in tried:
        db = prepare()
        shim.memory(n, stay)
        try:
            got = call(db)
            if got != want:
                problems.append((n, got))
        except Exception as e:  # noqa: BLE001
            failed += 1
            if n > total or not explained(e):
                problems.append((n, f"{type(e).__name__}: {e}"))
        shim.off()
        try:
            if answer(db) != [(ANSWER,)]:
                problems.append((n, "the next call gives something else"))
        except Exception as e:  # noqa: BLE001
            problems.append((n, "the next call", str(e)))
        db.close()
    equal(problems[:5], [], f"{name}, {'from then on' if stay else 'once'}: {len(tried)} of {total} allocations, {failed} errors, and {ANSWER} after each")
    equal(held(), before, f"{name}: nothing more is held")
    ok(total and failed > total // 60, f"{name}: which were asked for")


def decode(db):
    cursor = db.execute("SELECT piece FROM waste_tokens(?, 'Hi')", (PATH,))
    return [cursor.fetchone()] + cursor.fetchall()


ONCE, ON, BOTH = (False,), (True,), (False, True)
STEPS = (
    ("opening", connect, lambda db: rows(db, "SELECT waste_open(?, ?) ->> 'cache_slots' > 0", PATH, OPTIONS), BOTH),
    ("opening and answering", connect, answer, BOTH if "--all" in sys.argv else ()),
    ("answering", opened, answer, BOTH),
    ("answering token by token", opened, decode, ON),
    ("answering in JSON", opened, lambda db: json.loads(rows(db, "SELECT waste_generate_json(?, 'Hi')", PATH)[0][0])["text"], ONCE),
    ("calibrating", opened, lambda db: rows(db, "SELECT waste_calibrate(?, 'Hi') ->> 'tokens'", PATH), BOTH),
    ("the statistics", opened, lambda db: rows(db, "SELECT path FROM waste_stats"), BOTH),
    ("closing", opened, lambda db: rows(db, "SELECT waste_close(?)", PATH), BOTH),
)
conn = opened()
equal(answer(conn), [(ANSWER,)], "without faults")
conn.close()
for step, ready, do, ways in STEPS:
    for stays in ways:
        each(step, ready, do, stays)
done()
