"""{"truncate":"oldest"}: a conversation that has outgrown the context goes on without its
oldest turns. Whole turns, never what the system said or what was declared, never a call
without its result; the rows stay, and the state is that of the shorter conversation."""
import json
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "lib"), TESTS]
import session as S  # noqa: E402
from session import fresh, head, messages, number, one, orphans, process, stats, turn  # noqa: E402
from tap import connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

CHAT, PLAIN, TOOL = cases.make("tiny-chat"), cases.make("tiny-plain"), cases.make("tiny-tool")
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]
SAID = "One two three four five six seven, turn %d."


def small(name, model, context, **options):
    db = fresh(name, model, dict(options))
    db.execute("UPDATE waste_models SET options = json_object('context', ?)", (context,))
    db.commit()
    return db


def shown(db, session="s"):
    return db.execute("SELECT seq, role, content, tokens FROM waste_messages WHERE session = ? AND omitted IS NULL ORDER BY seq",
                      (number(db, session),)).fetchall()


def ids(blobs):
    all_ = b"".join(blobs)
    return [int.from_bytes(all_[i:i + 4], "little") for i in range(0, len(all_), 4)]


def own(name, db, model, context, options, text, session="s"):
    """The next turn in a session that has nothing but what is shown."""
    f = small(name, model, context, **options)
    f.execute("DELETE FROM waste_messages")
    for seq, role, content, tokens in shown(db, session):
        f.execute("INSERT INTO waste_messages(session, seq, role, content, tokens, n_tokens, tokens_sum) VALUES(1, ?, ?, ?, ?, ?, ?)",
                  (seq, role, content, tokens, len(tokens) // 4, one(db, "SELECT tokens_sum FROM waste_messages WHERE session = ? AND seq = ?", number(db, session), seq)))
    f.commit()
    got = [turn(f, "s", text), head(f, "s")]
    f.close()
    return got


for kind, model, context, options in (("chat", CHAT, 300, {"system": "Be kind."}), ("plain", PLAIN, 600, {"system": "Be kind."}), ("bare", CHAT, 300, {}),
                                      ("tools", CHAT, 600, {"tools": TOOLS})):
    options = dict(options, truncate="oldest", max_tokens=8)
    db = small(f"{kind}.db", model, context, **options)
    head_n = 1 if "system" in options else 0
    cuts, lengths = [], []
    for i in range(24):
        turn(db, "s", SAID % i)
        s = stats(db, "s")
        rows = shown(db)
        lengths.append(sum(len(r[3]) for r in rows) // 4)
        if s["omitted"]:
            cuts.append(i)
            gone = db.execute("SELECT count(*), sum(n_tokens) FROM waste_messages WHERE omitted = (SELECT max(seq) - 1 FROM waste_messages)").fetchone()
            equal([s["omitted"], s["omitted_tokens"]], list(gone), f"{kind}, turn {i}: it says what was left out")
            ok(lengths[-1] < lengths[-2], f"{kind}, turn {i}: what is left is shorter")
            equal(s["reused"] if s["source"] != "rows" else 0, 0, f"{kind}, turn {i}: and computed anew")
        equal([r[1] for r in rows[:head_n + 1]], ["system"] * head_n + ["user"], f"{kind}, turn {i}: what the system said stays, then a turn begins")
        equal([r[1] for r in rows[head_n:]], ["user", "assistant"] * ((len(rows) - head_n) // 2), f"{kind}, turn {i}: whole turns")
        if "tools" in options:
            ok("get_weather" in one(db, "SELECT waste_detokenize('m', ?)", json.dumps(ids([rows[0][3]]))), f"{kind}, turn {i}: the declaration stays")
    ok(len(cuts) >= 2 and max(lengths) <= context, f"{kind}: {len(cuts)} times in 24 turns, within the context")
    ok(all(b - a > 1 for a, b in zip(cuts, cuts[1:])), f"{kind}: not at every turn")
    equal(one(db, "SELECT count(*) FROM waste_messages"), 48 + head_n, f"{kind}: all messages are there")
    equal(db.execute("SELECT content FROM waste_messages WHERE role = 'user' ORDER BY seq").fetchall(), [(SAID % i,) for i in range(24)], f"{kind}: as they were")
    equal(one(db, "SELECT n_tokens FROM waste_sessions"), lengths[-1], f"{kind}: the session counts what is shown")
    equal(orphans(db), 0, f"{kind}: no state of what is gone")
    equal(one(db, "SELECT count(*) FROM waste_messages WHERE omitted IS NOT NULL AND span IS NOT NULL"), 0, f"{kind}: nor for what was left out")
    # the tokens are those of rendering what is shown
    chat = [{"role": r, "content": c} for _, r, c, _ in shown(db)]
    if kind in ("plain", "bare"):
        rendered = []
        for g in json.loads(one(db, "SELECT waste_render('m', ?, '{\"add_generation_prompt\":false,\"thinking\":false}')", json.dumps(chat[:head_n + 1]))):
            rendered += json.loads(one(db, "SELECT waste_tokenize('m', ?, json_object('markup', json(?)))", g["text"], "true" if g["markup"] else "false"))
        equal(ids([r[3] for r in shown(db)])[:len(rendered)], rendered, f"{kind}: it begins as if it had never been longer")
    db.commit()
    # in another process the state comes from rows, and is that of the shorter conversation
    want = own(f"{kind}-own.db", db, model, context, options, "And now?")
    again = process(f"{kind}.db", "t = turn(db, 's', 'And now?'); print(json.dumps([t, head(db, 's'), stats(db, 's')]))")
    equal([[tuple(x) for x in again[0]], [tuple(x) for x in again[1]]], want, f"{kind}: not a bit differs from a session with nothing else in it")
    if not again[2]["omitted"]:
        equal([again[2]["source"], again[2]["rejected"]], ["rows", 0], f"{kind}: from rows")
    # forks: after the cut, and before it
    n = number(db, "s")
    first = one(db, "SELECT min(omitted) FROM waste_messages")
    one(db, "SELECT waste_fork('s', 'late')")
    one(db, "SELECT waste_fork('s', 'early', ?)", json.dumps({"at": first - 1}))
    equal([r[:3] for r in shown(db, "late")], [r[:3] for r in shown(db)], f"{kind}: a fork is shown the same")
    equal(len(shown(db, "early")), first, f"{kind}: one from before the cut is shown everything")
    rejected = stats(db, "s")["rejected"]
    turn(db, "early", "Back then.")
    equal(stats(db, "early")["rejected"], 0, f"{kind}: it is read again, not found wrong")
    turn(db, "late", "Later.")
    turn(db, "s", "Later.")
    equal([stats(db, x)["rejected"] for x in ("late", "s")], [0, 0], f"{kind}: and takes nothing from the others")
    equal(orphans(db), 0, f"{kind}: no orphans after forks")
    db.close()

# -- a session that was not asked to: an error, and nothing written
db = small("none.db", CHAT, 300, max_tokens=8)
for i in range(40):
    try:
        turn(db, "s", SAID % i)
    except Exception as e:
        ok("context is 300" in str(e) and "nothing was written" in str(e), "without the option the full context is an error")
        break
before = S.everything(db)
raises(lambda: one(db, "SELECT waste_chat('s', ?)", SAID % 99), "context is 300", name="again")
equal(S.everything(db), before, "before anything is written")
one(db, "SELECT waste_chat('s', ?, '{\"truncate\":\"oldest\"}')", SAID % 99)
ok(stats(db, "s")["omitted"] > 0, "a turn may ask for it")
raises(lambda: one(db, "SELECT waste_chat('s', ?, '{\"truncate\":\"oldest\"}')", "word " * 400), "cannot be left out", "context is 300", name="what does not fit by itself is an error still")
raises(lambda: one(db, "SELECT waste_chat('s', 'x', '{\"truncate\":\"newest\"}')"), "truncate", "oldest", name="there is no such way")
raises(lambda: one(db, "SELECT waste_generate('m', 'x', '{\"truncate\":\"oldest\"}')"), "truncate", name="one prompt has no oldest turn")
equal(one(db, "SELECT count(*) FROM waste_messages WHERE omitted IS NOT NULL AND omitted > (SELECT max(seq) FROM waste_messages)"), 0, "errors mark nothing")
# a transaction takes it back
db.commit()
for i in range(40):
    before = S.everything(db)
    one(db, "BEGIN")
    one(db, "SELECT waste_chat('s', ?, '{\"truncate\":\"oldest\",\"max_tokens\":8}')", SAID % i)
    if stats(db, "s")["omitted"]:
        break
    db.commit()
db.rollback()
equal(S.everything(db), before, "a ROLLBACK brings back what was left out")
one(db, "SELECT waste_chat('s', 'x', '{\"truncate\":\"oldest\",\"max_tokens\":8}')")
ok(stats(db, "s")["rejected"] == 0, "with its state")
db.close()

# -- a call and its result go together
db = small("calls.db", TOOL, 700, tools=TOOLS, truncate="oldest")
for i in range(12):
    one(db, "SELECT waste_chat('s', 'What is the weather?')")
    equal(one(db, "SELECT waste_chat('s', 'sunny', '{\"tool_call_id\":\"call_1\"}')"), "It is sunny!", f"round {i}: the call is answered")
    roles = [r[1] for r in shown(db)]
    equal(roles, (["user", "assistant", "tool", "assistant"] * 12)[:len(roles)], f"round {i}: no result without its call")
    ok("get_weather" in one(db, "SELECT waste_detokenize('m', ?)", json.dumps(ids([shown(db)[0][3]]))), f"round {i}: the tools are declared")
ok(one(db, "SELECT count(*) FROM waste_messages WHERE omitted IS NOT NULL") > 8, "though turns were left out")
db.close()

# -- by hand: what a row says is what the model is shown
db = small("hand.db", CHAT, 1000, max_tokens=8)
for i in range(3):
    turn(db, "s", SAID % i)
db.execute("UPDATE waste_messages SET omitted = 0 WHERE seq IN (0, 1)")
db.commit()
turn(db, "s", SAID % 3)
equal(one(db, "SELECT n_tokens FROM waste_sessions"), sum(len(r[3]) for r in shown(db)) // 4, "a row marked by hand is left out")
db.close()
done()
