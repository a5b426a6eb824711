"""waste_stats, the "stats" of waste_generate_json and the columns of waste_tokens:
three views of one set of counters, which must agree."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

db = connect()
K3 = cases.make("k3")
IDS = cases.sequences("k3")["len5"]
PROMPT = json.dumps({"tokens": IDS, "max_tokens": 8})


def one(sql, *args):
    return db.execute(sql, args).fetchone()


def stats(*columns, conn=None):
    rows = (conn or db).execute(f"SELECT {', '.join(columns)} FROM waste_stats").fetchall()
    return rows[0] if len(rows) == 1 else rows


COLUMNS = [r[1] for r in db.execute("SELECT * FROM pragma_table_info('waste_stats')")]

equal(db.execute("SELECT * FROM waste_stats").fetchall(), [], "no model is open")
# without guesses, so that every number is determined
one("SELECT waste_register('m', ?, '{\"context\":512,\"lookahead\":0}')", K3)
equal(db.execute("SELECT * FROM waste_stats").fetchall(), [], "registering opens none")
equal(one("SELECT count(*) FROM waste_models, waste_stats"), (0,), "nor does asking")

# -- opened, unused
one("SELECT waste_open('m')")
row = dict(zip(COLUMNS, stats("*")))
equal([row[k] for k in ("names", "users", "tokens", "hits", "misses", "hit_rate", "bytes_read", "evictions", "cache_used", "step_ms",
                        "io_ms", "known_ms", "disk_ms", "warmed", "notice")],
      ["m", 1, 0, 0, 0, None, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, None], "opened and unused")
ok(os.path.samefile(row["path"], K3), "the container's path")
for part in ("trunk", "scratch", "cache", "memory", "budget"):
    ok(row[f"{part}_bytes"] > 0, f"{part}_bytes")
equal(row["sequence_bytes"], 0, "no sequence")
ok(row["memory_bytes"] >= row["trunk_bytes"] + row["scratch_bytes"] + row["cache_bytes"] - 65536, "the parts are part of the memory")
ok(row["cache_slots"] > 0 and row["page_faults"] >= 0, "slots and page faults")
equal(row["banks_direct"] + row["banks_buffered"], 4, "each expert file is read one way or the other")
equal((row["precision"], row["kv"]), ("fast", "f32"), "the default precision and kv")
ok(isinstance(row["policy"], str) and row["policy"], "the cache's policy has a name")

# -- after known work: 5 prompt tokens and 8 of reply, of which the last is not computed; 4 MoE layers, 4 of 10 experts each
answer = json.loads(one("SELECT waste_generate_json('m', NULL, json_set(?, '$.stats', json('true')))", PROMPT)[0])
n = answer["usage"]["completion_tokens"]
first = answer["stats"]
tokens, hits, misses, rate, read, used, slots, evicted, guesses, sequence = stats(
    "tokens", "hits", "misses", "hit_rate", "bytes_read", "cache_used", "cache_slots", "evictions", "guesses", "sequence_bytes")
equal(tokens, 5 + n - 1, "one step less than tokens, and the prompt")
equal((first["hits"], first["misses"], first["bytes_read"]), (hits, misses, read), "the call's own stats are the model's, so far")
ok(16 * n <= hits + misses <= 16 * (4 + n), "accesses: distinct experts of the prompt, then four in each of four layers")
ok(0 < misses + guesses >= used, "what is there was read")
ok(abs(rate - hits / (hits + misses)) < 1e-9 and abs(first["hit_rate"] - rate) < 1e-9, "hit_rate")
record = one("SELECT value FROM waste_info('m') WHERE key = 'record_bytes'")
ok(read > 0 and (record is None or read % int(record[0]) == 0), "bytes are whole records")
equal(sequence, 0, "the sequence is gone with the call")
ok(used <= slots and evicted == 0, "everything fits")
ok(first["io_ms"] >= 0 and first["total_ms"] > 0 and stats("step_ms")[0] > 0, "times")

known, disk, waited = stats("known_ms", "disk_ms", "io_ms")
ok(known == 0 and disk > 0 and waited >= 0, "no read is known before it is needed, where none is guessed")

# -- per token
rows = db.execute("SELECT hits, misses, bytes_read, ms, io_ms FROM waste_tokens('m', NULL, ?)", (PROMPT,)).fetchall()
after = stats("hits", "misses", "bytes_read")
equal([sum(r[i] for r in rows) for i in range(3)], [after[0] - hits, after[1] - misses, after[2] - read], "the rows add up to it")
equal([r[0] + r[1] for r in rows[1:]], [16] * (len(rows) - 1), "each token after the first: four experts in four layers")
ok(all(r[3] >= r[4] >= 0 for r in rows), "waiting is part of the time")
second = json.loads(one("SELECT waste_generate_json('m', NULL, json_set(?, '$.stats', json('true')))", PROMPT)[0])["stats"]
equal((second["misses"], second["bytes_read"], second["hit_rate"]), (0, 0, 1), "the second time all of it is in memory")
equal("stats" in json.loads(one("SELECT waste_generate_json('m', NULL, ?)", PROMPT)[0]), False, "only when asked")
raises(lambda: one("SELECT waste_generate('m', NULL, '{\"tokens\":[5],\"stats\":true}')"), "waste_generate takes no option 'stats'",
       name="text has no place for them")
raises(lambda: one("SELECT waste_generate_json('m', NULL, '{\"tokens\":[5],\"stats\":2}')"), "option 'stats'", "true or false", name="stats = 2")

# -- a sequence in flight
cursor = db.execute("SELECT n FROM waste_tokens('m', NULL, ?)", (PROMPT,))
cursor.fetchone()
ok(stats("sequence_bytes")[0] > 0, "a generation in flight has a sequence")
cursor.close()
equal(stats("sequence_bytes"), (0,), "which goes with it")

# -- idle time
a = stats("idle_ms", "step_ms")
b = stats("idle_ms", "step_ms")
ok(b[0] >= a[0] and b[1] == a[1], "time passes idly")

# -- several connections and models
other = connect()
equal(stats("names", "users", conn=other), (None, 1), "another connection sees the model, by no name")
one_other = other.execute("SELECT waste_open(?)", (K3,)).fetchone()
equal(stats("users"), (2,), "and joins it")
other.execute("SELECT waste_register('x', ?)", (K3,))
other.execute("SELECT waste_register('y', ?)", (K3 + "/.",))
equal(stats("names", conn=other), ("x, y",), "all its names for it")
chat = cases.make("tiny-chat")
other.execute("SELECT waste_open(?, '{\"precision\":\"exact\",\"direct_io\":false,\"io_threads\":1,\"lookahead\":0,\"threads\":1}')", (chat,))
equal(sorted(stats("precision", "users")), [("exact", 1), ("fast", 2)], "a row per model")
equal(db.execute("SELECT banks_direct, lookahead, threads FROM waste_stats WHERE path LIKE '%tiny-chat%'").fetchall(), [(0, 0, 1)], "its options in force")
equal(len(db.execute("SELECT 1 FROM waste_stats a, waste_stats b").fetchall()), 4, "it joins itself")
equal(db.execute("SELECT count(*) FROM waste_stats WHERE users > 1").fetchone(), (1,), "and filters")
other.close()
equal(stats("users"), (1,), "a connection's end is the end of its use")
one("SELECT waste_close('m')")
equal(db.execute("SELECT count(*) FROM waste_stats").fetchone(), (0,), "closed")

# -- a small cache evicts
floor = None
try:
    one("SELECT waste_open('m', '{\"budget\":1}')")
except Exception as e:  # noqa: BLE001: the message names the floor
    floor = max(int(w.strip(",;:.")) for w in str(e).split("floor of")[1].split() if w.strip(",;:.").isdigit()) if "floor of" in str(e) else None
if ok(floor is not None, "the error of a budget of one byte names the floor"):
    one("SELECT waste_open('m', ?)", json.dumps({"budget": floor + 20000}))
    budget, slots = stats("budget_bytes", "cache_slots")
    equal(budget, floor + 20000, "the budget in force")
    before = one("SELECT group_concat(token) FROM waste_tokens('m', NULL, ?)", PROMPT)
    used, evicted, memory = stats("cache_used", "evictions", "memory_bytes")
    ok(used <= slots < 40 and evicted > 0, f"{slots} slots, {evicted} evictions")
    ok(memory <= budget, "what is allocated is within the budget")
    one("SELECT waste_close('m')")
    equal(one("SELECT group_concat(token) FROM waste_tokens('m', NULL, ?)", PROMPT), before, "which changes no token")
done()
