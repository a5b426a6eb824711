"""waste.so as a file: it needs libc, libm and the loader, and nothing else that a
machine may lack; and the database it makes opens, dumps and is rebuilt without it."""
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import EXTENSION, SANITIZED, connect, done, equal, ok, skip  # noqa: E402
from tiny import cases  # noqa: E402

NAMES = ("the dynamic libraries it needs are libc, libm and the loader",)
PLAIN = ("libc.so", "libm.so", "libpthread.so", "ld-linux", "ld64.so")  # libpthread: glibc before 2.34
if SANITIZED:
    skip("a sanitizer's runtime is one more", NAMES[0])
elif not shutil.which("readelf"):
    skip("readelf is not installed", NAMES[0])
else:
    lines = subprocess.run(["readelf", "-d", EXTENSION], capture_output=True, text=True, check=True).stdout.splitlines()
    needed = [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line]
    ok(needed and all(n.startswith(PLAIN) for n in needed), f"{NAMES[0]}: {needed}")

home = tempfile.mkdtemp()
path = os.path.join(home, "a.db")
db = connect(path, isolation_level=None)
db.execute("SELECT waste_setup()").fetchone()
db.execute("SELECT waste_register('m', ?)", (cases.make("tiny-chat"),)).fetchone()
db.execute("SELECT waste_session('m', 's')").fetchone()
db.execute("SELECT waste_chat('s', 'Hi')").fetchone()
db.close()

names = {r[0] for r in connect().execute("SELECT name FROM pragma_function_list WHERE name LIKE 'waste%'"
                                         " UNION SELECT name FROM pragma_module_list WHERE name LIKE 'waste%'")}
bare = sqlite3.connect(path)
dump = list(bare.iterdump())
schema = [sql for sql, in bare.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")]
equal([(n, s) for s in schema for n in names for tail in ("(", " (") if n + tail in s and f"TABLE {n}" not in s and f"INTO {n}" not in s], [],
      f"none of {len(schema)} tables, triggers and indexes calls the extension")
objects = bare.execute("SELECT count(*) FROM sqlite_schema").fetchone()
tables = [r[0] for r in bare.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
counts = {t: bare.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables}
ok(counts["waste_sessions"] == 1 and counts["waste_messages"] == 2 and counts["waste_state"] > 0, f"it is read without the extension: {counts}")
copy = sqlite3.connect(":memory:")
copy.executescript("\n".join(dump))
equal(copy.execute("SELECT count(*) FROM sqlite_schema").fetchone(), objects, "dumped and run again, it has the same schema")
equal({t: copy.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables}, counts, "and the same rows")
copy.execute("UPDATE waste_messages SET content = 'changed' WHERE role = 'user'")
copy.execute("DELETE FROM waste_sessions")
equal([copy.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("waste_messages", "waste_state")], [0, 0],
      "its triggers work without the extension, too")
bare.close()
copy.close()
shutil.rmtree(home)
done()
