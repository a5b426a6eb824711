"""A thousand sessions in one file, far more than memory holds, touched at random: memory
stays within the budget, what has no room comes back from rows, and each is what it would
be alone."""
import json
import os
import random
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "lib"), TESTS]
from session import WORDS, file, fresh, head, messages, one, orphans, stats  # noqa: E402
from tap import SANITIZED, connect, done, equal, ok  # noqa: E402
from tiny import cases  # noqa: E402

MODEL = cases.make("tiny-chat")
N = 60 if SANITIZED else 1000
BRIEF = '{"max_tokens":2}'
db = connect(file("many.db"))
floor = one(db, "SELECT value FROM waste_plan(?, '{\"context\":512}') WHERE part = 'floor'", MODEL)
budget = int(floor + 200000)
one(db, "SELECT waste_register('tight', ?, ?)", MODEL, json.dumps({"context": 512, "budget": budget}))
db.execute("PRAGMA synchronous = OFF")
for i in range(N):
    one(db, "SELECT waste_session('tight')")
db.commit()

# each once, then as many again with repetitions; a transaction holds some of them
draw = random.Random(1)
touched = draw.sample(range(1, N + 1), N) + draw.choices(range(1, N + 1), k=N)
most, sources, rejected = 0, {}, 0
for i, n in enumerate(touched):
    if i % 50 == 0:
        db.commit()
        db.execute("BEGIN")
    one(db, "SELECT waste_chat(?, ?, ?)", n, WORDS[(n + i) % len(WORDS)], BRIEF)
    s = stats(db, n)
    sources[s["source"]] = sources.get(s["source"], 0) + 1
    rejected += s["rejected"]
    if i % 20 == 0:
        most = max(most, one(db, "SELECT memory_bytes FROM waste_stats"))
db.commit()
ok(most <= budget, f"{N} sessions at random: at most {most} bytes of {budget}")
equal([rejected, sources["none"]], [0, N], "each is computed from nothing once, never again")
ok(sources.get("rows", 0) > N // 4, f"what memory had no room for came from rows: {sources}")
equal(one(db, "SELECT count(DISTINCT session) FROM waste_messages"), N, "all have their messages")
equal(orphans(db), 0, "and no state is nobody's")
often = [r[0] for r in db.execute("SELECT session FROM waste_messages GROUP BY 1 ORDER BY count(*) DESC, session LIMIT 3")]
for n in dict.fromkeys(often + [touched[0], touched[-1]]):
    alone = fresh(f"alone{n}.db", MODEL, {})
    for text, in db.execute("SELECT content FROM waste_messages WHERE session = ? AND role = 'user' ORDER BY seq", (n,)).fetchall():
        one(alone, "SELECT waste_chat('s', ?, ?)", text, BRIEF)
    equal([messages(alone, "s"), head(alone, "s")], [messages(db, n), head(db, n)], f"session {n} is what it would be alone, to the bit")
    alone.close()
db.close()
done()
