"""The demo model as a container in the build folder, converted once per build."""
import fcntl
import json
import os

from tap import BUILD, EXTENSION, ROOT, connect

CHECKPOINT = os.path.join(ROOT, "examples", "demo", "checkpoint")
EVAL = os.path.join(ROOT, "examples", "demo", "eval.jsonl")
CONTAINER = os.path.join(BUILD, "tests", "demo.waste")


def container():
    """Path of the converted demo; several tests may ask at once."""
    os.makedirs(os.path.dirname(CONTAINER), exist_ok=True)
    with open(CONTAINER + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = os.path.join(CONTAINER, "manifest.json")
        if os.path.exists(done) and os.path.getmtime(done) >= os.path.getmtime(EXTENSION):
            return CONTAINER
        with_db = connect()
        with_db.execute("SELECT max(done) FROM waste_convert(?, ?, '{\"overwrite\":true}')",
                        (CHECKPOINT, CONTAINER)).fetchone()
        with_db.close()
    return CONTAINER


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
