"""Sessions in tests: turns with everything that must not differ by a bit."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile

from tap import ROOT, connect

HOME = tempfile.mkdtemp()
WORDS = ("Hello there.", "How are you?", "What is 2 + 2?", "My name is Ada and I live in Oslo.", "Tell me more, please.",
         "One two three four five six seven.", "What is my name?", "Thank you.")


def one(db, sql, *args):
    row = db.execute(sql, args).fetchone()
    return row and row[0]


def file(name):
    return os.path.join(HOME, name)


def fresh(name, model, options=None, session=None, wal=False):
    """A database file with model 'm' registered and, if options are given, a session."""
    db = connect(file(name))
    if wal:
        one(db, "PRAGMA journal_mode = wal")
    one(db, "SELECT waste_register('m', ?)", model)
    if options is not None:
        one(db, "SELECT waste_session('m', ?, ?)", session or "s", json.dumps(options))
    db.commit()
    return db


def turn(db, session, text, **options):
    """The reply token by token: ids and log-probabilities, all bits of them."""
    options.setdefault("max_tokens", 12)
    return [(t, p.hex()) for t, p in db.execute("SELECT token, logprob FROM waste_chat_tokens(?, ?, ?)",
                                                (session, text, json.dumps(options)))]


def number(db, session):
    return session if isinstance(session, int) else one(db, "SELECT id FROM waste_sessions WHERE name = ?", session)


def stats(db, session):
    """Of the last reply."""
    return json.loads(one(db, "SELECT stats FROM waste_messages WHERE session = ? AND role = 'assistant' ORDER BY seq DESC LIMIT 1",
                          number(db, session)))


def messages(db, session):
    return db.execute("SELECT role, content, tokens FROM waste_messages WHERE session = ? ORDER BY seq",
                      (number(db, session),)).fetchall()


def head(db, session):
    """Checks of the state at the session's end: equal ones mean equal bytes."""
    return db.execute("SELECT layer, part, block, sum FROM waste_state WHERE part <> 'latents' AND span ="
                      " (SELECT span FROM waste_messages WHERE session = ? ORDER BY seq DESC LIMIT 1) ORDER BY 1, 2, 3",
                      (number(db, session),)).fetchall()


def orphans(db):
    """Rows that belong to nobody."""
    return one(db, "SELECT (SELECT count(*) FROM waste_state WHERE span NOT IN (SELECT span FROM waste_messages WHERE span IS NOT NULL))"
                   " + (SELECT count(*) FROM waste_messages WHERE session NOT IN (SELECT id FROM waste_sessions))")


def everything(db):
    """All rows of sessions, as counts and a digest, to see that nothing has changed."""
    out = []
    for t in ("waste_sessions", "waste_messages", "waste_state"):
        rows = db.execute(f"SELECT * FROM {t} ORDER BY 1, 2, 3, 4").fetchall()
        out.append((len(rows), hashlib.sha256(repr(rows).encode()).hexdigest()[:16]))
    return out


def process(name, code, *args):
    """Runs code in a process of its own, with db open on the file; what it prints as JSON."""
    head = ("import json, sys\n"
            f"sys.path[:0] = [{os.path.join(ROOT, 'tests', 'lib')!r}, {os.path.join(ROOT, 'tests')!r}]\n"
            "from session import *\n"
            "db, args = connect(sys.argv[1]), json.loads(sys.argv[2])\n")
    p = subprocess.run([sys.executable, "-c", head + code, file(name), json.dumps(args)], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True, timeout=600)
    if p.returncode:
        raise RuntimeError(p.stderr + p.stdout)
    return json.loads(p.stdout)
