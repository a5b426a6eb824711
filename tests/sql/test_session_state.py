"""A session's state as rows: whatever happens between two turns, the next one gives the
very bits that an unbroken run gives."""
import json
import os
import shutil
import sqlite3
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import demo  # noqa: E402
import session as S  # noqa: E402
from session import WORDS, fresh, head, messages, number, one, orphans, process, stats, turn  # noqa: E402
from tap import SANITIZED, connect, done, equal, ok, skip  # noqa: E402
from tiny import cases, driver  # noqa: E402

MODELS = {"tiny-chat": cases.make("tiny-chat"), "tiny-plain": cases.make("tiny-plain")}
TURNS = 4


def unbroken(model, keep=1, texts=WORDS[:TURNS]):
    """What each turn gives, and the state after it, in one go."""
    db = fresh(f"unbroken-{os.path.basename(model)}-{keep}-{len(S.HOME)}.db", model, {"state": keep, "system": "Be kind."})
    out = []
    for text in texts:
        out.append([turn(db, "s", text), head(db, "s")])
    got = messages(db, "s")
    db.close()
    os.remove(S.file(f"unbroken-{os.path.basename(model)}-{keep}-{len(S.HOME)}.db"))
    return out, got


def new_tokens(db, session):
    """Of the last turn's prompt: its message, and what gives the model the floor."""
    s = stats(db, session)
    known = one(db, "SELECT sum(n_tokens) FROM waste_messages WHERE session = ? AND seq <"
                    " (SELECT max(seq) - 1 FROM waste_messages WHERE session = ?)", *[number(db, session)] * 2)
    return s["prompt_tokens"] - known


for name, model in MODELS.items():
    want, conversation = unbroken(model)

    # -- every turn in a process of its own
    for wal in (False, True):
        file = f"{name}-{wal}.db"
        fresh(file, model, {"state": 1, "system": "Be kind."}, wal=wal).close()
        got = []
        for text in WORDS[:TURNS]:
            got.append(process(file, "t = turn(db, 's', args[0])\n"
                                     "print(json.dumps([t, head(db, 's'), stats(db, 's')]))", text))
        how = f"{name}, {'WAL' if wal else 'rollback journal'}"
        equal([[[tuple(x) for x in t], [tuple(x) for x in h]] for t, h, _ in got], want, f"{how}: a process per turn changes no bit")
        equal([s["source"] for _, _, s in got], ["none"] + ["rows"] * (TURNS - 1), f"{how}: each takes its state from rows")
        db = connect(S.file(file))
        equal(messages(db, "s"), conversation, f"{how}: nor a message")
        equal(got[-1][2]["prefilled"], new_tokens(db, "s"), f"{how}: only the new turn is computed")
        db.close()

    # -- dump and restore, VACUUM, a copy, an attached database, before the last turn
    def prepared(file):
        d = fresh(file, model, {"state": 1, "system": "Be kind."})
        for text in WORDS[:TURNS - 1]:
            turn(d, "s", text)
        d.close()
        return S.file(file)

    base = prepared(f"{name}-base.db")

    def check(d, how):
        t = turn(d, "s", WORDS[TURNS - 1])
        equal([t, head(d, "s")], want[-1], f"{name}, {how}: no bit changes")
        equal([stats(d, "s")[k] for k in ("source", "rejected", "prefilled")], ["rows", 0, new_tokens(d, "s")], f"{name}, {how}: nothing is computed again")
        d.close()

    plain = sqlite3.connect(base)
    restored = sqlite3.connect(S.file(f"{name}-restored.db"))
    restored.executescript("\n".join(plain.iterdump()))
    restored.close()
    check(connect(S.file(f"{name}-restored.db")), "dumped and restored without the extension")
    if shutil.which("sqlite3"):
        subprocess.run(f"sqlite3 {base} .dump | sqlite3 {S.file(name + '-shell.db')}", shell=True, check=True,
                       env=driver.environment())
        check(connect(S.file(f"{name}-shell.db")), "through the shell's .dump")
    else:
        skip("there is no sqlite3 shell", f"{name}, through the shell's .dump", 2)
    copy = sqlite3.connect(S.file(f"{name}-copy.db"))
    plain.backup(copy)
    plain.close()
    copy.execute("VACUUM")
    copy.close()
    check(connect(S.file(f"{name}-copy.db")), "backed up, then VACUUM")
    shutil.copy(base, S.file(f"{name}-attached.db"))
    d = connect()
    d.execute("ATTACH ? AS talk", (S.file(f"{name}-attached.db"),))
    check(d, "attached")
    d = connect()
    d.execute("ATTACH ? AS other", (S.file(f"{name}-attached.db"),))
    equal(one(d, "SELECT count(*) FROM other.waste_messages"), 2 * TURNS + 1, f"{name}: the turn is in the attached file")
    equal(one(d, "SELECT count(*) FROM main.sqlite_schema"), 0, f"{name}: and nothing in main")
    d.close()

    # -- a fork at every message equals a run of its own
    d = fresh(f"{name}-forks.db", model, {"state": 1, "system": "Be kind."})
    for text in WORDS[:TURNS]:
        turn(d, "s", text)
    last = one(d, "SELECT max(seq) FROM waste_messages")
    latents = one(d, "SELECT count(*) FROM waste_state WHERE part = 'latents'")
    for at in range(last + 1):
        one(d, "SELECT waste_fork('s', ?, ?)", f"f{at}", json.dumps({"at": at}))
    d.commit()
    equal(one(d, "SELECT count(*) FROM waste_state WHERE part = 'latents'"), latents, f"{name}: {last + 1} forks copy no latents")
    keys = d.execute("SELECT rowid, span, layer, block FROM waste_state WHERE part = 'latents' ORDER BY rowid").fetchall()
    got = {}
    for at in range(last + 1):
        got[at] = [turn(d, f"f{at}", "And what now?"), head(d, f"f{at}")]
    equal(d.execute("SELECT rowid, span, layer, block FROM waste_state WHERE part = 'latents' ORDER BY rowid").fetchall()[:len(keys)],
          keys, f"{name}: nor do their turns write the shared ones again")
    equal(stats(d, f"f{last}")["reused"], one(d, "SELECT n_tokens FROM waste_sessions WHERE id = 1"), f"{name}: a fork at the end goes on at once")
    d.execute("DELETE FROM waste_sessions WHERE id = 1")
    d.commit()
    for at in range(0, last + 1, 1 if not SANITIZED else 3):
        f = fresh(f"{name}-own{at}.db", model, {"state": 1})
        for seq, role, content in d.execute("SELECT seq, role, content FROM waste_messages WHERE session = ? AND seq <= ?", (number(d, f"f{at}"), at)).fetchall():
            f.execute("INSERT INTO waste_messages(session, seq, role, content, tokens, n_tokens, tokens_sum)"
                      " VALUES(1, ?, ?, ?, ?, ?, ?)", (seq, role, content) + d.execute(
                          "SELECT tokens, n_tokens, tokens_sum FROM waste_messages WHERE session = ? AND seq = ?", (number(d, f"f{at}"), seq)).fetchone())
        f.commit()
        own = [turn(f, "s", "And what now?"), head(f, "s")]
        equal(got[at], own, f"{name}: fork at message {at} equals a run of its own")
        f.close()
    # the parent is gone; in a process of its own, since memory would serve here
    for at in (0, last // 2, last):
        again = process(f"{name}-forks.db", "t = turn(db, args[0], 'And more?'); print(json.dumps([t, stats(db, args[0])]))", f"f{at}")
        equal(again[1]["source"], "rows", f"{name}: fork {at} has all it needs without its parent")
    equal(orphans(d), 0, f"{name}: no orphans")
    d.close()

    # -- a state that fails its check is computed again, and stored again
    want2, _ = unbroken(model, 2, WORDS[:TURNS + 1])
    damage = {
        "a byte of a state": "UPDATE waste_state SET data = CAST(substr(data, 1, 40) || x'7f' || substr(data, 42) AS BLOB) WHERE rowid = (SELECT max(rowid) FROM waste_state WHERE part = 'state')",
        "a byte of a ring": "UPDATE waste_state SET data = CAST(x'7f' || substr(data, 2) AS BLOB) WHERE part = 'ring'",
        "a byte of latents": "UPDATE waste_state SET data = CAST(substr(data, 1, length(data) - 1) || x'7f' AS BLOB) WHERE rowid = (SELECT min(rowid) FROM waste_state WHERE part = 'latents')",
        "a check": "UPDATE waste_state SET sum = sum + 1 WHERE rowid = (SELECT max(rowid) FROM waste_state WHERE part = 'state')",
        "a short row": "UPDATE waste_state SET data = CAST(substr(data, 1, length(data) - 4) AS BLOB) WHERE part = 'latents'",
        "text for a BLOB": "UPDATE waste_state SET data = 'x' WHERE part = 'state'",
        "rows that are gone": "DELETE FROM waste_state WHERE layer = 0",
        "no rows at all": "DELETE FROM waste_state",
        "rows of another span": "UPDATE waste_state SET data = (SELECT data FROM waste_state o WHERE o.part = 'latents' AND o.layer = waste_state.layer AND o.rowid < waste_state.rowid LIMIT 1) WHERE part = 'latents' AND rowid = (SELECT max(rowid) FROM waste_state WHERE part = 'latents')",
    }
    for what, sql in damage.items():
        shutil.copy(base, S.file("damaged.db"))
        d = connect(S.file("damaged.db"))
        changed = d.execute(sql).rowcount
        d.commit()
        t = turn(d, "s", WORDS[TURNS - 1])
        s = stats(d, "s")
        equal([t, head(d, "s")], want[-1], f"{name}, {what}: no bit changes")
        ok(changed > 0 and s["prefilled"] > new_tokens(d, "s"), f"{name}, {what}: it was computed again")
        ok(("gone" in what or "no rows" in what) == (s["rejected"] == 0), f"{name}, {what}: the turn says how many rows it rejected")
        d.close()
        s = process("damaged.db", "turn(db, 's', 'Next.'); print(json.dumps(stats(db, 's')))")
        equal([s["source"], s["rejected"]], ["rows", 0], f"{name}, {what}: what was stored is whole again")
    # the tokens themselves
    for what, sql in {"a token": "UPDATE waste_messages SET tokens = CAST(x'05' || substr(tokens, 2) AS BLOB) WHERE seq = 2",
                      "their sum": "UPDATE waste_messages SET tokens_sum = tokens_sum + 1 WHERE seq = 1",
                      "half a token": "UPDATE waste_messages SET tokens = CAST(substr(tokens, 2) AS BLOB) WHERE seq = 3"}.items():
        shutil.copy(base, S.file("damaged.db"))
        d = connect(S.file("damaged.db"))
        d.execute(sql)
        d.commit()
        turn(d, "s", WORDS[TURNS - 1])
        ok(stats(d, "s")["prefilled"] > new_tokens(d, "s"), f"{name}, {what}: messages are read again")
        ok(all(r[0] for r in d.execute("SELECT tokens IS NOT NULL FROM waste_messages")), f"{name}, {what}: and have their tokens")
        equal(orphans(d), 0, f"{name}, {what}: no orphans")
        d.close()

# -- another model under the same name
base = S.file("tiny-chat-base.db")
for what, other in (("other weights", "weights"), ("another tokenizer", "tiny-plain")):
    shutil.copy(base, S.file("changed.db"))
    if other == "weights":
        path = S.file("other.waste")
        shutil.copytree(MODELS["tiny-chat"], path)
        with open(os.path.join(path, "manifest.json")) as f:
            t = min((t for t in json.load(f)["trunk"] if "lm_head" not in t["name"] and "norm" in t["name"]), key=lambda t: t["off"])
        with open(os.path.join(path, "trunk.bin"), "r+b") as f:
            f.seek(t["off"] + 2)
            f.write(b"\x81")
    else:
        path = MODELS[other]
    d = connect(S.file("changed.db"))
    one(d, "SELECT waste_register('m', ?)", path)
    d.commit()
    t = turn(d, "s", WORDS[TURNS - 1])
    s = stats(d, "s")
    equal([s["source"], s["reused"]], ["none", 0], f"{what}: nothing is taken up")
    f = fresh("changed-own.db", path, {"state": 1})
    keep = "tokens, n_tokens, tokens_sum" if other == "weights" else "NULL, NULL, NULL"
    for row in d.execute(f"SELECT seq, role, content, {keep} FROM waste_messages WHERE session = 1 AND seq < (SELECT max(seq) - 1 FROM waste_messages)").fetchall():
        f.execute("INSERT INTO waste_messages(session, seq, role, content, tokens, n_tokens, tokens_sum) VALUES(1, ?, ?, ?, ?, ?, ?)", row)
    f.commit()
    equal(turn(f, "s", WORDS[TURNS - 1]), t, f"{what}: all is computed with it")
    f.close()
    os.remove(S.file("changed-own.db"))
    d.close()
    s = process("changed.db", "turn(db, 's', 'Next.'); print(json.dumps(stats(db, 's')))")
    equal([s["source"], s["rejected"]], ["rows", 0], f"{what}: from then on it is the session's model")

# -- precision and kv are part of what a model computes
for key, value in (("precision", "exact"), ("kv", "f16")):
    shutil.copy(base, S.file(f"{value}.db"))
    d = connect(S.file(f"{value}.db"))
    d.execute("UPDATE waste_models SET options = ?", (json.dumps({key: value}),))
    d.commit()
    t = turn(d, "s", WORDS[TURNS - 1])
    equal(stats(d, "s")["source"], "none", f"another {key}: computed again")
    d.close()
    s = process(f"{value}.db", "print(json.dumps([turn(db, 's', 'Next.'), stats(db, 's')]))")
    equal([s[1]["source"], s[1]["rejected"]], ["rows", 0], f"then rows of {key} {value} are taken up")
    d = connect(S.file(f"{value}.db"))
    d.execute("DELETE FROM waste_state")
    d.execute("DELETE FROM waste_messages WHERE seq >= (SELECT max(seq) - 1 FROM waste_messages)")
    d.commit()
    again = process(f"{value}.db", "print(json.dumps([turn(db, 's', 'Next.'), stats(db, 's')]))")
    equal([again[0], again[1]["source"]], [s[0], "none"], f"and computed anew they say the same ({key} {value})")
    d.close()

# -- the context
d = connect(S.file("context.db"))
one(d, "SELECT waste_register('small', ?, '{\"context\":200}')", MODELS["tiny-plain"])
one(d, "SELECT waste_session('small', 's')")
d.commit()
turn(d, "s", "Hello")
before = S.everything(d)
for _ in range(2):
    try:
        one(d, "SELECT waste_chat('s', ?)", "word " * 100)
        ok(False, "a full context is an error")
    except sqlite3.Error as e:
        ok(all(w in str(e) for w in ("session 1 ('s')", "context of", "200", "nothing was written") if w != "context of"), "a full context is an error that says what is there and needed")
equal(S.everything(d), before, "before anything is written")
for i in range(20):
    try:
        turn(d, "s", "Hi", max_tokens=100)
    except sqlite3.Error as e:
        ok("context is 200" in str(e), "at the end it is full")
        break
finish = [r[0] for r in d.execute("SELECT finish FROM waste_messages WHERE role = 'assistant'")]
ok("length" in finish and one(d, "SELECT n_tokens FROM waste_sessions") <= 200, "the last reply is cut so that its message can be ended")
d.close()

# -- many in turn: each as if alone
d = fresh("four.db", MODELS["tiny-chat"], {}, session="a")
for n in "bcd":
    one(d, "SELECT waste_session('m', ?)", n)
d.commit()
got = {n: [] for n in "abcd"}
for i in range(3):
    for k, n in enumerate("abcd"):
        got[n].append(turn(d, n, WORDS[(i + 2 * k) % len(WORDS)]))
for k, n in enumerate("abcd"):
    alone = fresh(f"alone-{n}.db", MODELS["tiny-chat"], {})
    equal([turn(alone, "s", WORDS[(i + 2 * k) % len(WORDS)]) for i in range(3)], got[n], f"session {n} of four equals its solo run")
    alone.close()
    equal(stats(d, n)["source"], "memory", f"and session {n} was kept in memory")
d.close()

done()
