"""Options: each key, its type and range, misspelt and duplicate keys, and what a
NULL or an empty object means. Errors name the key and what was found."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import connect, done, equal, raises  # noqa: E402
from tiny import cases  # noqa: E402

db = connect()
PATH = cases.make("tiny-chat")


def one(sql, *args):
    return db.execute(sql, args).fetchone()[0]


def generate(options):
    return one("SELECT waste_generate(?, 'Hi', ?)", PATH, options)


for options in (None, "", "{}", " {} ", '{"seed":null,"stop":null,"system":null,"tokens":null}', '{"max_tokens":50.0}', '{"stop":[]}',
                '{"logit_bias":{}}', '{"raw":0,"thinking":false}', '{"timeout_ms":0}', '{"temperature":0,"top_k":5,"top_p":0.5}'):
    equal(generate(options), "Hello, world!", f"options {options!r}")

# -- keys
raises(lambda: generate('{"max_token":1}'), "unknown option 'max_token'", "did you mean 'max_tokens'", name="the nearest key")
raises(lambda: generate('{"temprature":1}'), "'temprature'", "'temperature'", name="swapped and lost letters")
raises(lambda: generate('{"Seed":1}'), "'Seed'", "'seed'", name="case counts")
raises(lambda: generate('{"zzzzzzzz":1}'), "'zzzzzzzz'", "known:", "max_tokens", name="nothing near: all are listed")
raises(lambda: generate('{"":1}'), "unknown option ''", name="an empty key")
raises(lambda: generate('{"seed":1,"seed":2}'), "duplicate", "seed", name="a duplicate key")
raises(lambda: generate('{"logit_bias":{"1":1,"1":2}}'), "duplicate", name="a duplicate key further in")
raises(lambda: one("SELECT waste_tokenize(?, 'x', '{\"seed\":1}')", PATH), "waste_tokenize takes no option 'seed'",
       name="a key of another function")
raises(lambda: one("SELECT n FROM waste_next(?, 'x', 1, '{\"temperature\":1}')", PATH), "waste_next takes no option 'temperature'",
       name="likewise of a table")
raises(lambda: generate(json.dumps({"k" * 5000: 1})), "unknown option", name="a very long key")

# -- what is no object
for value, found in (("[]", "an array"), ("5", "an integer"), ('"x"', "a string"), ("null", "null"), ("true", "a boolean"),
                     (5, "an integer"), (1.5, "a number"), (b"{}", "a BLOB")):
    raises(lambda v=value: generate(v), "options", "object", found, name=f"options {value!r}")
for text in ("{", "x", " ", '{"seed":1} x', "{'seed':1}", '{"seed":01}', '{"seed":1e999}', '{"seed":NaN}', '{"seed":99999999999999999999}'):
    raises(lambda v=text: generate(v), "waste_generate: options", "JSON", name=f"not JSON: {text}")
raises(lambda: generate('{"seed":1}\0'), "options", "NUL", name="a NUL byte after the object")
raises(lambda: generate("[" * 10000 + "]" * 10000), "nested deeper", name="10,000 levels of arrays")
raises(lambda: generate('{"a":' * 10000 + "1" + "}" * 10000), "nested deeper", name="10,000 levels of objects")

# -- values
WRONG = {
    "max_tokens": (0, -1, 1.5, "10", True, [], {}, 2**63 - 1), "temperature": (-0.1, 101, "hot", None.__class__.__name__, []),
    "top_k": (-1, 0.5, "x"), "top_p": (0, -1, 1.01, "x"), "min_p": (-0.1, 1.1, "x"), "repetition_penalty": (0, -1, 1000, "x"),
    "presence_penalty": (-101, 101, "x"), "frequency_penalty": (-101, 101, "x"), "seed": (-1, 0.5, "x"), "timeout_ms": (-1, 0.5, 1e13, "x"),
    "logprobs": (-1, 21, 0.5, "x", True), "raw": ("yes", 2, 0.5, []), "markup": ("yes",), "thinking": ("yes",), "system": (5, True, []),
    "tokens": (5, "x", {}), "stop": (5, True, {}), "logit_bias": (5, "x", []),
}
for key, values in WRONG.items():
    for v in values:
        raises(lambda k=key, x=v: generate(json.dumps({k: x})), f"option '{key}'", "wanted", name=f"{key} = {v!r}")
raises(lambda: generate('{"max_tokens":"ten"}'), "\"ten\"", "an integer of at least 1", name="the sentence says what was found")
raises(lambda: generate('{"stop":["a",5]}'), "stop", "text 2", "an integer", name="a stop text that is none")
raises(lambda: generate('{"stop":["a",""]}'), "stop", "text 2", "empty", name="an empty stop text")
raises(lambda: generate(json.dumps({"stop": ["x"] * 1000})), "stop", "1000", name="too many stop texts")
raises(lambda: generate('{"logit_bias":{"x":1}}'), "logit_bias", "'x'", name="a bias of no token")
raises(lambda: generate('{"logit_bias":{"-1":1}}'), "logit_bias", "'-1'", name="a bias of a negative token")
raises(lambda: generate('{"logit_bias":{"99999999":1}}'), "99999999", name="a bias outside the vocabulary")
raises(lambda: generate('{"logit_bias":{"1":"x"}}'), "logit_bias", "token 1", name="a bias that is no number")
raises(lambda: generate('{"tokens":[1]}'), "tokens", "as well as a prompt", name="tokens beside a prompt")


def ids(tokens, **more):
    return one("SELECT waste_generate(?, NULL, ?)", PATH, json.dumps(dict(tokens=tokens, **more)))


raises(lambda: ids([]), "tokens", "empty", name="no tokens")
raises(lambda: ids([1, "x"]), "token 2", "a string", name="a token that is no number")
raises(lambda: ids([1, -1]), "token 2", "out of range", name="a negative token")
raises(lambda: ids([1, 1.5]), "token 2", name="half a token")
raises(lambda: ids([1, 4000000]), "4000000", name="a token outside the vocabulary")
raises(lambda: ids([1, 2**40]), "token 2", "out of range", name="a token outside all vocabularies")
raises(lambda: ids([1], system="x"), "system", name="a system turn beside tokens")
raises(lambda: one("SELECT waste_generate(?, NULL, '{\"tokens\":[1]}', 'part')", PATH), "parts", name="parts beside tokens")
equal(one("SELECT waste_generate(?, NULL, '{\"seed\":1}')", PATH), None, "a NULL prompt without tokens is NULL")

# -- banning and forcing
first = one("SELECT token FROM waste_tokens(?, 'Hi') LIMIT 1", PATH)
banned = one("SELECT token FROM waste_tokens(?, 'Hi', ?) LIMIT 1", PATH, json.dumps({"logit_bias": {str(first): None}}))
equal(banned != first, True, "null bans a token")
forced = one("SELECT token FROM waste_tokens(?, 'Hi', '{\"logit_bias\":{\"65\":100000}}') LIMIT 1", PATH)
equal(forced, 65, "a large bias forces one")
equal(one("SELECT logprob FROM waste_tokens(?, 'Hi') LIMIT 1", PATH) >
      one("SELECT logprob FROM waste_tokens(?, 'Hi', '{\"logit_bias\":{\"65\":100000}}') LIMIT 1", PATH), True,
      "logprobs are of the unmodified distribution")

# -- model options
MODEL = {"budget": (0, -1, "lots", "", "5X", "1.2.3G", "-5G", True, [], 1e300, "99999999T"), "context": (0, -1, 1.5, "x", 2**40),
         "precision": ("best", 1, True), "verify": ("yes", 2)}
for key, values in MODEL.items():
    for v in values:
        raises(lambda k=key, x=v: one("SELECT waste_register('m', ?, ?)", PATH, json.dumps({k: x})), "waste_register", f"option '{key}'",
               "wanted", name=f"model option {key} = {v!r}")
raises(lambda: one("SELECT waste_register('m', ?, '{\"contxt\":5}')", PATH), "contxt", "context", name="a misspelt model option")
raises(lambda: one("SELECT waste_register('m', ?, '{\"seed\":5}')", PATH), "unknown option 'seed'", name="a call's option is no model's")
for size in (2**30, "1G", "1GiB", "1gb", "1024 M", "1024MiB", "0.5G", "1073741824", "1073741824B"):
    options = json.dumps({"budget": size, "context": 64})
    one("SELECT waste_close(?)", PATH)
    one("SELECT waste_register('m', ?, ?)", PATH, options)
    equal(json.loads(one("SELECT waste_open('m')"))["context"], 64, f"budget {size!r}")
    one("SELECT waste_close('m')")
one("SELECT waste_close(?)", PATH)
raises(lambda: one("SELECT waste_open(?, '{\"budget\":1000}')", PATH), "budget", name="a budget below the floor")
equal(one("SELECT waste_generate(?, 'Hi')", PATH), "Hello, world!", "after which the model opens as ever")
done()
