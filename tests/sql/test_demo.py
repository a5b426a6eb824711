"""The demo model through SQL: exact answers per skill on the held-out questions, as many as with the greedy encoder at least,
ten greedy texts that must not change, and the prompt as the format defines it.

WASTE_DEMO_REGENERATE=1 rewrites tests/golden/demo_greedy.json.
"""
import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import demo  # noqa: E402
from tap import ROOT, SANITIZED, connect, done, equal, ok, skip  # noqa: E402

GOLDEN = os.path.join(ROOT, "tests", "golden", "demo_greedy.json")
db = connect()
db.execute("SELECT waste_register('demo', ?)", (demo.container(),))

# -- a single turn's prompt is the four-segments-per-attribute rendering
one = [{"role": "user", "content": "What is the capital of Italy?"}]
ids = demo.prompt_tokens(db, "demo", one)
by_tokens = json.loads(db.execute(
    "SELECT waste_generate_json('demo', NULL, json_object('tokens', json(?), 'stop', '<|close|>'))",
    (json.dumps(ids),)).fetchone()[0])
by_text = json.loads(db.execute("SELECT waste_generate_json('demo', ?)", (one[0]["content"],)).fetchone()[0])
equal(by_text["text"], "The capital of Italy is **Rome**.", "the capital of Italy is Rome")
equal(by_tokens["text"], by_text["text"], "ids built by hand give the same answer")
equal(by_text["usage"]["prompt_tokens"], len(ids), "and are as many as the rendered prompt")

# -- what a limit cuts off in the middle of markup is no text
def cut(sql, n, **options):
    return db.execute(sql, (one[0]["content"], json.dumps(dict(options, max_tokens=n)))).fetchone()


shown, left = set(), []
for thinking in (False, True):
    for n in range(1, 25):
        text, = cut("SELECT waste_generate('demo', ?, ?)", n, thinking=thinking)
        whole = json.loads(cut("SELECT waste_generate_json('demo', ?, ?)", n, thinking=thinking)[0])
        pieces = cut("SELECT group_concat(piece, ''), group_concat(reasoning, ''), max(finish) FROM waste_tokens('demo', ?, ?)", n, thinking=thinking)
        if (whole["text"], pieces[0]) != (text, text) or (whole["reasoning"] or "") != pieces[1] or whole["finish_reason"] != pieces[2]:
            left.append((n, text, whole, pieces))
        shown |= {text, pieces[1]}
equal([s for s in shown if "<|" in s or "response" in s or "message" in s], [], "no marker and no name of an element, wherever max_tokens falls")
equal(left, [], "and text, JSON and rows agree")
ok("The capital of Italy is **Rome**." in shown, "the whole answer is among them")

# -- golden greedy texts
questions = [r["messages"][0]["content"] for r in demo.rows() if len(r["messages"]) == 1][::30][:10]
answers = {q: db.execute("SELECT waste_generate('demo', ?)", (q,)).fetchone()[0] for q in questions}
if os.environ.get("WASTE_DEMO_REGENERATE"):
    with open(GOLDEN, "w", encoding="utf-8") as f:
        json.dump(answers, f, indent=1, ensure_ascii=False)
        f.write("\n")
with open(GOLDEN, encoding="utf-8") as f:
    golden = json.load(f)
equal(len(golden), 10, "ten golden prompts")
for q, a in golden.items():
    equal(answers.get(q), a, f"golden: {q}")

# -- exact answers per skill
step = 13 if SANITIZED else 1
right = demo.exact(db, "demo", demo.rows()[::step])
for skill, v in sorted(right.items()):
    print(f"# {skill:12s} {sum(v)}/{len(v)} = {sum(v) / len(v):.3f}", flush=True)
    if step == 1:
        ok(sum(v) / len(v) >= 0.93, f"skill {skill}: at least 0.93 of answers exact")
every = sum(right.values(), [])
print(f"# {'all':12s} {sum(every)}/{len(every)} = {sum(every) / len(every):.3f}", flush=True)
ok(sum(every) / len(every) >= 0.95, "at least 0.95 of all answers exact")

# -- none of which the greedy encoder would have saved, whose experts are further off
if SANITIZED:
    skip("the same code, slowly", "against a conversion with effort fast", 2)
else:
    errors = {}
    for effort in ("fast", "default"):
        errors[effort] = [e for r in db.execute("SELECT gate, up, down FROM waste_verify(?, ?) WHERE part = 'record'",
                                                (demo.container(effort), demo.CHECKPOINT)) for e in r]
    off = {effort: math.sqrt(sum(e * e for e in v) / len(v)) for effort, v in errors.items()}
    ok(len(errors["default"]) == 3 * 7 * 32 and all(d < 0.9 * g for d, g in zip(errors["default"], errors["fast"])),
       f"each of {len(errors['default'])} expert matrices loses less by default ({off['default']:.4f}) than greedily ({off['fast']:.4f})")
    db.execute("SELECT waste_register('greedy', ?)", (demo.container("fast"),))
    greedy = demo.exact(db, "greedy", demo.rows())
    equal(sorted(greedy), sorted(right), "the same skills")
    for skill, v in sorted(right.items()):
        ok(sum(v) >= sum(greedy[skill]), f"skill {skill}: {sum(v)} answers are exact, greedily {sum(greedy[skill])}, of {len(v)}")
done()
