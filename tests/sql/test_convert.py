"""waste_convert through SQL: rows, options, plans, and what stopping early leaves: what is finished, and nothing else."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import EXTENSION, ROOT, SANITIZED, connect, done, equal, ok, raises  # noqa: E402

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
equal(left(), ["demo.waste/.convert/job.json", "demo.waste/.convert/trunk.bin"], "closing the statement keeps what is finished")
raises(lambda: rows("SELECT * FROM waste_convert(?, ?, '{\"trunk_bits\":8}')", SOURCE, TARGET), "unfinished", "overwrite",
       name="which another conversion does not throw away")
shutil.rmtree(TARGET)
# -- a plan
plan = {(r[0], r[1]): r[2:] for r in rows("SELECT phase, kind, bytes, seconds, note FROM waste_convert(?, ?, '{\"plan\":true}')", SOURCE, TARGET)}
equal(left(), [], "planning writes nothing")
ok(all(("plan", k) in plan for k in ("source", "trunk", "experts", "container", "peak_disk", "free_disk", "peak_ram", "time")),
   "it names sizes, disk, memory and time")
ok(not [k for k in plan if k[0] == "problem"], "and no problem")
bad = rows("SELECT note FROM waste_convert(?, ?, '{\"plan\":true,\"layers\":\"0\"}') WHERE phase = 'problem'", SOURCE, TARGET)
ok(len(bad) == 1 and "layers is \"0\"" in bad[0][0], "a layer without experts is one")
bad = rows("SELECT note FROM waste_convert('/no/checkpoint', ?, '{\"plan\":true}')", TARGET)
ok(len(bad) == 1 and "/no/checkpoint is not a directory" in bad[0][0], "and so is a source that is not there")
raises(lambda: rows("SELECT * FROM waste_convert(?, ?, '{\"plan\":true,\"effort\":\"much\"}')", SOURCE, TARGET), "effort",
       name="an option is an error even so")

# -- what the search for entries gains over the greedy one, on a layer of a trained model
def lost(**options):
    got = rows("SELECT kind, error FROM waste_convert(?, ?, ?) WHERE phase = 'layer'", SOURCE, TARGET, json.dumps(dict(options, layers="3")))
    shutil.rmtree(TARGET)
    return [e for _, e in sorted(got)]


for experts in ("vq3r", "vq4p"):
    greedy, default = (lost(experts=experts, effort=e) for e in ("fast", "default"))
    ok(len(default) == 3 and all(d < 0.87 * g for d, g in zip(default, greedy)),
       f"{experts}: of down, gate and up the default loses {', '.join(f'{d:.4f}' for d in default)}, greedy {', '.join(f'{g:.4f}' for g in greedy)}")

# -- all of it, in two goes
if not SANITIZED:
    timer = threading.Timer(0.7, db.interrupt)
    timer.start()
    raises(lambda: rows("SELECT count(*) FROM waste_convert(?, ?)", SOURCE, TARGET), "interrupted", name="an interrupt stops it")
    timer.join()
    ok(left() and all("/.convert/" in f for f in left()), "and keeps what is finished")
    got = rows("SELECT phase, layer, done, total, bytes, seconds, error, kind, note, eta FROM waste_convert(?, ?)", SOURCE, TARGET)
    equal([f for f in left() if ".convert" in f], [], "which is gone when it is done")
    ok("trunk" not in {r[0] for r in got}, "the trunk was not done twice")
    shutil.rmtree(TARGET)
    got = rows("SELECT phase, layer, done, total, bytes, seconds, error, kind, note, eta FROM waste_convert(?, ?)", SOURCE, TARGET)
    equal(sorted({r[0] for r in got}), ["codebooks", "experts", "files", "layer", "manifest", "proof", "trunk"], "the phases")
    ok(all(x[2] <= y[2] and x[4] <= y[4] and x[5] <= y[5] for x, y in zip(got, got[1:])), "done, bytes and seconds ascend")
    equal(got[-1][2], got[-1][3], "to the end")
    ok(all(r[1] is not None for r in got if r[0] in ("codebooks", "experts", "layer")), "layers where there are layers")
    ok(all(0.05 < r[6] < 0.3 for r in got if r[0] in ("experts", "layer")), "experts carry their error")
    equal([(r[1], r[7]) for r in got if r[0] == "layer"], [(n, k) for n in range(1, 8) for k in ("gate", "up", "down")],
          "each layer says what each kind of matrix lost")
    ok(any(r[9] and r[9] > 0 for r in got) and got[-1][9] == 0, "seconds to go are estimated")
    ok("generated a token" in [r[8] for r in got if r[0] == "proof"][-1], "it ends by proof")
    equal(rows("SELECT waste_generate(?, 'What is the capital of Italy?')", TARGET), [("The capital of Italy is **Rome**.",)],
          "the container answers")
    raises(lambda: rows("SELECT * FROM waste_convert(?, ?)", SOURCE, TARGET), TARGET, name="a container that is there stays")
    before = left()
    rows("SELECT phase FROM waste_convert(?, ?, '{\"overwrite\":true}') LIMIT 1", SOURCE, TARGET)
    equal(left(), before, "an overwrite that is stopped leaves the old one")
    equal(rows("SELECT waste_generate(?, 'What is the capital of Italy?')", TARGET), [("The capital of Italy is **Rome**.",)], "whole")

    # -- progress
    code = ("import sqlite3, sys; db = sqlite3.connect(':memory:'); db.enable_load_extension(True); db.load_extension(sys.argv[1]);"
            "db.execute(\"SELECT count(*) FROM waste_convert(?, ?, ?)\", sys.argv[2:5]).fetchone()")
    for options in ("{}", '{"progress":true}'):
        p = subprocess.run([sys.executable, "-c", code, EXTENSION, SOURCE, os.path.join(HOME, options), options],
                           capture_output=True, text=True, check=True)
        lines = p.stderr.splitlines()  # on a busy machine there may be some on the way
        ok(not lines if options == "{}" else lines and lines[-1].startswith("[manifest, 454 of 454, 0.01 GB, ") and
           all(at.startswith("[") for at in lines) and p.stdout == "", f"on stderr with {options}: lines, or nothing")
shutil.rmtree(HOME)
done()
