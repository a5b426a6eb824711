"""A call that was answered already: once in a statement, and with "cache" in a table."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import demo  # noqa: E402
from tap import connect, done, equal, ok, raises  # noqa: E402

DEMO = demo.container()
path = os.path.join(tempfile.mkdtemp(), "m.db")
db = connect(path)
db.execute("SELECT waste_register('demo', ?)", (DEMO,))
db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, q TEXT)")
db.executemany("INSERT INTO t(q) VALUES (?)", [("What is the capital of Italy?",), ("What is 47 + 38?",), ("What is the capital of Italy?",)])
db.commit()
OFF = '{"prefix_cache":false}'


def rows(sql, *args):
    return db.execute(sql, args).fetchall()


def tokens():
    got = rows("SELECT tokens FROM waste_stats")
    return got[0][0] if got else 0


def cost(sql, *args):
    before = tokens()
    got = rows(sql, *args)
    return got, tokens() - before


single = dict((q, cost("SELECT waste_generate('demo', ?, ?)", q, OFF)) for q in {r[0] for r in rows("SELECT q FROM t")})
both = sum(c for _, c in single.values())
want = {q: got[0][0] for q, (got, _) in single.items()}

got, n = cost("SELECT id, waste_generate('demo', q, ?1) AS a FROM t WHERE a IS NOT NULL AND a <> '' ORDER BY a, id", OFF)
equal(sorted(got), [(i, want[q]) for i, q in rows("SELECT id, q FROM t")], "a call in SELECT, WHERE and ORDER BY")
equal(n, both, "is computed once, and so is the same prompt in two rows")
equal(cost("SELECT waste_generate('demo', 'What is 47 + 38?', ?)", OFF)[1], single["What is 47 + 38?"][1], "the next statement computes again")
got, n = cost("SELECT waste_generate_json('demo', 'What is 47 + 38?', ?1) ->> 'text', waste_generate('demo', 'What is 47 + 38?', ?1), "
              "waste_generate_json('demo', 'What is 47 + 38?', ?1) ->> 'text'", OFF)
equal(got, [(want["What is 47 + 38?"],) * 3], "as JSON and as text")
equal(n, 2 * single["What is 47 + 38?"][1], "are two calls, not three")
SAID, BRIEF = '[{"role":"user","content":"What is 47 + 38?"}]', '{"thinking":false,"prefix_cache":false}'
one_reply, n1 = cost("SELECT waste_chat_json('demo', ?, ?) ->> 'content'", SAID, BRIEF)
two, n2 = cost("SELECT waste_chat_json('demo', ?1, ?2) ->> 'content' AS a, waste_chat_json('demo', ?1, ?2) ->> 'content' WHERE a <> ''", SAID, BRIEF)
equal((two, n2), ([one_reply[0] * 2], n1), "waste_chat_json likewise")
got = rows("SELECT waste_generate('demo', 'Hi', '{\"max_tokens\":1}'), waste_generate('demo', 'Hi', '{\"max_tokens\":2}'), "
           "waste_generate('demo', 'Hi', NULL, 'x'), waste_generate('demo', 'Hi', NULL, NULL)")[0]
equal([rows("SELECT waste_generate('demo', 'Hi', '{\"max_tokens\":1}')")[0][0], rows("SELECT waste_generate('demo', 'Hi', '{\"max_tokens\":2}')")[0][0],
       rows("SELECT waste_generate('demo', 'Hi', NULL, 'x')")[0][0], rows("SELECT waste_generate('demo', 'Hi', NULL, NULL)")[0][0]], list(got),
      "other options and other parts are other calls")
many = rows("SELECT waste_generate('demo', 'Say ' || value, '{\"max_tokens\":1}') FROM json_each(?)", json.dumps(list(range(150)) * 2))
equal(many[:150], many[150:], "more calls than are kept")
db.executescript("CREATE TABLE log(a); CREATE TEMP TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO log SELECT waste_generate('demo', new.q); END;")
db.execute("INSERT INTO t(q) VALUES ('What is 47 + 38?'), ('What is 47 + 38?')")
equal(rows("SELECT * FROM log"), [(want["What is 47 + 38?"],)] * 2, "in a trigger")
db.execute("DROP TRIGGER tr")
db.commit()
raises(lambda: rows("SELECT waste_generate('demo', 'Hi', '{\"max_tokenz\":1}') FROM t"), "max_tokenz", name="errors are no answers")

# -- the table
equal(rows("SELECT count(*) FROM sqlite_master WHERE name = 'waste_cache'"), [(0,)], "no table before it is asked for")
CACHED = '{"cache":true,"prefix_cache":false}'
got, n = cost("SELECT waste_generate('demo', q, ?) FROM t WHERE id < 3 ORDER BY id", CACHED)
equal(got, [(want[q],) for (q,) in rows("SELECT q FROM t WHERE id < 3 ORDER BY id")], "cached: the same answers")
equal(n, both, "computed the first time")
ok(not db.in_transaction, "committed")
equal(cost("SELECT waste_generate('demo', q, ?) FROM t WHERE id < 3 ORDER BY id", CACHED), (got, 0), "and not again")
first = rows("SELECT waste_generate_json('demo', 'Hello', ?)", CACHED)
equal(cost("SELECT waste_generate_json('demo', 'Hello', ?)", CACHED), (first, 0), "JSON as it was")
chat = rows("SELECT waste_chat_json('demo', ?, ?)", SAID, json.dumps(dict(json.loads(BRIEF), cache=True)))
equal(cost("SELECT waste_chat_json('demo', ?, ?)", SAID, json.dumps(dict(json.loads(BRIEF), cache=True))), (chat, 0), "a message, too")
equal(rows("SELECT count(*), min(typeof(request)) FROM waste_cache"), [(4, "blob")], "a plain table")
other = connect(path)
equal(other.execute("SELECT waste_generate(?, 'What is 47 + 38?', ?)", (DEMO, CACHED)).fetchone()[0], want["What is 47 + 38?"], "another connection")
db.execute("UPDATE waste_cache SET request = x'00'")
db.commit()
ok(cost("SELECT waste_generate('demo', 'What is 47 + 38?', ?)", CACHED)[1] > 0, "a hash alone decides nothing")
db.execute("BEGIN")
answers = rows("SELECT waste_generate('demo', 'Hello', ?1), waste_generate_json('demo', 'Hello', ?1) ->> 'text'", CACHED)
for result in ("x'00'", "'{\"text\":'", "'[1]'", "'7'", "''", "CAST(x'ff' AS TEXT)"):
    db.execute(f"UPDATE waste_cache SET result = {result}")
    equal(rows("SELECT waste_generate_json('demo', 'Hello', ?) ->> 'text'", CACHED)[0][0], answers[0][1], f"{result} is no answer as JSON")
for result in ("x'00'", "CAST(x'ff' AS TEXT)"):
    db.execute(f"UPDATE waste_cache SET result = {result}")
    equal(rows("SELECT waste_generate('demo', 'Hello', ?)", CACHED)[0][0], answers[0][0], f"{result} is no text")
db.rollback()
db.execute("SELECT waste_close('demo')")
other.close()
rows("SELECT waste_open('demo', '{\"precision\":\"exact\"}')")
ok(cost("SELECT waste_generate(?, 'What is 47 + 38?', ?)", DEMO, CACHED)[1] > 0, "another precision is another model")
rows("SELECT waste_close('demo')")
db.execute("BEGIN")
rows("SELECT waste_generate('demo', 'How are you?', ?)", CACHED)
equal(rows("SELECT count(*) FROM waste_cache")[0][0], 6, "in a transaction")
db.execute("ROLLBACK")
equal(rows("SELECT count(*) FROM waste_cache")[0][0], 5, "it belongs to that")
db.execute("SELECT waste_close('demo')")
FULL = json.dumps({"max_tokens": 64, "cache": True, "logit_bias": {"2037": None}})
SAID_FULL, ASK = '[{"role":"user","content":"Who are you?"}]', "SELECT waste_generate('demo', 'Who are you?', ?1), waste_generate_json('demo', 'Who are you?', ?1) ->> 'text', waste_chat_json('demo', ?2, json_set(?1, '$.thinking', json('false'))) ->> 'content'"
for context in (40, 400):
    db.execute("SELECT waste_close('demo')")
    rows("SELECT waste_register('demo', ?, json_object('context', ?))", DEMO, context)
    got = rows(ASK, FULL, SAID_FULL)
    equal(got, rows(ASK, FULL.replace("true", "false"), SAID_FULL), f"a context of {context} ends the answers that it ends, and no others")
ok(rows("SELECT count(*) FROM waste_cache WHERE CAST(request AS TEXT) LIKE '%Who are you?%'")[0][0] == 3, "those that it did not end are kept")
raises(lambda: rows("SELECT piece FROM waste_tokens('demo', 'Hi', '{\"cache\":true}')"), "cache", name="waste_tokens has no cache")
db.execute("DROP TABLE waste_cache")
db.execute("CREATE TABLE waste_cache(x)")
raises(lambda: rows("SELECT waste_generate('demo', 'Hi', ?)", CACHED), "waste_cache", name="a table of another shape")
done()
