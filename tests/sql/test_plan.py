"""waste_plan: its rows, its options, what it has to do with opening, and budgets
as SQL gives them."""
import json
import os
import sqlite3
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

PATH = cases.make("tiny-chat")
K3 = cases.make("k3")
DENSE = cases.make("linear-dense")
PARTS = ["trunk", "codebooks", "tables", "scratch", "state", "generation", "min_cache", "floor", "working_set", "expert_set",
         "ceiling", "budget", "cache", "slots", "chunk", "sequences"]
SUM = PARTS[:7]
db = connect()


def one(sql, *args):
    return db.execute(sql, args).fetchone()[0]


def plan(model, options=None):
    """{part: (value, unit, why)}"""
    text = options if options is None or isinstance(options, str) else json.dumps(options)
    return {p: rest for p, *rest in db.execute("SELECT part, value, unit, why FROM waste_plan(?, ?)", (model, text))}


def value(model, part, options=None):
    return plan(model, options)[part][0]


# -- rows
rows = db.execute("SELECT * FROM waste_plan(?)", (PATH,))
equal([d[0] for d in rows.description], ["part", "value", "unit", "why"], "the columns, arguments hidden")
equal([r[0] for r in rows], PARTS, "the parts, in order")
p = plan(PATH)
ok(all(isinstance(v, int) and unit in ("bytes", "slots") and why for v, unit, why in p.values()),
   "every row has an integer, a unit and a reason")
equal(p["floor"][0], sum(p[x][0] for x in SUM), "the floor is the sum of the parts above it")
equal(db.execute("SELECT count(*), min(model = ?), min(options) FROM waste_plan(?, '{}')", (PATH, PATH)).fetchone(),
      (len(PARTS), 1, "{}"), "the hidden columns are the arguments")
equal(list(db.execute("SELECT * FROM waste_plan(NULL)")), [], "a NULL model has no plan")
equal(plan(PATH, None), p, "NULL options are none")
equal(plan(PATH, ""), p, "nor are empty ones")
c = cases.CASES["k3"]["config"]
k, moe = c["num_experts_per_token"], c["num_hidden_layers"] - c["first_k_dense_replace"]
record = one("SELECT max(bytes) FROM waste_experts(?)", K3)
q = plan(K3)
equal(q["working_set"][0], k * moe * record, "the working set is K records of every MoE layer")
equal(q["codebooks"][0], moe * 3 * 3 * 256 * 8 * 4, "codebooks: three stages of 256 entries of 8 floats for three matrices")
ok(2 * k * record <= q["min_cache"][0] <= 2 * k * (record + 16384), "the smallest cache is 2 K records")
equal(q["trunk"][0], one("SELECT sum(bytes) FROM waste_tensors(?) WHERE resident"
                             " AND name NOT LIKE '%layers.5.%' AND name NOT LIKE '%scale_inv'", K3),
      "the trunk is what is resident and used")
d = plan(DENSE)
equal([d[x][0] for x in ("codebooks", "min_cache", "working_set", "expert_set", "cache", "slots")], [0] * 6, "no experts, no cache")
equal(d["budget"][0], d["floor"][0], "and nothing to choose")
ok(1 << 24 < p["ceiling"][0] <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") and p["ceiling"][2].startswith("usable RAM"),
   f"the ceiling says where it comes from: {p['ceiling'][2]}")

# -- options
short, long = plan(PATH, {"context": 64}), plan(PATH, {"context": 100000})
equal([x for x in SUM if short[x] != long[x]], ["state", "generation"], "a context changes the state and a prompt's buffers")
half = plan(PATH, {"context": 64, "kv": "f16"})
equal([x for x in SUM if short[x] != half[x]], ["state"], "kv changes the state")
ok(half["state"][0] < short["state"][0], "for less")
one("SELECT waste_register('m', ?, '{\"context\":64}')", PATH)
equal(plan("m"), short, "a registered model's options apply")
equal(plan("m", {"context": 100000}), long, "and others go over them")
equal(db.execute("SELECT name, value FROM waste_models, waste_plan(name) WHERE part = 'floor'").fetchall(),
      [("m", short["floor"][0])], "a plan for every registered model")
raises(lambda: plan(PATH, {"contxt": 1}), "waste_plan", "'contxt'", "'context'", name="a misspelt option")
raises(lambda: plan(PATH, {"seed": 1}), "waste_plan", "'seed'", name="an option of a call")
raises(lambda: plan(PATH, "[]"), "waste_plan: options", "object", "an array", name="options that are none")
raises(lambda: plan(PATH, '{"context":1,"context":2}'), "duplicate", "context", name="a key twice")
raises(lambda: plan(PATH, {"context": 0}), "option 'context'", name="a context out of range")
for wrong in (2, -1, 0.5, "yes", [], {}):
    raises(lambda v=wrong: plan(PATH, {"probe": v}), "waste_plan", "'probe'", "true or false", name=f"probe = {wrong!r}")
for no in (False, 0, None):
    equal(plan(PATH, {"probe": no}), p, f"probe = {no!r}: none")
raises(lambda: plan("/no/such/place"), "/no/such/place", name="no container there")
raises(lambda: plan("nobody"), "nobody", "waste_models", name="no such model")
raises(lambda: db.execute("SELECT * FROM waste_plan"), "waste_plan", "model", name="without a model")
db.execute("CREATE VIEW v AS SELECT * FROM waste_plan('m')")
raises(lambda: db.execute("SELECT * FROM v").fetchall(), "waste_plan", name="not from a view: it opens files")

# -- budgets
G, M = 1 << 30, 1 << 20
for text, size in (("46G", 46 * G), ("512MiB", 512 * M), (46 * G, 46 * G), ("46 GB", 46 * G), ("0.5g", G // 2), ("1T", 1 << 40),
                   ("786432K", 768 * M), (str(600 * M), 600 * M), (5e8, 500000000)):
    b = plan(PATH, {"budget": text})
    equal((b["budget"][0], b["budget"][2].startswith("as given")), (size, True), f"budget {text!r}")
    equal(b["cache"][0], b["expert_set"][0], f"budget {text!r}: no more cache than experts")
for wrong in ("46X", "lots", "", "G", "-5G", "1.2.3G", "46G please", "4 6G", "0x10", 0, -1, 0.5, True, [], {}, 1e300, "99999999T"):
    raises(lambda v=wrong: plan(PATH, {"budget": v}), "waste_plan", "option 'budget'", "46G", name=f"budget = {wrong!r}")
floor = p["floor"][0]
low = plan(PATH, {"budget": floor - 1})
equal(low["floor"][0], floor, "a budget below the floor: the floor is told")
equal((low["budget"][0], low["slots"][0], low["cache"][0], low["sequences"][0]), (floor - 1, 0, 0, 0), "and that nothing would be had")
ok("below the floor" in low["budget"][2], f"in words: {low['budget'][2]}")
raises(lambda: one("SELECT waste_open(?, ?)", PATH, json.dumps({"budget": floor - 1})), "below the floor", str(floor),
       name="opening with it is refused, and the floor is in the message")
equal(list(db.execute("SELECT * FROM waste_stats")), [], "after which nothing is open")
above = plan(PATH, {"budget": p["ceiling"][0]})
ok("3/4" in above["budget"][2], f"a budget of all memory: {above['budget'][2]}")
ok(p["budget"][2].startswith("chosen"), f"without a budget: {p['budget'][2]}")
ok(floor <= p["budget"][0] <= p["ceiling"][0] * 3 // 4, "it is between the floor and 3/4 of the ceiling")

# -- opening does what the plan says
for budget in (None, floor, floor + 3 * record, 2 * floor):
    options = {} if budget is None else {"budget": budget}
    was = plan(PATH, options)
    opened = json.loads(one("SELECT waste_open(?, ?)", PATH, json.dumps(options)))
    s = dict(zip(("memory", "trunk", "scratch", "cache", "slots", "notice"), db.execute(
        "SELECT memory_bytes, trunk_bytes, scratch_bytes, cache_bytes, cache_slots, notice FROM waste_stats").fetchone()))
    name = f"budget {budget}"
    equal(opened["cache_slots"], was["slots"][0], f"{name}: slots as planned")
    equal(s["scratch"], was["scratch"][0] + was["chunk"][0], f"{name}: scratch as planned")
    ok(was["trunk"][0] <= s["trunk"] <= was["trunk"][0] + was["codebooks"][0], f"{name}: trunk as planned")
    ok(was["slots"][0] * record <= s["cache"] <= was["cache"][0] + was["tables"][0], f"{name}: cache as planned")
    exact = was["trunk"][0] + was["codebooks"][0] + s["scratch"] + was["slots"][0] * record
    ok(exact <= s["memory"] <= exact + was["tables"][0] + was["slots"][0] * 20000 + M, f"{name}: nothing much else is allocated")
    ok(s["memory"] <= was["budget"][0] + M, f"{name}: {s['memory']} bytes of {was['budget'][0]}")
    equal(s["notice"], None, f"{name}: no notice")
    equal(one("SELECT waste_generate(?, 'Hi')", PATH), "Hello, world!", f"{name}: it answers")
    equal(plan(PATH, options), was, f"{name}: the plan of an open model is the same")
    one("SELECT waste_close(?)", PATH)
one("SELECT waste_open('m')")
raises(lambda: one("SELECT waste_open('m', ?)", json.dumps({"budget": floor})), "budget", str(floor),
       name="a model is open with one budget at a time")
one("SELECT waste_close('m')")

# -- too many sequences for the budget
tight = plan(PATH, {"context": 64})["floor"][0]
one("SELECT waste_open(?, ?)", PATH, json.dumps({"context": 64, "budget": tight}))
held, why = [], ""
while not why and len(held) < 64:
    cursor = db.cursor()
    try:
        cursor.execute("SELECT piece FROM waste_tokens(?, 'Hi')", (PATH,)).fetchone()
        held.append(cursor)
    except sqlite3.Error as e:
        why = str(e)
ok(held and "budget of" in why and str(tight) in why and "more are needed" in why, f"{len(held)} generations at once, then: {why}")
for cursor in held:
    cursor.close()
equal(one("SELECT waste_generate(?, 'Hi')", PATH), "Hello, world!", "what they gave back serves the next")
one("SELECT waste_close(?)", PATH)

# -- room for many
many = plan(PATH, {"context": 64, "sequences": 64})
once = plan(PATH, {"context": 64})
equal((many["state"][0], many["generation"][0]), (64 * once["state"][0], 64 * once["generation"][0]), "64 sequences take 64 times as much")
equal(many["floor"][0] - once["floor"][0], 63 * (once["state"][0] + once["generation"][0]), "and are in the floor")
ok(many["state"][2].startswith("64 sequences of 64 positions"), f"in words: {many['state'][2]}")
one("SELECT waste_open(?, ?)", PATH, json.dumps({"context": 64, "sequences": 64, "budget": many["floor"][0]}))
raises(lambda: one("SELECT waste_open(?, ?)", PATH, json.dumps({"sequences": 2})), "sequences 64, not 2",
       name="a model is open with one number of them at a time")
held = [db.execute("SELECT piece FROM waste_tokens(?, 'Hi')", (PATH,)) for _ in range(64)]
equal({c.fetchone()[0] for c in held}, {"Hello"}, "64 generations at once at the floor")
for cursor in held:
    cursor.close()
one("SELECT waste_close(?)", PATH)
for wrong in (0, 4097, 1.5, "many"):
    raises(lambda v=wrong: plan(PATH, {"sequences": v}), "waste_plan", "option 'sequences'", "4096", name=f"sequences = {wrong!r}")

# -- the probe
some = value(K3, "floor") + record
probed = plan(K3, {"probe": True, "budget": some})
equal(list(probed), PARTS + ["disk", "cold", "warm"], "a probe adds three rows")
disk, cold, warm = (probed[x] for x in ("disk", "cold", "warm"))
equal((disk[1], cold[1], warm[1]), ("bytes/s", "tokens/s", "tokens/s"), "their units")
ok(disk[0] > 0 and cold[0] == disk[0] / probed["working_set"][0], "cold is the disk's rate over the working set")
share = probed["slots"][0] / one("SELECT count(*) FROM waste_experts(?)", K3)
ok(abs(warm[0] * (1 - share) / cold[0] - 1) < 1e-9, "warm leaves out the share of experts in memory")
equal(plan(K3, {"probe": True, "budget": "1G"})["warm"][0], None, "nothing to read, nothing to predict")
equal(list(plan(DENSE, {"probe": 1})), PARTS, "no experts, no disk")
done()
