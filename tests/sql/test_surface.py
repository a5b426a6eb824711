"""Every SQL name, used as intended: what it gives for the small containers."""
import json
import math
import os
import sqlite3
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import EXTENSION, connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

db = connect()


def one(sql, *args):
    return db.execute(sql, args).fetchone()[0]


def rows(sql, *args):
    return db.execute(sql, args).fetchall()


# -- lifecycle
ok(one("SELECT waste_version()").count(".") == 2, "waste_version is three numbers")
equal(rows("SELECT name FROM pragma_function_list WHERE name LIKE 'waste%' AND flags & 0x800"), [], "nothing of ours is deterministic: an upgrade changes answers")
equal(rows("SELECT name FROM sqlite_schema"), [], "loading creates nothing")
equal(one("SELECT waste_setup()"), "ok", "waste_setup says ok")
equal(one("SELECT waste_setup()"), "ok", "and may be called again")
equal(rows("SELECT name FROM pragma_table_info('waste_models')"), [("name",), ("path",), ("options",)],
      "waste_models has name, path, options")

os.chdir(os.path.dirname(cases.make("tiny-chat")))
summary = json.loads(one("SELECT waste_register('chat', './tiny-chat.waste', '{\"context\":512}')"))
equal(sorted(summary), sorted(["name", "path", "arch", "layers", "experts", "top_k", "vocab", "params", "active_params",
                               "trunk_bytes", "expert_bytes", "expert_format", "chat"]), "the summary's keys")
equal((summary["name"], summary["path"], summary["arch"], summary["layers"], summary["chat"]),
      ("chat", os.path.realpath("tiny-chat.waste"), "kimi-k3", 4, "xtml"), "the summary's values")
equal(rows("SELECT * FROM waste_models"), [("chat", os.path.realpath("tiny-chat.waste"), '{"context":512}')],
      "the row has the absolute path and the options as given")
one("SELECT waste_register('chat', ?)", cases.make("tiny-chat"))
equal(rows("SELECT count(*), max(options) FROM waste_models"), [(1, None)], "registering again replaces the row")
db.execute("INSERT INTO waste_models VALUES('plain', ?, '{\"context\":300}'), ('text', ?, NULL), ('ids', ?, '')",
           tuple(map(cases.make, ("tiny-plain", "tiny-text", "linear"))))

opened = json.loads(one("SELECT waste_open('plain')"))
equal((opened["context"], opened["precision"], opened["verify"], opened["connections"]), (300, "fast", False, 1),
      "a row made by INSERT gives the options")
ok(opened["memory_bytes"] > 100000, "waste_open has loaded the weights")
equal([one("SELECT waste_close('plain')") for _ in range(2)], [1, 0], "waste_close: 1, then nothing to close")
exact = json.loads(one("SELECT waste_open('plain', '{\"precision\":\"exact\",\"verify\":true}')"))
equal((exact["precision"], exact["verify"], exact["context"]), ("exact", True, 300), "waste_open's options go over the row's")
ok(one("SELECT waste_generate('plain', 'Hi', '{\"max_tokens\":3}')") is not None, "and later calls accept them")
one("SELECT waste_close('plain')")

# -- text
equal(one("SELECT waste_detokenize('chat', waste_tokenize('chat', ?))", "Hello, 世界 🎉\0!"), "Hello, 世界 🎉\0!",
      "detokenize(tokenize(x)) is x, NUL and emoji included")
ids = json.loads(one("SELECT waste_tokenize('chat', '<|open|>x<|sep|>')"))
specials = {i for i in range(len(cases.CASES["tiny-chat"]["tokens"]), cases.CASES["tiny-chat"]["config"]["vocab_size"])}
ok(not specials & set(ids), "content never becomes a control token")
marked = json.loads(one("SELECT waste_tokenize('chat', '<|open|>x<|sep|>', '{\"markup\":true}')"))
equal(len(specials & set(marked)), 2, "markup does")
equal(one("SELECT waste_token_count('chat', '<|open|>x<|sep|>')"), len(ids), "token_count counts the same")
equal(one("SELECT waste_token_count('chat', '<|open|>x<|sep|>', '{\"markup\":1}')"), len(marked), "also of markup")
equal(one("SELECT waste_tokenize('chat', '')"), "[]", "no text, no tokens")
equal(one("SELECT waste_detokenize('chat', '[]')"), "", "and back")
equal(one("SELECT waste_detokenize('chat', '[240,159,142]')"), "\ufffd", "bytes that never complete become U+FFFD")
equal(one("SELECT waste_detokenize('chat', '[240,159,142,137]')"), "🎉", "bytes that do become the character")
equal(one("SELECT waste_token_count('chat', 12345)"), one("SELECT waste_token_count('chat', '12345')"), "a number is its text")
equal(one("SELECT waste_detokenize('chat', waste_tokenize('chat', CAST(x'41ff42' AS TEXT)))"), "A\ufffdB",
      "invalid UTF-8 keeps its bytes as tokens")
raises(lambda: one("SELECT waste_tokenize('ids', 'x')"), "tokenizer", name="no tokenizer is an error that says so")
equal(one("SELECT waste_close('chat')"), 0, "text functions load no weights")

# -- generation
equal(one("SELECT waste_generate('chat', 'Hi')"), "Hello, world!", "the answer")
equal(one("SELECT waste_generate(?, 'Hi')", cases.make("tiny-chat")), "Hello, world!", "a path serves as a model")
reply = json.loads(one("SELECT waste_generate_json('chat', 'Hi', '{\"logprobs\":2}')"))
equal((reply["text"], reply["reasoning"], reply["finish_reason"]), ("Hello, world!", None, "stop"), "as an object")
equal(reply["usage"]["total_tokens"], reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"], "usage adds up")
equal(len(reply["logprobs"]), reply["usage"]["completion_tokens"], "a logprob per token")
first = reply["logprobs"][0]
equal((first["piece"], len(first["top"]), first["top"][0]["token"]), ("Hello", 2, first["token"]), "with alternatives")
ok("logprobs" not in json.loads(one("SELECT waste_generate_json('chat', 'Hi')")), "logprobs only when asked for")
thought = json.loads(one("SELECT waste_generate_json('chat', 'Hi', '{\"thinking\":true}')"))
equal((thought["text"], thought["reasoning"]), ("", "Hello, world!"), "reasoning is apart from the answer")
equal(one("SELECT waste_generate('chat', 'Hi', '{\"max_tokens\":2}')"), "Hello,", "max_tokens")
equal(json.loads(one("SELECT waste_generate_json('chat', 'Hi', '{\"max_tokens\":2}')"))["finish_reason"], "length", "says length")
equal(one("SELECT waste_generate('chat', 'Hi', '{\"stop\":\"o, w\"}')"), "Hell", "a stop text spans tokens and is cut")
equal(one("SELECT json_type(json_object('r', waste_generate_json('chat', 'Hi')), '$.r')"), "object",
      "the JSON result is JSON to SQLite's functions")

plain = json.loads(one("SELECT waste_generate_json('plain', 'Hi', '{\"max_tokens\":1}')"))["usage"]["prompt_tokens"]
parts = json.loads(one("SELECT waste_generate_json('plain', 'Hi', '{\"max_tokens\":1}', 'more', NULL, 5)"))["usage"]["prompt_tokens"]
both = one("SELECT sum(waste_token_count('plain', value)) FROM json_each(?)", json.dumps(["\n\n", "more", "\n\n", "5"]))
equal(parts, plain + both, "parts are content of the turn, set off by an empty line; NULL parts are not there")
system = json.loads(one("SELECT waste_generate_json('plain', 'Hi', '{\"max_tokens\":1,\"system\":\"Be\"}')"))["usage"]["prompt_tokens"]
ok(system > plain, "a system turn comes with the system option")
raw = json.loads(one("SELECT waste_generate_json('plain', 'Hi', '{\"max_tokens\":1,\"raw\":true}')"))["usage"]["prompt_tokens"]
equal(raw, one("SELECT waste_token_count('plain', 'Hi')"), "raw has no template")

for model in ("chat", "plain", "text"):
    for options in ('{"max_tokens":40}', '{"max_tokens":3}', '{"temperature":1.5,"seed":7,"max_tokens":30,"stop":["e","世"]}',
                    '{"max_tokens":41,"raw":true}'):
        equal(one("SELECT coalesce(group_concat(piece, ''), '') FROM waste_tokens(?, 'Hi', ?)", model, options),
              one("SELECT waste_generate(?, 'Hi', ?)", model, options), f"the pieces are the answer: {model} {options}")
ids = list(range(3, 20))
want = rows("SELECT token FROM waste_tokens('ids', NULL, ?)", json.dumps({"tokens": ids, "max_tokens": 12}))
equal(len(want), 12, "without a tokenizer, ids go in and come out")
other = connect()
equal(other.execute("SELECT token FROM waste_tokens(?, NULL, ?)",
                    (cases.make("linear"), json.dumps({"tokens": ids, "max_tokens": 12}))).fetchall(), want,
      "the same call on another connection gives the same")
seeded = '{"temperature":1,"seed":42,"max_tokens":20}'
equal(one("SELECT waste_generate('text', 'Hi', ?)", seeded), one("SELECT waste_generate('text', 'Hi', ?)", seeded),
      "a seed repeats")
ok(len({r[0] for r in rows("SELECT waste_generate('text', 'Hi', json_set(?, '$.seed', value)) FROM json_each('[1,2,3]')", seeded)}) > 1,
   "seeds differ")

# -- tables
cols = [d[0] for d in db.execute("SELECT * FROM waste_tokens('chat', 'Hi')").description]
equal(cols, ["n", "token", "piece", "reasoning", "logprob", "top", "region", "finish", "hits", "misses", "bytes_read", "ms", "io_ms"],
      "waste_tokens' columns")
got = rows("SELECT n, piece, region, finish FROM waste_tokens('chat', 'Hi')")
equal(got[0], (1, "Hello", "answer", None), "n counts from 1")
equal(got[-1], (5, "", "markup", "stop"), "finish stands in the last row")
top = rows("SELECT n, token, piece, logit, logprob, prob FROM waste_next('chat', 'Hi')")
equal((len(top), [r[0] for r in top]), (10, list(range(1, 11))), "waste_next gives ten")
equal(top[0][1:3], (reply["logprobs"][0]["token"], "Hello"), "the first is what greedy takes")
ok(abs(top[0][4] - first["logprob"]) < 1e-9 and all(abs(math.exp(r[4]) - r[5]) < 1e-12 for r in top), "logprob and prob agree")
vocab = summary["vocab"]
equal(rows("SELECT count(*), count(DISTINCT token), abs(sum(prob) - 1) < 1e-9 FROM waste_next('chat', 'Hi', 1e9)"), [(vocab, vocab, 1)],
      "all of the vocabulary if asked, and it sums to one")
long = json.dumps({"tokens": [5 + i % 80 for i in range(600)]})
equal(one("SELECT token FROM waste_next('ids', NULL, 1, ?)", long),
      one("SELECT token FROM waste_tokens('ids', NULL, json_set(?, '$.max_tokens', 1))", long), "a long prompt in several batches")
info = dict(rows("SELECT key, value FROM waste_info('chat')"))
ok(info["layers"] == 4 and info["vocab"] == vocab and info["chat"] == "xtml" and info["tokenizer"] == 1, "waste_info")
equal(info["trunk_bytes"], one("SELECT sum(bytes) FROM waste_tensors('chat') WHERE name LIKE 'language_model.%'"),
      "waste_tensors add up to the trunk")
ok(all(math.prod(json.loads(s)) > 0 for (s,) in rows("SELECT shape FROM waste_tensors('chat')")), "shapes are JSON")
equal(one("SELECT sum(bytes) FROM waste_experts('chat')"), info["expert_bytes"], "waste_experts add up to the banks")
equal(one("SELECT count(*) FROM waste_experts('chat')"), info["moe_layers"] * info["experts"], "one row a record")
equal(rows("SELECT count(DISTINCT file), min(layer), max(offset + bytes) FROM waste_experts('chat')")[0],
      (3, 1, os.path.getsize(os.path.join(cases.make("tiny-chat"), "experts-L1.bin"))), "files, layers and offsets are right")
equal(one("SELECT count(*) FROM waste_experts(?)", cases.make("linear-dense")), 0, "a dense model has no experts")

# -- registration errors name the path and what was found
tmp = os.path.join(os.path.dirname(cases.make("tiny-chat")), f"bad-{os.getpid()}")
os.makedirs(tmp)
raises(lambda: one("SELECT waste_register('x', '/no/such/place')"), "/no/such/place", name="a missing path")
raises(lambda: one("SELECT waste_register('x', ?)", EXTENSION), EXTENSION, name="a file")
raises(lambda: one("SELECT waste_register('x', ?)", tmp), tmp, "manifest.json", name="an empty directory")
with open(os.path.join(tmp, "manifest.json"), "w") as f:
    f.write('{"format_version":9}')
raises(lambda: one("SELECT waste_register('x', ?)", tmp), tmp, "9", "0", name="a newer format version")
os.remove(os.path.join(tmp, "manifest.json"))
for name in os.listdir(cases.make("tiny-plain")):
    if name != "chat.json":
        os.link(os.path.join(cases.make("tiny-plain"), name), os.path.join(tmp, name))
with open(os.path.join(tmp, "chat.json"), "w") as f:
    json.dump(dict(cases.CHAT, open="<|no_such_marker|>"), f)
raises(lambda: one("SELECT waste_register('x', ?)", tmp), "chat.json", "<|no_such_marker|>", name="a marker that is no token")
os.remove(os.path.join(tmp, "manifest.json"))
with open(os.path.join(cases.make("tiny-plain"), "manifest.json"), encoding="utf-8") as f:
    manifest = json.load(f)
manifest["config"]["architectures"] = ["GptOssForCausalLM"]
with open(os.path.join(tmp, "manifest.json"), "w") as f:
    json.dump(manifest, f)
raises(lambda: one("SELECT waste_register('x', ?)", tmp), tmp, "GptOssForCausalLM", "Kimi K3", "DeepSeek",
       name="an architecture of no supported family")
for name in os.listdir(tmp):
    os.remove(os.path.join(tmp, name))
os.rmdir(tmp)
equal(rows("SELECT count(*) FROM waste_models WHERE name = 'x'"), [(0,)], "none of these made a row")

# -- models that are not there
fresh = connect()
raises(lambda: fresh.execute("SELECT waste_generate('k3', 'x')").fetchone(), "no model 'k3'", "no waste_models table",
       "waste_register('k3', path)", name="no table: the error says what to call")
fresh.execute("SELECT waste_setup()")
raises(lambda: fresh.execute("SELECT waste_generate('k3', 'x')").fetchone(), "'k3'", "empty", name="an empty table")
raises(lambda: one("SELECT waste_generate('plane', 'x')"), "'plane'", "did you mean 'plain'", "'chat'", name="a near miss")
db.execute("INSERT INTO waste_models VALUES('bad', '/tmp/x', '{\"contxt\":5}')")
raises(lambda: one("SELECT waste_open('bad')"), "/tmp/x", name="a row whose path is gone")
db.execute("UPDATE waste_models SET path = ? WHERE name = 'bad'", (cases.make("linear"),))
raises(lambda: one("SELECT waste_open('bad')"), "model 'bad'", "contxt", "context", name="a row with a misspelt option")

# -- one exported symbol
names = subprocess.run(["nm", "-D", "--defined-only", EXTENSION], capture_output=True, text=True).stdout.split()
equal([n for n in names if "waste" in n or "json" in n or "deflate" in n], ["sqlite3_waste_init"], "only the entry point is exported")

# -- a database in UTF-16
wide = connect()
wide.execute("PRAGMA encoding = 'UTF-16'")
wide.execute("CREATE TABLE p(text)")
wide.execute("INSERT INTO p VALUES('Hello, 世界 🎉')")
wide.execute("SELECT waste_register('chat', ?)", (cases.make("tiny-chat"),))
equal(wide.execute("SELECT waste_detokenize('chat', waste_tokenize('chat', text)), waste_generate('chat', text) FROM p").fetchall(),
      [("Hello, 世界 🎉", "Hello, world!")], "a UTF-16 database")
equal(wide.execute("SELECT group_concat(t.piece, '') FROM p, waste_tokens('chat', p.text) t").fetchone()[0], "Hello, world!",
      "tables too")
sqlite3.connect(":memory:").close()
done()
