"""Prompts that begin alike: what was computed once is taken over, counted, the same
bit for bit, and can be turned off."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import demo  # noqa: E402
from tap import connect, done, equal, ok  # noqa: E402

DEMO = demo.container()
SYSTEM = "You answer questions about reviews and nothing else. " * 4
prompts = [r["messages"][0]["content"] for r in demo.rows() if len(r["messages"]) == 1][::9][:30]
db = connect()
db.execute("SELECT waste_register('demo', ?)", (DEMO,))


def rows(sql, *args):
    return db.execute(sql, args).fetchall()


def ask(prompt, **options):
    r = json.loads(rows("SELECT waste_generate_json('demo', ?, ?)", prompt, json.dumps(dict({"max_tokens": 12, "logprobs": 3}, **options)))[0][0])
    return (r["text"], r["logprobs"]), r["usage"]


def stats():
    return rows("SELECT tokens, reused_tokens, prefixes FROM waste_stats")[0]


without = [ask(p, system=SYSTEM, prefix_cache=False) for p in prompts]
equal({u["reused_tokens"] for _, u in without}, {0}, "turned off: nothing is taken over")
equal(stats()[1:], (0, 0), "and nothing kept")
before = stats()
with_it = [ask(p, system=SYSTEM) for p in prompts]
equal([r for r, _ in with_it], [r for r, _ in without], "the same texts and log-probabilities")
reused = [u["reused_tokens"] for _, u in with_it]
equal(reused[:2], [0, 0], "the first two prompts are computed")
ok(min(reused[2:]) > 40, "from the third on the system text is there")
ok(all(u["reused_tokens"] < u["prompt_tokens"] for _, u in with_it), "never the last token")
after = stats()
equal(after[1] - before[1], sum(reused), "waste_stats counts them")
ok(after[2] >= 1, "and what is kept")
asked = sum(u["prompt_tokens"] - u["reused_tokens"] + u["completion_tokens"] - 1 for _, u in with_it)
ok(after[0] - before[0] <= asked, "the rest is all that was computed")

# -- a table of prompts, in one batch and in many
db.execute("CREATE TABLE p(id INTEGER PRIMARY KEY, prompt TEXT)")
db.executemany("INSERT INTO p(prompt) VALUES (?)", [("Classify the sentiment of the following text, with one word: " + p,) for p in prompts])
off = dict(rows("SELECT key, text FROM waste_batch('demo', 'SELECT id, prompt FROM p', '{\"max_tokens\":12,\"prefix_cache\":false}')"))
for parallel in (1, 4, 64):
    got = rows("SELECT key, text, reused_tokens FROM waste_batch('demo', 'SELECT id, prompt FROM p', ?)", json.dumps({"max_tokens": 12, "parallel": parallel}))
    equal({k: t for k, t, n in got}, off, f"{parallel} at a time: the same texts")
    ok(sum(n for k, t, n in got) > 15 * len(got) // 2, f"{parallel} at a time: much is taken over")
equal(rows("SELECT sum(reused_tokens) FROM waste_batch('demo', 'SELECT id, prompt FROM p', '{\"max_tokens\":2,\"prefix_cache\":false}')")[0][0], 0, "off again")

# -- many different beginnings: the budget and a number are the bounds
for i in range(60):
    for j in range(2):
        ask(f"{i} " * 20 + f"and {j}", max_tokens=1)
ok(1 <= stats()[2] <= 32, "no more than 32 are kept")
ok(rows("SELECT memory_bytes <= budget_bytes OR budget_bytes > 0 FROM waste_stats")[0][0], "within the budget")
floor = rows("SELECT value FROM waste_plan('demo') WHERE part = 'floor'")[0][0]
rows("SELECT waste_close('demo')")
tight = json.dumps({"budget": int(floor)})
rows("SELECT waste_open('demo', ?)", tight)
equal([ask(p, system=SYSTEM)[0] for p in prompts[:6]], [r for r, _ in without[:6]], "at the floor, too")
ok(rows("SELECT memory_bytes <= budget_bytes FROM waste_stats")[0][0], "which holds")
done()
