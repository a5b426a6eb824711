"""waste_render and waste_chat_json: conversations in the OpenAI chat schema."""
import json
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "lib"), TESTS]
import demo  # noqa: E402
from tap import ROOT, SANITIZED, connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

db = connect()
db.execute("SELECT waste_setup()")
for name, path in (("xtml", cases.make("tiny-chat")), ("plain", cases.make("tiny-plain")),
                   ("text", cases.make("tiny-text")), ("ids", cases.make("linear")), ("demo", demo.container())):
    db.execute("INSERT INTO waste_models(name, path) VALUES(?, ?)", (name, path))


def one(sql, *args):
    return db.execute(sql, args).fetchone()[0]


def render(model, messages, **options):
    return [("M" if s["markup"] else "T") + s["text"]
            for s in json.loads(one("SELECT waste_render(?, ?, ?)", model, json.dumps(messages), json.dumps(options)))]


def chat(model, messages, **options):
    return json.loads(one("SELECT waste_chat_json(?, ?, ?)", model, json.dumps(messages), json.dumps(options)))


hi = [{"role": "user", "content": "Hi"}]

# -- waste_render
with open(os.path.join(ROOT, "tests", "golden", "chat", "xtml.json"), encoding="utf-8") as f:
    golden = json.load(f)["cases"]
wrong = [n for n, c in golden.items() if render("xtml", c["messages"], **c["options"]) != c["segments"]]
equal((len(golden), wrong), (38, []), "the golden prompts, segment for segment")
equal(one("SELECT waste_render('xtml', ?)", json.dumps(hi)), one("SELECT waste_render('xtml', ?, '')", json.dumps(hi)),
      "no options, or none in them")
equal(one("SELECT waste_render('xtml', ?) ->> '$[0].text'", json.dumps(hi)), "<|open|>", "SQLite takes it as JSON")
equal([one("SELECT waste_render(%s, %s)" % a) for a in (("NULL", "'[]'"), ("'xtml'", "NULL"))], [None, None], "NULL in, NULL out")
equal(one("SELECT waste_close('xtml')"), 0, "waste_render loads no weights")
equal([s[0] for s in render("plain", hi)], list("MTMM"), "chat.json: templates around text")
schema = '{"tools":[{"b":18446744073709551615,"a":123456789012345678901234567890,"c":1e2}]}'
ok(any('[{"a":123456789012345678901234567890,"b":18446744073709551615,"c":100.0}]' in s["text"]
       for s in json.loads(one("SELECT waste_render('xtml', ?, ?)", json.dumps(hi), schema))), "integers keep all their digits")

# the ids a prompt is made of: segments, one by one
ids = []
for s in json.loads(one("SELECT waste_render('xtml', ?)", json.dumps(hi))):
    ids += json.loads(one("SELECT waste_tokenize('xtml', ?, ?)", s["text"], json.dumps({"markup": s["markup"]})))
equal(chat("xtml", hi, max_tokens=1)["usage"]["prompt_tokens"], len(ids), "segments are tokenized apart")

# -- errors
for messages, options, texts, name in (
        ("[]", "{}", ["messages is empty"], "no messages"),
        ("{", "{}", ["messages", "JSON"], "no JSON"),
        ('[{"role":"user","content":[{"type":"text","text":1}]}]', "{}", ["messages[0].content[0].text"], "a part"),
        (json.dumps(hi), '{"tool":[]}', ["'tool'", "tools"], "an option nobody knows"),
        (json.dumps(hi), '{"temperature":0}', ["temperature"], "an option of waste_chat_json"),
        (json.dumps(hi), '{"tools":[1]}', ["tools[0]"], "a tool that is no object"),
        (json.dumps(hi), '{"reasoning_effort":"medium"}', ["reasoning_effort", "medium"], "an effort that is none"),
        (json.dumps(hi), "[]", ["options", "array"], "options that are no object"),
        (json.dumps(hi), '{"tools":[], "tools":[]}', ["tools"], "an option given twice")):
    raises(lambda: one("SELECT waste_render('xtml', ?, ?)", messages, options), *texts, name="refused: " + name)
for field, options in (("tools", {"tools": [{}]}), ("tool_choice", {"tool_choice": "auto"}), ("thinking", {"thinking": True}),
                       ("response_format", {"response_format": {"type": "json_object"}})):
    raises(lambda: chat("plain", hi, **options), field + ":", name="chat.json refuses " + field)
raises(lambda: chat("plain", hi + [{"role": "tool", "content": "x"}]), "messages[1].role", name="and tool turns")
raises(lambda: chat("text", hi), "chat format", name="a container without a format has no conversations")
raises(lambda: chat("ids", hi), "chat format", name="nor has one without a tokenizer")
raises(lambda: chat("xtml", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]),
       "messages[0].content[0]", "images", name="images are refused, not guessed at")
raises(lambda: chat("xtml", hi, add_generation_prompt=False), "add_generation_prompt", name="a reply needs a turn")
raises(lambda: one("SELECT waste_chat_json('xtml', x'00')"), "BLOB", name="messages are text")

# -- waste_chat_json
reply = chat("xtml", hi, thinking=False)
equal((reply["role"], reply["content"], reply["finish_reason"]), ("assistant", "Hello, world!", "stop"), "the answer as a message")
ok("reasoning_content" not in reply and "tool_calls" not in reply, "without what it does not have")
equal(reply["usage"]["total_tokens"], reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"], "usage adds up")
details = chat("xtml", hi, thinking=False, prefix_cache=False)["usage"]
equal((details["prompt_tokens_details"], details["completion_tokens_details"]), ({"cached_tokens": 0}, {"reasoning_tokens": 0, "forced_tokens": 0}), "in detail, as OpenAI has it")
long = [{"role": "system", "content": "Be kind to everybody who asks you about the world. " * 3}, {"role": "user", "content": "Hi"}]
cached = [chat("xtml", long + [{"role": "assistant", "content": "x"}, {"role": "user", "content": str(i)}], thinking=False)["usage"] for i in range(3)]
ok(cached[2]["prompt_tokens_details"]["cached_tokens"] >= 32, "what an earlier prompt has computed is counted as cached")
thought = chat("xtml", hi)
equal((thought["content"], thought["reasoning_content"]), (None, "Hello, world!"), "it thinks unless told not to")
ok(thought["usage"]["completion_tokens_details"]["reasoning_tokens"] >= 4, "which is counted")
equal(chat("xtml", hi, thinking=False, max_tokens=1)["finish_reason"], "length", "max_tokens is length")
equal(chat("xtml", hi, thinking=False, stop=", w")["content"], "Hello", "stop strings apply to the answer")
equal(chat("plain", hi)["role"], "assistant", "chat.json answers too, and does not think")
ok(render("xtml", hi + [reply] + hi, thinking=False), "a reply goes back in as it is")
equal(one("SELECT waste_chat_json('xtml', ?, '{\"thinking\":false}') ->> 'content'", json.dumps(hi)), "Hello, world!", "as JSON")

# -- what the small real model was trained on
question = [{"role": "user", "content": "What is the capital of Italy?"}]
equal(chat("demo", question, thinking=False)["content"], one("SELECT waste_generate('demo', ?)", question[0]["content"]),
      "one user turn is waste_generate's prompt")
rows = [r for r in demo.rows() if r["skill"] == "memory"][:3 if SANITIZED else 40]
right = sum(chat("demo", r["messages"], thinking=False)["content"] == r["answer"] for r in rows)
ok(right >= 0.9 * len(rows), "a conversation is one prompt: %d of %d things said are known" % (right, len(rows)))
equal(chat("demo", rows[0]["messages"], thinking=False)["usage"]["prompt_tokens"],
      len(demo.prompt_tokens(db, "demo", rows[0]["messages"])), "of as many tokens as the format's own segments")
done()
