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
raises(lambda: generate('{"zzzzzzzz":1}'), "'zzzzzzzz'", "see docs/sql.md", name="nothing near, and many keys: where they are listed")
raises(lambda: one("SELECT waste_tokenize(?, 'x', '{\"zzzzzzzz\":1}')", PATH), "(known: markup)", name="nothing near, and few: all of them")
raises(lambda: one("SELECT value FROM waste_plan(?, '{\"prob\":1}')", PATH), "waste_plan: unknown option 'prob'", "did you mean 'probe'", name="waste_plan's own key")
raises(lambda: one("SELECT waste_register('m', ?, '{\"probe\":1}')", PATH), "waste_register takes no option 'probe'", name="which is waste_plan's only")
raises(lambda: one("SELECT value FROM waste_plan(?, '{\"probe\":2}')", PATH), "option 'probe' is 2, wanted true or false", name="and typed")
for key in ("stats", "logprobs"):
    raises(lambda k=key: generate(json.dumps({k: 1})), f"waste_generate takes no option '{key}'", "waste_generate_json", name=f"{key} has no place in a text")
    raises(lambda k=key: one("SELECT n FROM waste_next(?, 'x', 1, ?)", PATH, json.dumps({k: 1})), "waste_next takes no", "waste_generate_json",
           name=f"nor in waste_next: {key}")
raises(lambda: one("SELECT n FROM waste_tokens(?, 'x', '{\"stats\":true}')", PATH), "waste_tokens takes no option 'stats'", name="stats are columns in waste_tokens")
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
    "raw": ("yes", 2, 0.5, []), "markup": ("yes",), "thinking": ("yes",), "system": (5, True, []),
    "tokens": (5, "x", {}), "stop": (5, True, {}), "logit_bias": (5, "x", []),
}
for v in (-1, 21, 0.5, "x", True):
    raises(lambda x=v: one("SELECT waste_generate_json(?, 'Hi', ?)", PATH, json.dumps({"logprobs": x})), "option 'logprobs'", "wanted", name=f"logprobs = {v!r}")
for key, values in WRONG.items():
    for v in values:
        raises(lambda k=key, x=v: generate(json.dumps({k: x})), f"option '{key}'", "wanted", name=f"{key} = {v!r}")
raises(lambda: generate('{"max_tokens":"ten"}'), "is \"ten\", wanted an integer from 1 to 9007199254740992",
       name="the sentence says what was found")
for found, text in ((2**63 - 1, "is 9223372036854775807,"), (1e17, "is 100000000000000000,"), (-5, "is -5,"), (0.1, "is 0.1,"), (1e300, "is 1")):
    raises(lambda v=found: generate(json.dumps({"max_tokens": v})), f"'max_tokens' {text}", "from 1 to 9007199254740992", name=f"in all digits: {found}")
raises(lambda: generate('{"timeout_ms":10000000000000}'), "is 10000000000000, wanted an integer from 0 to 1000000000000", name="both limits")
raises(lambda: generate('{"stop":["a",5]}'), "stop[1]", "an integer", name="a stop text that is none")
raises(lambda: generate('{"stop":["a",""]}'), "stop[1]", "empty", name="an empty stop text")
raises(lambda: generate(json.dumps({"stop": ["x"] * 1000})), "stop", "1000", name="too many stop texts")
raises(lambda: generate('{"logit_bias":{"x":1}}'), "logit_bias", "'x'", name="a bias of no token")
raises(lambda: generate('{"logit_bias":{"-1":1}}'), "logit_bias", "'-1'", name="a bias of a negative token")
raises(lambda: generate('{"logit_bias":{"99999999":1}}'), "99999999", name="a bias outside the vocabulary")
raises(lambda: generate('{"logit_bias":{"1":"x"}}'), "logit_bias", "token 1", name="a bias that is no number")
raises(lambda: generate('{"tokens":[1]}'), "tokens", "as well as a prompt", name="tokens beside a prompt")


def ids(tokens, **more):
    return one("SELECT waste_generate(?, NULL, ?)", PATH, json.dumps(dict(tokens=tokens, **more)))


raises(lambda: ids([]), "tokens", "empty", name="no tokens")
raises(lambda: ids([1, "x"]), "tokens[1]", "a string", name="a token that is no number")
raises(lambda: ids([1, -1]), "tokens[1]", "out of range", name="a negative token")
raises(lambda: ids([1, 1.5]), "tokens[1]", name="half a token")
raises(lambda: ids([1, 4000000]), "4000000", name="a token outside the vocabulary")
raises(lambda: ids([1, 2**40]), "tokens[1]", "out of range", name="a token outside all vocabularies")
raises(lambda: ids([1], system="x"), "system", name="a system turn beside tokens")
raises(lambda: one("SELECT waste_generate(?, NULL, '{\"tokens\":[1]}', 'part')", PATH), "parts", name="parts beside tokens")
equal(one("SELECT waste_generate(?, NULL, '{\"seed\":1}')", PATH), None, "a NULL prompt without tokens is NULL")

# -- the likeliest beside each token
told = db.execute("SELECT token, top FROM waste_tokens(?, 'Hi', '{\"logprobs\":3}')", (PATH,)).fetchall()
whole = json.loads(one("SELECT waste_generate_json(?, 'Hi', '{\"logprobs\":3}')", PATH))["logprobs"]
equal([(t, json.loads(top)) for t, top in told], [(x["token"], x["top"]) for x in whole], "waste_tokens.top is what waste_generate_json says")
equal({len(json.loads(top)) for _, top in told}, {3}, "of the length asked for")
equal(db.execute("SELECT DISTINCT top FROM waste_tokens(?, 'Hi')", (PATH,)).fetchall(), [(None,)], "NULL when nobody asks")
equal(db.execute("SELECT DISTINCT top FROM waste_tokens(?, 'Hi', '{\"logprobs\":0}')", (PATH,)).fetchall(), [("[]",)], "empty when none are asked for")

# -- paths and words in options
for sql, words in (("SELECT * FROM waste_convert('/a', '/b', '{\"importance\":\"/x\\u0000y\"}')", ("waste_convert", "'importance'", "NUL")),
                   ("SELECT * FROM waste_convert('/a', '/b', '{\"importance\":\"\"}')", ("waste_convert", "'importance'", "path")),
                   ("SELECT * FROM waste_convert('/a', '/b', '{\"experts\":\"vq3r\\u0000\"}')", ("waste_convert", "'experts'", "NUL")),
                   ("SELECT waste_register('n', '/x', '{\"usage\":\"/x\\u0000y\"}')", ("waste_register", "'usage'", "NUL")),
                   ("SELECT waste_register('n', '/x', '{\"precision\":\"exact\\u0000\"}')", ("waste_register", "'precision'", "NUL"))):
    raises(lambda s=sql: one(s), *words, name=sql)

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
         "precision": ("best", 1, True), "kv": ("bf16", 16, True), "verify": ("yes", 2)}
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
