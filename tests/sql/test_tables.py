"""Table-valued functions as SQLite plans and runs them: joins, hidden columns,
missing arguments, stopping early, NULLs."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

db = connect()
TABLES = {"waste_tokens": ["model", "prompt", "options"], "waste_next": ["model", "prompt", "k", "options"],
          "waste_info": ["model"], "waste_tensors": ["model"], "waste_experts": ["model"],
          "waste_convert": ["source", "target", "options"]}


def rows(sql, *args):
    return db.execute(sql, args).fetchall()


db.execute("SELECT waste_register('m', ?, '{\"context\":100000}')", (cases.make("tiny-chat"),))
db.execute("SELECT waste_register('ids', ?, '{\"context\":100000}')", (cases.make("linear"),))
db.executescript("""
CREATE TABLE prompts(id INTEGER PRIMARY KEY, text TEXT, options TEXT, model TEXT);
INSERT INTO prompts VALUES (1, 'Hi', '{"max_tokens":1}', 'm'), (2, 'Ho', '{"max_tokens":2}', 'm'), (3, NULL, NULL, 'm');
""")

# -- joins with tables of prompts, in either order
want = [(1, "Hello"), (2, "Hello,")]
equal(rows("SELECT p.id, group_concat(t.piece, '') FROM prompts p, waste_tokens('m', p.text, p.options) t GROUP BY 1"), want,
      "a table of prompts joins")
equal(rows("SELECT p.id, group_concat(t.piece, '') FROM waste_tokens t, prompts p WHERE t.model = p.model AND t.prompt = p.text"
           " AND t.options = p.options GROUP BY 1"), want, "hidden columns are arguments, whatever the order")
equal(rows("SELECT p.id, group_concat(t.piece, '') FROM prompts p JOIN waste_tokens t ON t.prompt = p.text AND t.options = p.options"
           " WHERE t.model = 'm' GROUP BY 1"), want, "also in ON")
equal(rows("SELECT count(*) FROM waste_tokens('m', 'Hi') WHERE prompt = 'other'"), [(0,)],
      "a second constraint on an argument filters")
equal(rows("SELECT count(*) FROM prompts p, waste_tokens('m', 'Hi', '{\"max_tokens\":1}') t WHERE t.model = p.model"), [(3,)],
      "also against a column of another table")
equal(rows("SELECT DISTINCT model, prompt, options FROM waste_tokens('m', 'Hi', '{}')"), [("m", "Hi", "{}")],
      "the hidden columns give the arguments back")
equal(rows("SELECT DISTINCT model, prompt, options FROM waste_tokens('m', 'Hi')"), [("m", "Hi", None)], "or NULL")
equal(rows("SELECT p.id, t.piece FROM prompts p LEFT JOIN waste_tokens('m', p.text, '{\"max_tokens\":1}') t"),
      [(1, "Hello"), (2, "Hello"), (3, None)], "LEFT JOIN keeps the prompt without rows")
equal(rows("SELECT n FROM waste_next('m', 'Hi', 3) ORDER BY n DESC"), [(3,), (2,), (1,)], "descending order is sorted")
equal(rows("SELECT a.n, b.n FROM waste_next('m', 'Hi', 2) a, waste_next('m', 'Ho', 2) b ORDER BY a.n, b.n"),
      [(1, 1), (1, 2), (2, 1), (2, 2)], "two cursors at once")
equal(rows("SELECT m.name, i.value FROM waste_models m, waste_info(m.name) i WHERE i.key = 'layers' ORDER BY 1"),
      [("ids", 4), ("m", 4)], "waste_info over all models")
equal(rows("SELECT count(*) FROM prompts p WHERE (SELECT piece FROM waste_tokens('m', p.text) LIMIT 1) = 'Hello'"), [(2,)],
      "a correlated subquery")
equal(rows("SELECT max(value) FROM waste_info('m') WHERE key IN ('layers', 'top_k')"), [(4,)], "IN on a column")
equal(rows("SELECT count(*) FROM waste_info WHERE model IN ('m', 'ids') AND key = 'arch'"), [(2,)], "IN on the argument")

# -- SQLite asks for plans without the arguments (OR), with those of tables not read yet, or for each of a list
CALLS = {"waste_tokens": ("'m', 'Hi', '{\"max_tokens\":2}'", "n", "n = 1", "finish = 'length'", 2),
         "waste_next": ("'m', 'Hi', 3", "n", "n = 1", "n = 3", 2),
         "waste_info": ("'m'", "key", "key = 'arch'", "value = 4", 3),
         "waste_tensors": ("'m'", "name", "name = 'language_model.lm_head.weight'", "offset = 0", None),
         "waste_experts": ("'m'", "layer", "expert = 0", "expert = 1", None),
         "waste_plan": ("'m'", "part", "part = 'trunk'", "part = 'floor'", 2)}
db.executescript("CREATE TABLE models(name TEXT, a INTEGER, b TEXT); INSERT INTO models VALUES ('m', 1, 'x'), ('m', 2, NULL), (NULL, 3, 'y');")
for table, (args, key, one_, two, want_) in CALLS.items():
    either = rows(f"SELECT {key} FROM {table}({args}) WHERE {one_} OR {two}")
    union = rows(f"SELECT {key} FROM (SELECT * FROM {table}({args})) WHERE coalesce({one_}, 0) + coalesce({two}, 0) > 0")
    ok(len(either) == len(union) > 1 and sorted(either) == sorted(union) and want_ in (None, len(either)), f"{table}: OR of two columns")
    equal(len(rows(f"SELECT * FROM {table}({args}) WHERE {key} IN (1, 'arch', 'trunk') OR {one_}")) > 0, True, f"{table}: OR with a list")
    n = len(rows(f"SELECT * FROM {table}({args})"))
    rest = args.partition(",")[2]
    more = "".join(f" AND t.{h} = {v}" for h, v in zip(("prompt", "k" if table == "waste_next" else "options"), [x.strip() for x in rest.split(", ")] if rest else []))
    equal(rows(f"SELECT count(*) FROM {table} t WHERE t.model IN (SELECT name FROM models){more}"), [(n,)], f"{table}: the model from a list")
    equal(rows(f"SELECT count(*), count(t.{key}) FROM models m LEFT JOIN {table} t ON t.model = m.name{more}"), [(2 * n + 1, 2 * n)], f"{table}: right of LEFT JOIN")
    equal(rows(f"SELECT count(*) FROM {table}({args}) t LEFT JOIN models m ON m.a = 7"), [(n,)], f"{table}: left of LEFT JOIN")
    raises(lambda: rows(f"SELECT * FROM {table} t LEFT JOIN models m ON t.model = m.name"), f"{table} needs a model", name=f"{table}: no argument from the right side")
    equal(rows(f"SELECT a, (SELECT count(*) FROM {table} t WHERE t.model = m.name{more} AND (t.{key} = 'none' OR t.{key} IS NOT NULL)) FROM models m"),
          [(1, n), (2, n), (3, 0)], f"{table}: a correlated subquery")
    equal(rows(f"SELECT count(*) FROM models m WHERE EXISTS (SELECT 1 FROM {table} t WHERE t.model = m.name{more} AND (t.{one_} OR m.b = 'x'))"), [(2,)],
          f"{table}: EXISTS with OR across tables")
raises(lambda: rows("SELECT count(*) FROM waste_convert('/nowhere/a', '/nowhere/b') WHERE phase = 'x' OR done = 1"), "checkpoint /nowhere/a", name="waste_convert: OR")
equal(rows("SELECT count(*) FROM models m LEFT JOIN waste_convert c ON c.source = m.a AND c.target = NULL"), [(3,)], "waste_convert: right of LEFT JOIN")
raises(lambda: rows("SELECT * FROM waste_convert c WHERE c.source = 'x' OR c.target = 'y'"), "needs a source and a target", name="waste_convert: arguments in an OR")
raises(lambda: rows("SELECT * FROM waste_info i WHERE i.model = 'm' OR key = 'arch'"), "waste_info needs a model", name="an argument that is one side of an OR is none")
equal(len(rows("SELECT * FROM waste_info i WHERE i.model = 'm' OR i.model = 'ids'")), 2 * len(rows("SELECT * FROM waste_info('m')")), "but an OR of two is a list")
equal(rows("SELECT * FROM (SELECT 1 WHERE 0) CROSS JOIN waste_info"), [], "what is never run is no error")

# -- missing arguments
for table, args in TABLES.items():
    first = "source" if table == "waste_convert" else "model"
    raises(lambda t=table: rows(f"SELECT * FROM {t}"), f"{table} needs a {first}", name=f"{table} without arguments")
    if len(args) > 1:
        raises(lambda t=table: rows(f"SELECT * FROM {t}('m')"), f"{table} needs a {first} and a", name=f"{table} with one of two")
    raises(lambda t=table, a=args: rows(f"SELECT * FROM {t}({','.join('?' * (len(a) + 1))})", *["m"] * (len(a) + 1)),
           "too many arguments", name=f"{table} with one too many")
    raises(lambda t=table: rows(f"CREATE VIRTUAL TABLE v USING {t}"), "no such module", name=f"{table} is no table to create")
    raises(lambda t=table: rows(f"INSERT INTO {t} DEFAULT VALUES"), "may not be modified", name=f"{table} is read-only")

# -- NULLs give no rows
for sql in ("waste_tokens(NULL, 'x')", "waste_tokens('m', NULL)", "waste_next(NULL, 'x')", "waste_next('m', NULL)", "waste_info(NULL)",
            "waste_tensors(NULL)", "waste_experts(NULL)", "waste_convert(NULL, 'x')", "waste_convert('x', NULL)"):
    equal(rows(f"SELECT count(*) FROM {sql}"), [(0,)], f"{sql} has no rows")
equal(rows("SELECT count(*) FROM waste_next('m', 'Hi', NULL, NULL)"), [(10,)], "NULL k and options are as if not given")
for k, text in ((0, "k is 0,"), (-5, "k is -5,"), (-2**63, "k is -9223372036854775808,"), ("'x'", "k is 'x',"), (1.5, "k is 1.5,"), (-1e300, "k is -1"),
                ("x'00'", "k is a BLOB,"), ("'{\"raw\":true}'", "k is '{\"raw\":true}', wanted an integer of at least 1; options are the fourth argument")):
    raises(lambda k=k: rows(f"SELECT * FROM waste_next('m', 'Hi', {k})"), text, "wanted an integer of at least 1", name=f"k = {k}")

# -- views and triggers may not open files
rows("CREATE VIEW v AS SELECT * FROM waste_info('m')")
raises(lambda: rows("SELECT * FROM v"), "unsafe", name="no table of ours in a view")
rows("DROP VIEW v")
rows("CREATE VIEW v AS SELECT waste_generate('m', 'Hi')")
raises(lambda: rows("SELECT * FROM v"), "unsafe", name="no function of ours in a view")
rows("DROP VIEW v")
rows("CREATE VIEW v AS SELECT waste_version() AS x")
equal(len(rows("SELECT x FROM v")), 1, "but waste_version may be")

# -- rows are computed as they are asked for
endless = json.dumps({"tokens": [5, 6, 7], "max_tokens": 90000, "logit_bias": {"2": None}})
equal(len(rows("SELECT n FROM waste_tokens('ids', NULL, ?) LIMIT 3", endless)), 3, "LIMIT stops the work")
equal(len(rows("SELECT n FROM waste_tokens('ids', NULL, ?) ORDER BY n LIMIT 3", endless)), 3, "in the natural order, too")
equal(rows("SELECT EXISTS(SELECT 1 FROM waste_tokens('ids', NULL, ?))", endless), [(1,)], "EXISTS takes one")
cursor = db.execute("SELECT n FROM waste_tokens('ids', NULL, ?)", (endless,))
equal([cursor.fetchone()[0] for _ in range(4)], [1, 2, 3, 4], "rows arrive one by one")
equal(rows("SELECT waste_close('ids')"), [(1,)], "waste_close while a cursor reads")
equal([cursor.fetchone()[0] for _ in range(4)], [5, 6, 7, 8], "does not disturb it")
cursor.close()
equal(rows("SELECT waste_close('ids')"), [(0,)], "and the model is gone after it")
ok(rows("SELECT piece FROM waste_tokens('m', 'Hi') LIMIT 1") == [("Hello",)], "other models still answer")

# -- errors in the middle of a statement leave the connection usable
raises(lambda: rows("SELECT * FROM prompts p, waste_tokens(p.text, 'x') t"), "no model 'Hi'", name="an error from a joined row")
equal(rows("SELECT piece FROM waste_tokens('m', 'Hi') LIMIT 1"), [("Hello",)], "the next statement works")
done()
