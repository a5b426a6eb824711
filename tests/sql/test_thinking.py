"""max_thinking_tokens: the reasoning channel is closed when it has had its share, by tokens
that are the reply's like all others: stored, counted, and what a later step goes on from."""
import json
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "lib"), TESTS]
import demo  # noqa: E402
import session as S  # noqa: E402
from session import fresh, head, messages, number, one, process, stats  # noqa: E402
from tap import connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

TOOL, PLAIN, TEXT, DEMO = cases.make("tiny-tool"), cases.make("tiny-plain"), cases.make("tiny-text"), demo.container()
THOUGHT = "Look it up with a tool."
db = connect()
db.execute("SELECT waste_setup()")
for name, path in (("m", TOOL), ("plain", PLAIN), ("text", TEXT), ("demo", DEMO)):
    db.execute("INSERT INTO waste_models(name, path) VALUES(?, ?)", (name, path))


def generate(model, prompt, **options):
    return json.loads(one(db, "SELECT waste_generate_json(?, ?, ?)", model, prompt, json.dumps(options)))


def tokens(model, prompt, **options):
    return db.execute("SELECT token, piece, reasoning, region, logprob, finish FROM waste_tokens(?, ?, ?)",
                      (model, prompt, json.dumps(options))).fetchall()


def usage(r):
    return [r["usage"][k] for k in ("reasoning_tokens", "forced_tokens", "completion_tokens")]


# -- what the model does unasked: seven tokens of reasoning, six of markup, an answer
free = tokens("m", "sunny", thinking=True)
equal("".join(t[2] for t in free), THOUGHT, "it thinks")
equal("".join(t[1] for t in free), "It is sunny!", "and answers")
ids = [t[0] for t in free]
answer = ids[13:]

# -- every limit
for n in range(9):
    got = tokens("m", "sunny", thinking=True, max_thinking_tokens=n)
    equal([t[0] for t in got], ids[:min(n, 7)] + ids[7:13] + answer, f"limit {n}: reasoning, its end, the answer")
    equal([t[3] for t in got], ["reasoning"] * min(n, 7) + ["markup"] * 6 + [t[3] for t in free[13:]], f"limit {n}: regions")
    equal([t[4] is None for t in got[min(n, 7):]][:6], [n <= 7] * 6, f"limit {n}: what was put in has no probability")
    r = generate("m", "sunny", thinking=True, max_thinking_tokens=n)
    equal(usage(r), [min(n, 7), 6 if n <= 7 else 0, len(got)], f"limit {n}: usage")
    equal([r["text"], (r["reasoning"] or ""), r["finish_reason"]], ["It is sunny!", "".join(t[2] for t in free[:n]), "stop"], f"limit {n}: the texts")
equal(tokens("m", "sunny", thinking=False, max_thinking_tokens=0), tokens("m", "sunny"), "who does not think needs no limit")
r = generate("m", "sunny", thinking=True, max_thinking_tokens=2, logprobs=1)
equal([[p["logprob"], p["top"]] for p in r["logprobs"][2:8]], [[None, []]] * 6, "logprobs say so too")

# -- with other limits
for n in range(2, 9):
    r = generate("m", "sunny", thinking=True, max_thinking_tokens=2, max_tokens=n)
    equal([r["text"], r["finish_reason"], usage(r)], ["", "length", [2, n - 2, n]], f"max_tokens {n} holds for what is put in")
r = generate("m", "sunny", thinking=True, max_thinking_tokens=2, stop=[" up", " is"])
equal([r["text"], r["reasoning"], r["finish_reason"]], ["It", "Look it", "stop"], "stop strings are for the answer")
equal(one(db, "SELECT group_concat(piece, '') FROM (SELECT piece FROM waste_tokens('m', 'sunny', '{\"thinking\":true,\"max_thinking_tokens\":0}') LIMIT 8)"),
      "It is", "LIMIT stops at any token")
batch = db.execute("SELECT key, text, tokens FROM waste_batch('m', 'WITH n(i) AS (VALUES(0) UNION ALL SELECT i + 1 FROM n WHERE i < 8) "
                   "SELECT i, ''sunny'', json_object(''max_thinking_tokens'', i) FROM n', '{\"thinking\":true}') ORDER BY key").fetchall()
equal(batch, [(n, "It is sunny!", len(ids[:min(n, 7)] + ids[7:13] + answer)) for n in range(9)], "in a batch, as alone")

# -- errors
for model, options, words in (("plain", {}, ["max_thinking_tokens is 3", "chat.json"]), ("text", {}, ["max_thinking_tokens", "chat format"]),
                              ("m", {"raw": True}, ["max_thinking_tokens", "no chat turn"])):
    raises(lambda: generate(model, "Hi", max_thinking_tokens=3, **options), *words, name=f"{model} {options}: no such channel")
for bad in (-1, 1.5, "many"):
    raises(lambda: generate("m", "Hi", max_thinking_tokens=bad), "max_thinking_tokens", "0", name=f"{bad} is no limit")
raises(lambda: one(db, "SELECT waste_render('m', '[]', '{\"max_thinking_tokens\":1}')"), "max_thinking_tokens", name="it is no matter of the prompt")

# -- waste_chat_json
said = json.dumps([{"role": "user", "content": "sunny"}])
r = json.loads(one(db, "SELECT waste_chat_json('m', ?, '{\"max_thinking_tokens\":3}')", said))
equal([r["content"], r["reasoning_content"], r["usage"]["completion_tokens_details"]], ["It is sunny!", "Look it up", {"reasoning_tokens": 3, "forced_tokens": 6}], "as a message")

# -- a real state: after the forced tokens the model stands where the tokens alone lead to
prompt = "What is the capital of Italy?"
got = tokens("demo", prompt, thinking=True, max_thinking_tokens=0, max_tokens=12)
segments = json.loads(one(db, "SELECT waste_render('demo', ?)", json.dumps([{"role": "user", "content": prompt}])))
before = []
for s in segments:
    before += json.loads(one(db, "SELECT waste_tokenize('demo', ?, json_object('markup', json(?)))", s["text"], "true" if s["markup"] else "false"))
n = sum(t[4] is None for t in got)
ok(n >= 6 and all(t[4] is None for t in got[:n]), "its end is put in, word by word")
for k in range(n, len(got)):
    token, logprob = one(db, "SELECT token || ' ' || format('%!.17g', logprob) FROM waste_next('demo', NULL, 1, json_object('tokens', json(?)))",
                         json.dumps(before + [t[0] for t in got[:k]])).split()
    equal([int(token), float(logprob)], [got[k][0], got[k][4]], f"token {k} is the one that follows these ids, bit for bit")

# -- sessions: what is stored is what the model has seen, whatever cut the reply
full = [t[0] for t in tokens("m", "sunny", thinking=True, max_thinking_tokens=2)]
for limit in range(1, 16):
    d = fresh(f"cut{limit}.db", TOOL, {"thinking": True, "max_thinking_tokens": 2})
    one(d, "SELECT waste_chat('s', 'sunny', json_object('max_tokens', ?))", limit)
    blob = messages(d, "s")[1][2]
    stored = [int.from_bytes(blob[i:i + 4], "little") for i in range(0, len(blob), 4)]
    whole = full[:limit] if limit < 2 else full[:max(limit, 8)]
    ok(any(stored[i:i + len(whole)] == whole for i in range(len(stored))), f"max_tokens {limit}: the end of thinking is whole")
    equal([stats(d, "s")[k] for k in ("reasoning_tokens", "forced_tokens")], [min(limit, 2), max(0, min(limit - 2, 6))], f"max_tokens {limit}: counted")
    one(d, "SELECT waste_chat('s', 'sunny')")
    want = [messages(d, "s"), head(d, "s")]
    equal(stats(d, "s")["reused"], one(d, "SELECT sum(n_tokens) FROM waste_messages WHERE seq < 2"), f"max_tokens {limit}: the next turn goes on from there")
    f = fresh(f"again{limit}.db", TOOL, {"thinking": True, "max_thinking_tokens": 2})
    for seq, (role, content, toks) in enumerate(want[0][:2]):
        f.execute("INSERT INTO waste_messages(session, seq, role, content, tokens, n_tokens, tokens_sum) VALUES(1, ?, ?, ?, ?, ?, ?)",
                  (seq, role, content, toks, len(toks) // 4, one(d, "SELECT tokens_sum FROM waste_messages WHERE seq = ?", seq)))
    f.commit()
    one(f, "SELECT waste_chat('s', 'sunny')")
    equal([messages(f, "s"), head(f, "s")], want, f"max_tokens {limit}: its state is that of its tokens")
    f.close()
    d.close()
d = fresh("rows.db", TOOL, {"thinking": True, "max_thinking_tokens": 1})
one(d, "SELECT waste_chat('s', 'sunny')")
equal(d.execute("SELECT content, reasoning FROM waste_messages WHERE role = 'assistant'").fetchall(), [("It is sunny!", "Look")], "both texts are in the row")
one(d, "SELECT waste_chat('s', 'sunny', '{\"max_thinking_tokens\":4}')")
equal(one(d, "SELECT reasoning FROM waste_messages ORDER BY seq DESC LIMIT 1"), "Look it up with", "a turn's limit over the session's")
d.commit()
d.close()
again = process("rows.db", "one(db, \"SELECT waste_chat('s', 'sunny')\"); print(json.dumps(stats(db, 's')))")
equal([again["source"], again["rejected"], again["forced_tokens"]], ["rows", 0, 6], "from rows in another process")
d = fresh("plain.db", PLAIN, {"max_thinking_tokens": 3})
raises(lambda: one(d, "SELECT waste_chat('s', 'Hi')"), "max_thinking_tokens", "chat.json", name="a session of a format without thoughts")
equal(one(d, "SELECT count(*) FROM waste_messages"), 0, "writes nothing")
done()
