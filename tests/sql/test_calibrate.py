"""waste_calibrate and waste_importance_save: the oracle's mean squares, whatever the batches; files that are added to, kept
and refused; errors by name; what an interrupt leaves; and a conversion that takes the file."""
import json
import os
import shutil
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib import checkpoint  # noqa: E402
from lib.tap import ROOT, connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

with open(os.path.join(ROOT, "tests", "golden", "importance.json")) as f:
    GOLDEN = json.load(f)
HOME = tempfile.mkdtemp()
FILE = os.path.join(HOME, "importance.json")
db = connect(check_same_thread=False)


def one(sql, *args):
    row = db.execute(sql, args).fetchone()
    return row[0] if len(row) == 1 else row


def calibrate(model, texts, **options):
    """Of lists of ids, one a row."""
    rows = [json.dumps(dict(options, tokens=t)) for t in texts]
    return one("SELECT waste_calibrate(?, NULL, value) FROM json_each(?)", model, json.dumps(rows))


def read(path=FILE):
    with open(path) as f:
        return f.read()


def furthest(got, want):
    """The largest error, relative to the largest number of its list."""
    return max(abs(a - b) / max(want[l][k]) for l in want for k in ("gate_up", "down") for a, b in zip(got[l][k], want[l][k]))


# -- against the oracle
for name, g in GOLDEN.items():
    path, texts = cases.make(name), list(cases.sequences(name).values())
    ok(cases.digest(name) == g["digest"], f"{name}: the container is the oracle's")
    for precision, bound in (("exact", 1e-5), ("fast", 5e-3)):
        one("SELECT waste_register(?, ?, ?)", f"{name}-{precision}", path, json.dumps({"precision": precision, "context": 256}))
        got = calibrate(f"{name}-{precision}", texts, window=g["window"])
        doc = json.loads(got)
        equal((doc["tokens"], {l: {k: len(v) for k, v in x.items()} for l, x in doc["layers"].items()}),
              (sum(map(len, texts)), {l: {k: len(v) for k, v in x.items()} for l, x in g["layers"].items()}),
              f"{name}, {precision}: all layers, all channels, all tokens")
        error = furthest(doc["layers"], g["layers"])
        ok(error <= bound, f"{name}, {precision}: within {bound:g} of the oracle ({error:.1e})")
        one("SELECT waste_close(?)", f"{name}-{precision}")
one("SELECT waste_register('m', ?, '{\"context\":256,\"precision\":\"exact\"}')", cases.make("k3"))
ids = list(cases.sequences("k3").values())
whole = calibrate("m", ids)
ok(json.loads(whole) != json.loads(calibrate("m", ids, window=5)), "windows do not see what was before them")
equal(calibrate("m", [t[i:i + 5] for t in ids for i in range(0, len(t), 5)]), calibrate("m", ids, window=5), "and are texts of their own")

# -- what is decided elsewhere: memory, reads, threads, other callers
one("SELECT waste_close('m')")
small = {r[0]: r[1] for r in db.execute("SELECT part, value FROM waste_plan('m')")}
for options in ({"budget": int(small["floor"]) + (1 << 18), "lookahead": 0, "io_threads": 0}, {"threads": 2, "lookahead": 8}):
    one("SELECT waste_open('m', ?)", json.dumps(options))
    ok(calibrate("m", ids) == whole, f"the same text with {options}")
    one("SELECT waste_close('m')")
one("SELECT waste_open('m')")
stop, made = threading.Event(), []


def generate():
    other = connect()
    other.execute("SELECT waste_register('m', ?, '{\"context\":256,\"precision\":\"exact\"}')", (cases.make("k3"),))
    while not stop.is_set():
        made.append(other.execute("SELECT waste_generate_json('m', NULL, '{\"tokens\":[3,4,5],\"max_tokens\":20,\"temperature\":0.5}')").fetchone())
    other.close()


thread = threading.Thread(target=generate)
thread.start()
again = [calibrate("m", ids) for _ in range(5)]
stop.set()
thread.join()
ok(set(again) == {whole}, f"and while others generate ({len(made)} times)")

# -- files
def save(texts, path=FILE, model="m", **options):
    rows = [json.dumps(dict(options, tokens=t)) for t in texts]
    return one("SELECT waste_importance_save(?, waste_calibrate(?, NULL, value)) FROM json_each(?)", path, model, json.dumps(rows))


equal(save(ids[1:]), len(ids[1]) + len(ids[2]), "saving gives the number of tokens")
equal(save(ids[:1], add=FILE), sum(map(len, ids)), "add goes on from a file")
error = furthest(json.loads(read())["layers"], json.loads(whole)["layers"])
ok(error < 1e-6, f"to what one call gives ({error:.1e})")
save(ids)
equal(read(), whole, "without add it is replaced, by the text that waste_calibrate gives")
equal(os.listdir(HOME), ["importance.json"], "and nothing else is there")
for name, text in (("notes.json", "[1]"), ("notes.txt", "hello"), ("other.json", '{"layers":[]}')):
    path = os.path.join(HOME, name)
    with open(path, "w") as f:
        f.write(text)
    raises(lambda: save(ids[:1], path), path, "no importance file", name=f"{name} is somebody else's")
    equal(read(path), text, "and stays")
raises(lambda: save(ids[:1], os.path.join(HOME, "no", "x.json")), os.path.join(HOME, "no"), name="a directory that is not there")
for text, words in (("", ("the importance",)), ("[1]", ('no object "layers"',)), ('{"layers":{},"tokens":-1}', ("tokens",))):
    raises(lambda: one("SELECT waste_importance_save(?, ?)", FILE, text), *words, name=f"{text!r} is not saved")
equal((read(), one("SELECT waste_importance_save(?, NULL)", FILE), one("SELECT waste_importance_save(NULL, '{}')")), (whole, None, None), "nor is NULL")
raises(lambda: save(ids, add=os.path.join(HOME, "none.json")), "none.json", name="add to a file that is not there")
with open(FILE, "w") as f:
    f.write(json.dumps({"layers": json.loads(whole)["layers"]}))
raises(lambda: save(ids, add=FILE), FILE, "how many tokens", name="a file without a count cannot be added to")
with open(FILE, "w") as f:
    f.write(json.dumps(json.loads(whole) | {"layers": {"1": json.loads(whole)["layers"]["1"]}}))
raises(lambda: save(ids, add=FILE), FILE, "lacks layer 2", name="nor one that lacks a layer")
one("SELECT waste_register('linear', ?)", cases.make("linear"))
raises(lambda: save(ids, model="linear", add=FILE), FILE, "\"gate_up\" of layer 1", "64", name="nor one of another model")

# -- arguments
raises(lambda: calibrate("m", ids, widow=5), "waste_calibrate", "'widow'", "'window'", name="a misspelt option")
raises(lambda: calibrate("m", ids, window=257), "window is 257", "256", name="a window larger than the context")
raises(lambda: calibrate("m", [[1, 2, 96]]), "token 96", "0..95", name="an id outside the vocabulary")
raises(lambda: one("SELECT waste_calibrate('m', 'text', '{\"tokens\":[1]}')"), "one of them", name="both a text and ids")
raises(lambda: one("SELECT waste_calibrate('m', 'text')"), "tokenizer", name="a text without a tokenizer")
raises(lambda: one("SELECT waste_calibrate('m', x'00')"), "the text", "BLOB", name="a BLOB")
raises(lambda: one("SELECT waste_calibrate(column1, NULL, '{\"tokens\":[1]}') FROM (VALUES ('m'), ('linear'))"), "the model differs", name="two models")
raises(lambda: one("SELECT waste_calibrate('m', NULL, json_object('tokens', json('[1]'), 'window', column1)) FROM (VALUES (3), (4))"),
       "option 'window' differs", name="two windows")
raises(lambda: calibrate(cases.make("linear-dense"), ids), "no experts", name="a model without experts")
equal(one("SELECT waste_calibrate('m', NULL)"), None, "a NULL text is nothing")
equal(one("SELECT waste_calibrate(NULL, 'x')"), None, "so is a NULL model")
equal(one("SELECT waste_calibrate('m', 'x') WHERE 0"), None, "so are no rows")
equal(calibrate("m", [[]]), None, "and an empty text")
equal(db.execute("SELECT x, waste_calibrate('m', NULL, json_object('tokens', json(t))) ->> 'tokens' FROM (SELECT column1 x, column2 t"
                 " FROM (VALUES (1, '[3]'), (2, '[3,4]'), (1, '[5,6]'))) GROUP BY x ORDER BY x").fetchall(), [(1, 3), (2, 2)], "a group each")

# -- a text
one("SELECT waste_register('chat', ?)", cases.make("tiny-chat"))
for options in ({}, {"markup": True}):
    n = one("SELECT json_array_length(waste_tokenize('chat', 'Hello<|sep|>', ?))", json.dumps(options))
    equal(one("SELECT waste_calibrate('chat', 'Hello<|sep|>', ?) ->> 'tokens'", json.dumps(options)), n, f"a text is tokenized, {n} tokens with {options}")

# -- interrupts, and errors after the first row
save(ids)
db.create_function("stop", 0, lambda: db.interrupt() or 1)
db.create_function("fail", 0, lambda: 1 // 0)
long = json.dumps({"tokens": [5 + i % 80 for i in range(500000)]})
raises(lambda: one("SELECT waste_importance_save(?, waste_calibrate('m', NULL, CASE WHEN stop() THEN ? END))", FILE, long), "interrupted",
       name="an interrupt ends it")
for what in ("stop()", "fail()"):
    raises(lambda: one(f"SELECT waste_importance_save(?, waste_calibrate('m', NULL, o)) FROM (SELECT '{{\"tokens\":[7]}}' AS o"
                       f" UNION ALL SELECT CASE WHEN {what} THEN ? END)", FILE, long), "interrupted" if what == "stop()" else "exception",
           name=f"{what} in the second row")
equal(read(), whole, "the file stays as it was")
equal(calibrate("m", ids), whole, "and the next call works")
memory = one("SELECT memory_bytes FROM waste_stats WHERE path = ?", cases.make("k3"))
raises(lambda: calibrate("m", [[1], [1, 2, 96]]), "token 96", name="an error in a later row")
equal(one("SELECT memory_bytes FROM waste_stats WHERE path = ?", cases.make("k3")), memory, "holds no memory")

# -- what it is for
source, target = os.path.join(HOME, "checkpoint"), os.path.join(HOME, "model.waste")
checkpoint.model(source, experts="BF16")
db.execute("SELECT max(done) FROM waste_convert(?, ?)", (source, target)).fetchone()
with open(os.path.join(target, "experts-L1.bin"), "rb") as f:
    plain = f.read()
os.unlink(FILE)
save([[i * 7 % 2000 for i in range(300)]], model=target)
for options, same in (({"importance": FILE}, False), ({}, True)):
    db.execute("SELECT max(done) FROM waste_convert(?, ?, ?)", (source, target, json.dumps(dict(options, overwrite=True)))).fetchone()
    with open(os.path.join(target, "experts-L1.bin"), "rb") as f:
        equal(f.read() == plain, same, f"a conversion with {list(options)}: {'the same' if same else 'other'} bytes")
db.close()
shutil.rmtree(HOME)
done()
