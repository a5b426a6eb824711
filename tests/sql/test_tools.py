"""Tool calls the whole way: declared tools, a model that calls one, the call as a row, its
result as a turn, the answer to it; in a session and without one."""
import json
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "lib"), TESTS]
from session import fresh, head, messages, number, one, process, stats, turn  # noqa: E402
from tap import done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

MODEL = cases.make("tiny-tool")
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
CALL = [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}]
db = fresh("tools.db", MODEL, {"tools": TOOLS, "thinking": False})


def last(db, session="s"):
    r = db.execute("SELECT role, content, reasoning, tool_calls, finish FROM waste_messages WHERE session = ? ORDER BY seq DESC LIMIT 1",
                   (number(db, session),)).fetchone()
    return r[:3] + (r[3] and json.loads(r[3]), r[4])


def stateless(said, **options):
    return json.loads(one(db, "SELECT waste_chat_json('m', ?, ?)", json.dumps(said), json.dumps(dict({"tools": TOOLS, "thinking": False}, **options))))


# -- a session: question, call, result, answer, question, call
equal(one(db, "SELECT waste_chat('s', 'What is the weather?')"), "", "a call is no text")
equal(last(db), ("assistant", "", None, CALL, "tool_calls"), "it is in the row, as OpenAI has it")
equal(one(db, "SELECT tool_calls ->> '$[0].function.arguments' ->> 'city' FROM waste_messages WHERE tool_calls IS NOT NULL"), "Paris", "for SQL to look into")
known = one(db, "SELECT n_tokens FROM waste_sessions")
equal(one(db, "SELECT waste_chat('s', 'sunny', '{\"tool_call_id\":\"call_1\"}')"), "It is sunny!", "the result is the next turn, and answered")
equal(db.execute("SELECT role, content, tool_call_id FROM waste_messages WHERE seq = 2").fetchone(), ("tool", "sunny", "call_1"), "with its call's id")
equal(stats(db, "s")["reused"], known, "the call itself is not computed again")
equal(last(db), ("assistant", "It is sunny!", None, None, "stop"), "an answer without calls")
one(db, "SELECT waste_chat('s', 'And what is the weather now?')")
equal(last(db), ("assistant", "", None, CALL, "tool_calls"), "asked again, it calls again")

# -- without a session: the same, and the same prompt
said = [{"role": "user", "content": "What is the weather?"}]
r = stateless(said)
equal([r["content"], r["tool_calls"], r["finish_reason"]], [None, CALL, "tool_calls"], "waste_chat_json: the call")
said += [r, {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
r = stateless(said)
equal([r["content"], r.get("tool_calls"), r["finish_reason"]], ["It is sunny!", None, "stop"], "waste_chat_json: the answer")
said += [r, {"role": "user", "content": "And what is the weather now?"}]
r = stateless(said)
equal([r["tool_calls"], r["finish_reason"]], [CALL, "tool_calls"], "waste_chat_json: the next call")
ids = []
for g in json.loads(one(db, "SELECT waste_render('m', ?, ?)", json.dumps(said), json.dumps({"tools": TOOLS, "thinking": False}))):
    ids += json.loads(one(db, "SELECT waste_tokenize('m', ?, json_object('markup', json(?)))", g["text"], "true" if g["markup"] else "false"))
blob = b"".join(t for _, _, t in messages(db, "s"))
stored = [int.from_bytes(blob[i:i + 4], "little") for i in range(0, len(blob), 4)]
texts = [one(db, "SELECT waste_detokenize('m', ?)", json.dumps(x)) for x in (ids, stored)]
ok(texts[1].startswith(texts[0]), "the session's text is that of rendering it: a call read back is the call that was written")

# -- thinking before the call, and a limit on it
one(db, "SELECT waste_session('m', 'thinker', ?)", json.dumps({"tools": TOOLS, "thinking": True}))
one(db, "SELECT waste_chat('thinker', 'What is the weather?')")
equal(last(db, "thinker"), ("assistant", "", "Look it up with a tool.", CALL, "tool_calls"), "it thinks, then calls")
one(db, "SELECT waste_chat('thinker', 'sunny', '{\"tool_call_id\":\"call_1\",\"max_thinking_tokens\":1}')")
equal(last(db, "thinker"), ("assistant", "It is sunny!", "Look", None, "stop"), "a limit on thinking leaves the answer")

# -- token by token
table = db.execute("SELECT region, finish FROM waste_chat_tokens('s', 'What is the weather?')").fetchall()
ok({"tools", "markup"} == {r[0] for r in table} and table[-1][1] == "stop", "regions say what is a call")

# -- cut off in the call: what there is is stored, and the conversation can go on
n = one(db, "SELECT json_extract(stats, '$.completion_tokens') FROM waste_messages WHERE seq = 1 AND session = ?", number(db, "s"))
for limit in range(1, n):
    d = fresh(f"cut{limit}.db", MODEL, {"tools": TOOLS})
    one(d, "SELECT waste_chat('s', 'What is the weather?', json_object('max_tokens', ?))", limit)
    got = last(d)
    ok(got[4] == ("tool_calls" if got[3] else "length") and (not got[3] or json.loads(got[3][0]["function"]["arguments"]) in ({}, {"city": ""}, {"city": "Paris"})),
       f"cut after {limit} of {n} tokens: a call or none, its arguments are JSON")
    one(d, "SELECT waste_chat('s', 'sunny')")
    equal(last(d)[1], "It is sunny!", f"cut after {limit}: it goes on")
    d.close()

# -- results without an id, and one that no call wants
one(db, "SELECT waste_session('m', 'noid', ?)", json.dumps({"tools": TOOLS}))
one(db, "SELECT waste_chat('noid', 'What is the weather?')")
equal(one(db, "SELECT waste_chat('noid', 'sunny', '{\"role\":\"tool\"}')"), "It is sunny!", "a result without an id goes to the call in its place")
raises(lambda: one(db, "SELECT waste_chat('noid', 'sunny', '{\"role\":\"tool\"}')"), "tool", name="a result where no call is")

# -- from rows, in another process, and in a fork at the call
db.commit()
one(db, "SELECT waste_fork('thinker', 'other', '{\"at\":1}')")
db.commit()
got = process("tools.db", "one(db, \"SELECT waste_chat('other', 'sunny', '{\\\"tool_call_id\\\":\\\"call_1\\\"}')\"); print(json.dumps([messages(db, 'other')[-1][1], stats(db, 'other')['source']]))")
equal(got[0], "It is sunny!", "a fork at the call takes the result in another process")
done()
