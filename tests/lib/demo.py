"""The demo model as containers in the build folder, each converted once per build, and its held-out questions."""
import collections
import fcntl
import json
import os

from tap import BUILD, EXTENSION, ROOT, connect

CHECKPOINT = os.path.join(ROOT, "examples", "demo", "checkpoint")
EVAL = os.path.join(ROOT, "examples", "demo", "eval.jsonl")


def container(effort="default"):
    """Path of the converted demo; several tests may ask at once."""
    path = os.path.join(BUILD, "tests", "demo.waste" if effort == "default" else f"demo-{effort}.waste")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = os.path.join(path, "manifest.json")
        if os.path.exists(done) and os.path.getmtime(done) >= os.path.getmtime(EXTENSION):
            return path
        with_db = connect()
        with_db.execute("SELECT max(done) FROM waste_convert(?, ?, json_object('overwrite', json('true'), 'effort', ?))",
                        (CHECKPOINT, path, effort)).fetchone()
        with_db.close()
    return path


def rows():
    with open(EVAL, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def _attribute(k, v):
    return [(" " + k, 0), ('="', 0), (v, 0), ('"', 0)]


def segments(messages):
    """The conversation as K3's segments (text, is markup), answer channel left open."""
    out = []
    for m in messages:
        a = m["role"] == "assistant"
        out += [("<|open|>", 1), ("message", 0)] + _attribute("role", m["role"]) + [("<|sep|>", 1)]
        if a:
            out += [("<|open|>", 1), ("response", 0), ("<|sep|>", 1)]
        out.append((m["content"], 0))
        if a:
            out += [("<|close|>", 1), ("response", 0), ("<|sep|>", 1)]
        out += [("<|close|>", 1), ("message", 0), ("<|sep|>", 1), ("<|end_of_msg|>", 1)]
    out += [("<|open|>", 1), ("message", 0)] + _attribute("role", "assistant") + [("<|sep|>", 1)]
    return out + [("<|open|>", 1), ("response", 0), ("<|sep|>", 1)]


def prompt_tokens(db, model, messages):
    ids = []
    for text, markup in segments(messages):
        got = db.execute("SELECT waste_tokenize(?, ?, json_object('markup', json(?)))",
                         (model, text, "true" if markup else "false")).fetchone()[0]
        ids += json.loads(got)
    return ids


def exact(db, model, part):
    """For each skill, which of these rows the model answers with exactly the text that they expect."""
    db.execute("CREATE TEMP TABLE asked(n INTEGER PRIMARY KEY, prompt TEXT, options TEXT)")
    for n, r in enumerate(part):
        prompt, options = r["messages"][0]["content"], {"max_tokens": 80}
        if len(r["messages"]) > 1:
            prompt, options = None, dict(options, tokens=prompt_tokens(db, model, r["messages"]), stop="<|close|>")
        db.execute("INSERT INTO asked VALUES (?, ?, ?)", (n, prompt, json.dumps(options)))
    text = dict(db.execute("SELECT key, text FROM waste_batch(?, 'SELECT n, prompt, options FROM asked', '{\"parallel\":64}')", (model,)))
    db.execute("DROP TABLE asked")
    right = collections.defaultdict(list)
    for n, r in enumerate(part):
        right[r["skill"]].append(text[n] == r["answer"])
    return right
