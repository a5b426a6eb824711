#!/usr/bin/python3
"""A chat in the terminal. The conversation is rows in a database file: end the program,
start it again, and it goes on; nothing but your new words is computed.

    make demo                                       builds, and converts the demo model
    examples/python/chat.py                         talks to it, in chat.db
    examples/python/chat.py --model /models/k3.waste --session work --db talk.db

Needs Python's own sqlite3 module, with loadable extensions (Debian's has them).
Commands: /fork NAME goes on in a copy, /undo takes the last turn back, /log shows all.
"""
import argparse
import os
import sqlite3
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def connect(path, extension):
    db = sqlite3.connect(path, isolation_level=None)  # a turn is a transaction of its own
    db.enable_load_extension(True)
    db.load_extension(extension)
    db.enable_load_extension(False)
    db.execute("PRAGMA journal_mode = wal")
    return db


def one(db, sql, *args):
    return db.execute(sql, args).fetchone()[0]


def say(db, session, text):
    """The reply, piece by piece. Ctrl-C stops it; then nothing has been said."""
    cursor = db.execute("SELECT piece FROM waste_chat_tokens(?, ?)", (session, text))
    try:
        for (piece,) in cursor:
            print(piece, end="", flush=True)
        print()
    except KeyboardInterrupt:
        print(" [taken back]")
    finally:
        cursor.close()


def undo(db, session):
    """A row that goes takes its state along; the rest stays."""
    db.execute("DELETE FROM waste_messages WHERE session = ?1 AND seq >="
               " (SELECT max(seq) FROM waste_messages WHERE session = ?1 AND role = 'user')", (session,))


def command(db, session, line):
    word, _, rest = line.partition(" ")
    if word == "/log":
        for role, content in db.execute("SELECT role, content FROM waste_messages WHERE session = ? ORDER BY seq", (session,)):
            print(f"{role}: {content}")
    elif word == "/undo":
        undo(db, session)
    elif word == "/fork" and rest:
        return one(db, "SELECT waste_fork(?, ?)", session, rest)
    else:
        print("/fork NAME, /undo, /log")
    return session


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--model", default=os.path.join(ROOT, "examples", "demo", "demo.waste"))
    p.add_argument("--session", default="chat")
    p.add_argument("--db", default="chat.db")
    p.add_argument("--extension", default=os.path.join(ROOT, "build", "waste"))
    a = p.parse_args()
    db = connect(a.db, a.extension)
    # the state of two turns is kept, so that /undo costs nothing
    session = one(db, "SELECT waste_session(?, ?, '{\"state\":2}')", os.path.abspath(a.model), a.session)
    known = one(db, "SELECT count(*) FROM waste_messages WHERE session = ?", session)
    if known:
        print(f"[{known} messages so far]")
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
        try:
            if line.startswith("/"):
                session = command(db, session, line)
            elif line:
                say(db, session, line)
        except sqlite3.Error as e:
            print(f"error: {e}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
