"""Learned usage: kept in a table, in the container, in a file; a warm open; what
is damaged; what may not be overwritten."""
import json
import os
import shutil
import sqlite3
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

HOME = tempfile.mkdtemp()
BOX = os.path.join(HOME, "k3.waste")
shutil.copytree(cases.make("k3"), BOX)
FILE = os.path.join(HOME, "test.db")
INSIDE = os.path.join(BOX, "usage.waste")
PROMPT = json.dumps({"tokens": cases.sequences("k3")["len5"], "max_tokens": 12})
db = connect(FILE, isolation_level=None)


def one(sql, *args):
    row = db.execute(sql, args).fetchone()
    return row[0] if row and len(row) == 1 else row


def register(usage, conn=None):
    (conn or db).execute("SELECT waste_register('m', ?, ?)", (BOX, json.dumps({"context": 256, "lookahead": 0, "usage": usage}))).fetchone()


def generate():
    """The tokens, and hits and misses of making them."""
    tokens = one("SELECT group_concat(token) FROM waste_tokens('m', NULL, ?)", PROMPT)
    return tokens, one("SELECT hits, misses FROM waste_stats")


def warmed(n):
    """Opens, and waits until n records are read."""
    one("SELECT waste_open('m')")
    for _ in range(2000):
        if one("SELECT warmed FROM waste_stats") >= n:
            break
        time.sleep(0.005)
    return one("SELECT warmed FROM waste_stats")


# -- the option
for usage in ("tabel", "usage.waste", "", 2, 1.5, [], {}, "a\0/b"):
    raises(lambda u=usage: register(u), "option 'usage'", "a path", name=f"usage {usage!r}")
raises(lambda: register("/" * 5000), "usage", name="a path too long")

# -- off
register(False)
cold_tokens, cold = generate()
raises(lambda: one("SELECT waste_usage_save('m')"), "'m'", "usage", "table", name="off: saving is an error")
equal(one("SELECT waste_close('m')"), 1, "closing is not")
equal(os.path.exists(INSIDE), False, "nothing is written unasked")
raises(lambda: one("SELECT waste_usage_save('m')"), "'m' is not open", name="nor without an open model")
equal(one("SELECT waste_usage_save(NULL)"), None, "NULL")

# -- in a table, saved by waste_close
register("table")
equal(one("SELECT count(*) FROM waste_usage"), 0, "the table is there")
generate()
used = one("SELECT cache_used FROM waste_stats")
equal(one("SELECT waste_close('m')"), 1, "closes")
rows = db.execute("SELECT layer, expert, hits FROM waste_usage WHERE model = 'm'").fetchall()
ok(0 < len(rows) <= 40 and len(rows) >= used, f"waste_close saves {len(rows)} rows")
ok(all(1 <= l <= 4 and 0 <= e < 10 and h > 0 for l, e, h in rows), "of records there are, with hits")
equal(warmed(len(rows)), len(rows), "the next open reads them")
equal(one("SELECT tokens, hits, misses, bytes_read, cache_used FROM waste_stats"), (0, 0, 0, 0, len(rows)),
      "before the first token, counted neither as misses nor as bytes")
tokens, warm = generate()
equal(tokens, cold_tokens, "warm or cold, the same tokens")
ok(warm[0] > cold[0] and warm[1] < cold[1], f"{warm[0]} hits instead of {cold[0]}")
equal(sum(warm), sum(cold), "of as many accesses")
n = one("SELECT waste_usage_save('m')")
equal(one("SELECT count(*) FROM waste_usage WHERE model = 'm'"), n, "waste_usage_save gives the number of rows")
ok(n >= len(rows), "and forgets none that was read at open")

# -- transactions
db.execute("BEGIN")
db.execute("DELETE FROM waste_usage")
one("SELECT waste_usage_save('m')")
db.execute("ROLLBACK")
equal(one("SELECT count(*) FROM waste_usage"), n, "a rollback takes saving back")
db.execute("CREATE TABLE saved(n)")
db.execute("INSERT INTO saved SELECT waste_usage_save('m')")
equal(one("SELECT n FROM saved"), n, "inside a write")
db.execute("INSERT INTO waste_usage VALUES('other', 1, 1, 1)")
one("SELECT waste_usage_save('m')")
equal(one("SELECT count(*) FROM waste_usage WHERE model = 'other'"), 1, "other models' rows stay")

# -- rows that somebody made up
one("SELECT waste_close('m')")
db.execute("DELETE FROM waste_usage")
db.executemany("INSERT INTO waste_usage VALUES('m', ?, ?, ?)",
               [(1, 0, 5), (0, 0, 9), (99, 0, 9), (1, 99, 9), (-1, 0, 9), (1, -1, 9), (2, 1, -5), (2, 2, 2**40), ("x", "y", "z"), (2**50, 1, 1)])
equal(warmed(1), 1, "only what names a record and makes sense")
one("SELECT waste_close('m')")
db.execute("DROP TABLE waste_usage")
db.execute("CREATE TABLE waste_usage(x)")
equal(one("SELECT json_extract(waste_open('m'), '$.name')"), "m", "a table of another shape is no table")
raises(lambda: one("SELECT waste_close('m')"), "waste_usage", "'m'", "is closed", name="saving to it is an error")
equal(one("SELECT count(*) FROM waste_stats"), 0, "the model is closed all the same")
db.execute("DROP TABLE waste_usage")

# -- a database that cannot be written
reader = connect(f"file:{FILE}?mode=ro", uri=True, isolation_level=None)
reader.execute("SELECT waste_generate('m', NULL, ?)", (PROMPT,)).fetchone()
raises(lambda: reader.execute("SELECT waste_close('m')").fetchone(), "waste_usage", "readonly", "is closed", name="a read-only database says so")
equal(one("SELECT count(*) FROM waste_stats"), 0, "and the model is closed")
reader.close()

# -- inside the container, and at a path
PATH = os.path.join(HOME, "hot")
for usage, where in ((True, INSIDE), (PATH, PATH)):
    register(usage)
    generate()
    n = one("SELECT waste_usage_save('m')")
    with open(where, "rb") as f:
        data = f.read()
    magic, version, clock = struct.unpack_from("<IIQ", data)
    entries = list(struct.iter_unpack("<HHIII", data[16:]))
    equal((magic, version, len(entries)), (0x47535557, 1, n), f"usage {usage!r}: header and entries")
    equal(clock, sum(one("SELECT hits, misses FROM waste_stats")), "the clock is the number of accesses")
    equal([(-e[2], e[0], e[1]) for e in entries], sorted((-e[2], e[0], e[1]) for e in entries), "ordered by hits, layer, expert")
    equal(sorted(os.listdir(os.path.dirname(where))), sorted(set(os.listdir(os.path.dirname(where))) - {os.path.basename(where) + ".tmp"}),
          "no temporary file is left")
    one("SELECT waste_close('m')")
    equal(warmed(n), n, "read at the next open")
    _, warm = generate()
    ok(warm[1] < cold[1], f"{warm[1]} misses instead of {cold[1]}")
    one("SELECT waste_close('m')")

# -- damage
with open(PATH, "rb") as f:
    whole = f.read()
head = struct.pack("<IIQ", 0x47535557, 1, 5)
DAMAGE = {
    "empty": (b"", 0), "a few bytes": (whole[:7], 0), "header only": (whole[:16], 0), "bad magic": (b"XXXX" + whole[4:], 0),
    "half an entry at the end": (whole[:16 + 16 * 3 + 9], 3), "noise": (bytes(range(256)) * 17, 0), "zeros": (bytes(4096), 0),
    "unknown layer and expert": (head + struct.pack("<HHIII", 60000, 0, 9, 0, 0) + struct.pack("<HHIII", 1, 65535, 9, 0, 0) +
                                 struct.pack("<HHIII", 1, 3, 2, 0, 0), 1),
    "one record many times": (head + struct.pack("<HHIII", 1, 3, 2, 0, 0) * 1000, 1),
    "a version of the future": (whole[:4] + struct.pack("<I", 9) + whole[8:], (len(whole) - 16) // 16),
}
for name, (data, want) in DAMAGE.items():
    with open(PATH, "wb") as f:
        f.write(data)
    got = warmed(want)
    time.sleep(0.01)
    equal((got, one("SELECT warmed FROM waste_stats"), generate()[0]), (want, want, cold_tokens), f"{name}: {want} rows, and no error")
    register(False)  # so that closing does not write
    one("SELECT waste_close('m')")
    register(PATH)
os.unlink(PATH)
os.mkdir(PATH)
equal(warmed(0), 0, "a directory instead of a file")
raises(lambda: one("SELECT waste_close('m')"), PATH, "is closed", name="which is not written over")
os.rmdir(PATH)

# -- a path out of a database must not cost anyone a file
precious = os.path.join(HOME, "precious/file")
os.mkdir(os.path.dirname(precious))
with open(precious, "w") as f:
    f.write("years of work")
register(precious)
generate()
raises(lambda: one("SELECT waste_usage_save('m')"), precious, "left alone", name="a file that is no usage file is not replaced")
raises(lambda: one("SELECT waste_close('m')"), precious, "is closed", name="nor by closing")
equal(open(precious).read(), "years of work", "it is as it was")
register(os.path.join(HOME, "no/such/dir/file"))
generate()
raises(lambda: one("SELECT waste_usage_save('m')"), "no/such/dir", name="a directory that is not there")
raises(lambda: one("SELECT waste_close('m')"), "no/such/dir", name="nor at closing")

# -- options of waste_open and changed rows
register(False)
one("SELECT waste_open('m', ?)", json.dumps({"usage": "table"}))
generate()
ok(one("SELECT waste_usage_save('m')") > 0, "waste_open's option goes over the row's")
register(PATH)
n = one("SELECT waste_usage_save('m')")
equal(os.path.getsize(PATH), 16 + 16 * n, "a changed row takes effect at once")
other = connect(FILE, isolation_level=None)
other.execute("SELECT waste_open('m')").fetchone()
equal(other.execute("SELECT waste_close('m')").fetchone(), (1,), "each connection saves by its own option")
equal(one("SELECT count(*) FROM waste_stats"), 1, "others keep the model")
one("SELECT waste_close('m')")
other.close()
try:
    sqlite3.connect(FILE).execute("PRAGMA integrity_check")
    ok(True, "the database opens without the extension")
finally:
    db.close()
    shutil.rmtree(HOME)
done()
