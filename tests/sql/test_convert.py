"""waste_convert through SQL: rows, options, and what stopping early leaves (nothing)."""
import os
import shutil
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import ROOT, SANITIZED, connect, done, equal, ok, raises  # noqa: E402

SOURCE = os.path.join(ROOT, "examples", "demo", "checkpoint")
HOME = tempfile.mkdtemp()
TARGET = os.path.join(HOME, "demo.waste")
db = connect(check_same_thread=False)


def left():
    return sorted(os.path.join(d, f)[len(HOME) + 1:] for d, _, files in os.walk(HOME) for f in files)


def rows(sql, *args):
    return db.execute(sql, args).fetchall()


# -- arguments and options
raises(lambda: rows("SELECT * FROM waste_convert('/no/checkpoint', ?)", TARGET), "/no/checkpoint", name="a source that is not there")
raises(lambda: rows("SELECT * FROM waste_convert(?, ?)", HOME, TARGET), HOME, name="a source without a checkpoint")
raises(lambda: rows("SELECT * FROM waste_convert('', ?)", TARGET), "source", "empty", name="an empty source")
raises(lambda: rows("SELECT * FROM waste_convert(?, x'2f')", SOURCE), "target", "BLOB", name="a target that is a BLOB")
raises(lambda: rows("SELECT * FROM waste_convert(?, '/a' || char(0))", SOURCE), "target", "NUL", name="a target with a NUL")
raises(lambda: rows("SELECT * FROM waste_convert(?, '/no/such/place/x')", SOURCE), "/no/such/place", name="a target that cannot be made")
for options, words in (('{"trunk_bits":5}', ("trunk_bits", "is 5", "4, 8 or 3")), ('{"experts":"vq9"}', ("experts", "vq9", "vq3r")),
                       ('{"expert":"vq3r"}', ("'expert'", "'experts'")), ('{"overwrite":"yes"}', ("overwrite",)), ("[]", ("object",))):
    raises(lambda o=options: rows("SELECT * FROM waste_convert(?, ?, ?)", SOURCE, TARGET, o), "waste_convert", *words, name=f"options {options}")
equal(left(), [], "none of these wrote a file")

# -- stopping early
first = rows("SELECT phase, layer, done, total, bytes > 0, seconds >= 0, error FROM waste_convert(?, ?) LIMIT 1", SOURCE, TARGET)[0]
ok(first[0] == "trunk" and first[1] is None and 0 < first[2] < first[3] and first[4] and first[5] and 0 < first[6] < 0.3, "the first row")
equal(left(), [], "LIMIT removes what was written")
cursor = db.execute("SELECT phase FROM waste_convert(?, ?)", (SOURCE, TARGET))
cursor.fetchone()
ok(left() != [], "while it runs there are files")
cursor.close()
equal(left(), [], "closing the statement removes them")
timer = threading.Timer(0.3, db.interrupt)
timer.start()
raises(lambda: rows("SELECT count(*) FROM waste_convert(?, ?)", SOURCE, TARGET), "interrupted", name="an interrupt stops it")
timer.join()
equal(left(), [], "and removes them")

# -- all of it
if not SANITIZED:
    got = rows("SELECT phase, layer, done, total, bytes, seconds, error FROM waste_convert(?, ?)", SOURCE, TARGET)
    equal(sorted({r[0] for r in got}), ["codebooks", "experts", "files", "manifest", "trunk"], "the phases")
    ok(all(x[2] < y[2] and x[4] <= y[4] and x[5] <= y[5] for x, y in zip(got, got[1:])), "done, bytes and seconds ascend")
    equal(got[-1][2], got[-1][3], "to the end")
    ok(all((r[1] is not None) == (r[0] in ("codebooks", "experts")) for r in got), "layers where there are layers")
    ok(all(0.05 < r[6] < 0.3 for r in got if r[0] == "experts"), "experts carry their error")
    equal(rows("SELECT waste_generate(?, 'What is the capital of Italy?')", TARGET), [("The capital of Italy is **Rome**.",)],
          "the container answers")
    raises(lambda: rows("SELECT * FROM waste_convert(?, ?)", SOURCE, TARGET), TARGET, name="a container that is there stays")
    before = left()
    rows("SELECT phase FROM waste_convert(?, ?, '{\"overwrite\":true}') LIMIT 1", SOURCE, TARGET)
    equal(left(), before, "an overwrite that is stopped leaves the old one")
    equal(rows("SELECT waste_generate(?, 'What is the capital of Italy?')", TARGET), [("The capital of Italy is **Rome**.",)], "whole")
shutil.rmtree(HOME)
done()
