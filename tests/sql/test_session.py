"""Sessions as rows: what waste_session, waste_chat, waste_chat_tokens and waste_fork take,
give and write, and what deleting does."""
import json
import os
import sqlite3
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import session as S  # noqa: E402
from session import fresh, messages, number, one, orphans, stats, turn  # noqa: E402
from tap import ROOT, connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

CHAT, PLAIN, TEXT = cases.make("tiny-chat"), cases.make("tiny-plain"), cases.make("tiny-text")
db = fresh("basic.db", CHAT)


def rows(sql, *args):
    return db.execute(sql, args).fetchall()


# -- making
equal(one(db, "SELECT waste_session('m')"), 1, "a session is a number")
equal(one(db, "SELECT waste_session('m', 'talk')"), 2, "the next another")
equal(one(db, "SELECT waste_session('m', 'talk')"), 2, "a name leads back to it")
equal(one(db, "SELECT waste_session('m', 'set', '{\"system\":\"Be kind.\",\"max_tokens\":5,\"state\":3}')"), 3, "with options")
equal(rows("SELECT role, content, tokens FROM waste_messages WHERE session = 3"), [("system", "Be kind.", None)], "the system text is a message")
equal(rows("SELECT name, model, options, keep, n_tokens, state_rev FROM waste_sessions WHERE id = 3"),
      [("set", "m", '{"max_tokens":5}', 3, 0, 0)], "and the rest is in the row")
equal(one(db, "SELECT waste_session(NULL)"), None, "no model, no session")
equal(one(db, "SELECT waste_session('m', NULL, NULL)"), 4, "NULL is not given")
db.commit()
for sql, args, words, name in (
        ("SELECT waste_session('n')", (), ("no model 'n'",), "an unknown model"),
        ("SELECT waste_session('m', '12')", (), ("'12' is a number",), "a name that is a number"),
        ("SELECT waste_session('m', 'talk', '{\"max_tokens\":7}')", (), ("'talk'", "other options"), "a name with other options"),
        ("SELECT waste_session('m', 'x', '{\"max_token\":7}')", (), ("max_token", "max_tokens"), "an unknown option, and the nearest"),
        ("SELECT waste_session('m', 'x', '{\"state\":0}')", (), ("state", "none"), "a state of 0 turns"),
        ("SELECT waste_session('m', 'x', '{\"state\":\"all\"}')", (), ("state", "keep"), "a state of another kind"),
        ("SELECT waste_session('m', 'x', '{\"system\":5}')", (), ("system", "an integer", "text"), "a system that is no text"),
        ("SELECT waste_session('m', 'x', '{\"temperature\":-1}')", (), ("temperature",), "a bad value for its turns"),
        ("SELECT waste_session('m', 'x', '{\"role\":\"tool\"}')", (), ("role", "single message"), "an option of messages"),
        ("SELECT waste_chat(77, 'Hi')", (), ("no session 77",), "no such number"),
        ("SELECT waste_chat('none', 'Hi')", (), ("no session 'none'",), "no such name"),
        ("SELECT waste_chat(1.5, 'Hi')", (), ("a number or a name",), "a session of another type"),
        ("SELECT waste_chat(1)", (), ("needs a session and a message",), "no message"),
        ("SELECT waste_chat(1, x'00')", (), ("BLOB",), "a message of bytes"),
        ("SELECT waste_chat(1, 'Hi', '{\"system\":\"x\"}')", (), ("system", "waste_session"), "a session's option"),
        ("SELECT waste_chat(1, 'Hi', '{\"role\":\"assistant\"}')", (), ("role", "assistant", "user, tool or system"), "a role that is the model's"),
        ("SELECT waste_chat(1, 'Hi', '{\"add_generation_prompt\":false}')", (), ("add_generation_prompt",), "an option that makes no sense"),
        ("SELECT waste_chat(1, 'Hi', '{\"max_tokens\":0}')", (), ("max_tokens",), "a bad value"),
        ("SELECT waste_chat(1, 'Hi', '{}', x'00')", (), ("argument 4", "BLOB"), "a part of bytes"),
        ("SELECT waste_fork(77)", (), ("no session 77",), "a fork of nothing"),
        ("SELECT waste_fork(1, NULL, '{\"at\":9}')", (), ("no message 9",), "a fork where nothing is"),
        ("SELECT waste_fork(1, 'talk')", (), ("UNIQUE",), "a fork with a name that is taken"),
        ("SELECT count(*) FROM waste_chat_tokens(1)", (), ("waste_chat_tokens needs a session and a message",), "a table without its arguments")):
    raises(lambda s=sql, a=args: rows(s, *a), *words, name=name)
equal(one(db, "SELECT count(*) FROM waste_messages WHERE role <> 'system'"), 0, "none of them has written anything")
ok(not db.in_transaction, "or left a transaction open")

# -- a turn
equal(one(db, "SELECT waste_chat('talk', 'Hi')"), "Hello, world!", "a reply")
got = rows("SELECT seq, role, content, finish, n_tokens = length(tokens) / 4, span IS NOT NULL FROM waste_messages WHERE session = 2 ORDER BY seq")
equal(got, [(0, "user", "Hi", None, 1, 1), (1, "assistant", "Hello, world!", "stop", 1, 1)], "makes two rows")
s = stats(db, "talk")
equal([s[k] for k in ("reused", "source", "rejected")], [0, "none", 0], "the first is computed")
equal(s["prefilled"], s["prompt_tokens"], "all of it")
ok(not db.in_transaction, "in a transaction of its own")
equal(one(db, "SELECT waste_chat(2, 'Again', NULL, 'part one', NULL, 'part two')"), "Hello, world!", "by number, with parts")
equal(one(db, "SELECT content FROM waste_messages WHERE session = 2 AND seq = 2"), "Again\n\npart one\n\npart two", "which are of the message")
s = stats(db, "talk")
equal(s["reused"], one(db, "SELECT sum(n_tokens) FROM waste_messages WHERE session = 2 AND seq < 2"), "only what is new is computed")
equal(rows("SELECT n_tokens, state_rev FROM waste_sessions WHERE id = 2"),
      [(one(db, "SELECT sum(n_tokens) FROM waste_messages WHERE session = 2"), 2)], "the session counts along")
equal(one(db, "SELECT waste_chat(2, NULL)"), None, "no message, no reply")
equal(one(db, "SELECT waste_chat(NULL, 'Hi')"), None, "no session, no reply")
equal(one(db, "SELECT count(*) FROM waste_messages WHERE session = 2"), 4, "and no rows")

# -- streaming
table = rows("SELECT n, piece, region, finish, typeof(hits), typeof(ms) FROM waste_chat_tokens('talk', 'More')")
equal("".join(r[1] for r in table), "Hello, world!", "pieces are the reply")
equal([r[0] for r in table], list(range(1, len(table) + 1)), "n counts")
equal([r[3] for r in table], [None] * (len(table) - 1) + ["stop"], "the last says how it ended")
equal(messages(db, "talk")[-1][1], "Hello, world!", "and the turn is written")
before = S.everything(db)
equal(len(rows("SELECT n FROM waste_chat_tokens('talk', 'More') LIMIT 2")), 2, "stopping to read")
equal(S.everything(db), before, "is as if nothing had been said")
equal(rows("SELECT n FROM waste_chat_tokens('talk', NULL)") + rows("SELECT n FROM waste_chat_tokens(NULL, 'x')"), [], "NULL gives no rows")
top = rows("SELECT json_array_length(top), token FROM waste_chat_tokens('talk', 'More', '{\"logprobs\":2}')")
ok(all(r[0] == 2 for r in top), "logprobs have a place")
equal(one(db, "SELECT group_concat(t.piece, '') FROM waste_sessions s, waste_chat_tokens(s.id, 'From a join') t WHERE s.name = 'talk'"),
      "Hello, world!", "joined with the sessions")

# -- options: the session's, and the turn's over them
one(db, "SELECT waste_chat('set', 'Hi')")
equal(messages(db, "set")[0][0], "system", "the system text comes first")
ok(one(db, "SELECT n_tokens FROM waste_messages WHERE session = 3 AND seq = 0") > 0, "and has been read")
one(db, "SELECT waste_chat('set', 'Hi', '{\"max_tokens\":2}')")
equal(rows("SELECT content, finish FROM waste_messages WHERE session = 3 ORDER BY seq DESC LIMIT 1"), [("Hello,", "length")], "cut off by the turn's option")
equal(one(db, "SELECT waste_chat('set', 'Hi')"), "Hello, world!", "a conversation goes on after that")
equal(one(db, "SELECT count(DISTINCT span) FROM waste_state WHERE part = 'state' AND span IN (SELECT span FROM waste_messages WHERE session = 3)"), 3,
      "state 3: of three turns it is there")
equal(one(db, "SELECT count(DISTINCT span) FROM waste_state WHERE part = 'state' AND span IN (SELECT span FROM waste_messages WHERE session = 2)"), 1,
      "by default of the last")
one(db, "SELECT waste_session('m', 'bare', '{\"state\":\"none\"}')")
one(db, "SELECT waste_chat('bare', 'Hi')")
one(db, "SELECT waste_chat('bare', 'Hi')")
equal(one(db, "SELECT count(*) FROM waste_state WHERE span IN (SELECT span FROM waste_messages WHERE session = ?)", number(db, "bare")), 0, "none: no rows")
equal(stats(db, "bare")["source"], "memory", "but memory serves")
one(db, "SELECT waste_chat('talk', 'four', '{\"role\":\"system\"}')")
equal(messages(db, "talk")[-2][0], "system", "a message of another role")
one(db, "SELECT waste_chat('talk', '18 C', '{\"tool_call_id\":\"call_1\",\"name\":\"weather\"}')")
equal(rows("SELECT role, name, tool_call_id FROM waste_messages WHERE session = 2 ORDER BY seq DESC LIMIT 1 OFFSET 1"), [("tool", "weather", "call_1")],
      "a tool's result")

# -- messages somebody else wrote are read with the next turn
one(db, "SELECT waste_session('m', 'import')")
n = number(db, "import")
for i, (role, text) in enumerate((("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello!"))):
    db.execute("INSERT INTO waste_messages(session, seq, role, content) VALUES(?, ?, ?, ?)", (n, i, role, text))
db.commit()
a = turn(db, "import", "And now?")
ok(all(r[0] > 0 for r in rows("SELECT n_tokens FROM waste_messages WHERE session = ?", n)), "each message gets its tokens")
prompt = json.dumps([{"role": r, "content": c} for r, c, _ in messages(db, "import")[:-1]])
equal(stats(db, "import")["prompt_tokens"], json.loads(one(db, "SELECT waste_chat_json('m', ?, '{\"thinking\":false,\"max_tokens\":1}')", prompt))["usage"]["prompt_tokens"],
      "as many as the conversation has")
db.execute("UPDATE waste_messages SET content = 'Goodbye!', tokens = NULL WHERE session = ? AND seq = 2", (n,))
db.commit()
turn(db, "import", "And then?")
s = stats(db, "import")
equal(s["reused"], 0, "an edited message is read again, with what follows")
ok(one(db, "SELECT count(*) FROM waste_messages WHERE session = ? AND tokens IS NULL", n) == 0, "and all have their tokens")
equal(orphans(db), 0, "what the old text had left is gone")

# -- deleting, with and without foreign keys
for on in (0, 1):
    db.execute(f"PRAGMA foreign_keys = {on}")
    a, b = one(db, "SELECT waste_session('m')"), None
    one(db, "SELECT waste_chat(?, 'Hi')", a)
    b = one(db, "SELECT waste_fork(?)", a)
    spans = {r[0] for r in rows("SELECT span FROM waste_messages WHERE session = ?", a)}
    db.execute("DELETE FROM waste_sessions WHERE id = ?", (a,))
    equal(rows("SELECT 1 FROM waste_messages WHERE session = ?", a), [], f"foreign_keys {on}: messages go with their session")
    equal({r[0] for r in rows("SELECT span FROM waste_state")} & spans, spans, "state that a fork has stays")
    equal(one(db, "SELECT parent FROM waste_sessions WHERE id = ?", b), None, "the fork has no parent any more")
    db.execute("DELETE FROM waste_sessions WHERE id = ?", (b,))
    equal({r[0] for r in rows("SELECT span FROM waste_state")} & spans, set(), "and goes with the last that has it")
    equal(orphans(db), 0, "no orphans")
    db.commit()
new = one(db, "SELECT waste_session('m')")
ok(new > b, "numbers are not given twice")
db.rollback()

# -- fork: rows
f = one(db, "SELECT waste_fork('talk', 'copy', '{\"at\":2}')")
equal(messages(db, "copy"), messages(db, "talk")[:3], "a fork has the messages up to there")
equal(rows("SELECT name, model, parent, n_tokens FROM waste_sessions WHERE id = ?", f),
      [("copy", "m", 2, one(db, "SELECT sum(n_tokens) FROM waste_messages WHERE session = ?", f))], "and knows where it comes from")
equal(one(db, "SELECT waste_chat('copy', 'On')"), "Hello, world!", "it goes on")
equal(one(db, "SELECT waste_fork(NULL)"), None, "NULL")

# -- other formats
one(db, "SELECT waste_session(?, 'plain')", PLAIN)
one(db, "SELECT waste_chat('plain', 'Hi', '{\"max_tokens\":6}')")
one(db, "SELECT waste_chat('plain', 'Hi', '{\"max_tokens\":6}')")
ok(stats(db, "plain")["reused"] > 0, "a chat.json, by the path of its model")
one(db, "SELECT waste_session(?, 'text')", TEXT)
raises(lambda: one(db, "SELECT waste_chat('text', 'Hi')"), "chat format", name="a model without a chat format")
raises(lambda: one(db, "SELECT waste_chat('plain', 'Hi', '{\"thinking\":true}')"), "thinking", name="what the format has no place for")

# -- views and triggers of a file cannot talk
db.execute("CREATE VIEW v AS SELECT waste_chat(2, 'Hi') AS x")
raises(lambda: one(db, "SELECT x FROM v"), "unsafe use", name="not from a view")
db.execute("DROP VIEW v")
db.execute("CREATE TEMP TRIGGER loop AFTER INSERT ON main.waste_messages BEGIN SELECT waste_chat(2, 'Hi'); END")
raises(lambda: one(db, "SELECT waste_chat(2, 'Hi')"), name="a trigger that calls itself ends")
db.execute("DROP TRIGGER loop")
db.rollback()

# -- the recipes work without the extension
with open(os.path.join(ROOT, "sql", "recipes", "chat.sql"), encoding="utf-8") as f:
    recipes = [r for r in f.read().split(";\n") if r.strip()]
db.commit()
tool = sqlite3.connect(S.file("basic.db"))
given = {"session": 2, "words": "hello"}
answers = [tool.execute(r, {k: v for k, v in given.items() if ":" + k in r}).fetchall() for r in recipes]
tool.rollback()
tool.close()
equal([len(a) > 0 for a in answers], [" DELETE" not in " " + r.split("\n", 1)[-1] and "DELETE" not in r for r in recipes], "every recipe runs, and the queries find something")
said = json.loads(answers[-1][0][0])
equal([m["role"] for m in said[:2]], ["user", "assistant"], "a conversation as OpenAI messages")
ok(one(db, "SELECT json_valid(waste_chat_json('m', ?, '{\"max_tokens\":2,\"thinking\":false}'))", json.dumps(said[:1])), "which the stateless function takes")

# -- a database without the tables
bare = connect()
raises(lambda: one(bare, "SELECT waste_chat(1, 'Hi')"), "waste_sessions", "waste_setup", name="no tables")
raises(lambda: one(bare, "SELECT waste_fork(1)"), "waste_sessions", name="nothing to fork")
equal(one(bare, "SELECT waste_session(?)", CHAT), 1, "waste_session makes them")
equal(one(bare, "SELECT waste_chat(1, 'Hi')"), "Hello, world!", "in memory, too")
bare.execute("DROP TABLE waste_state")
raises(lambda: one(bare, "SELECT waste_chat(1, 'Hi')"), "waste_state", "waste_setup", name="one is missing")
equal(one(bare, "SELECT count(*) FROM waste_messages"), 2, "then nothing is written")
one(bare, "SELECT waste_setup()")
bare.commit()
equal(one(bare, "SELECT waste_chat(1, 'Hi')"), "Hello, world!", "waste_setup mends it")
done()
