"""waste_verify through SQL: rows of a sound container, damage as rows, arguments, an interrupt."""
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
import demo  # noqa: E402
from lib.tap import connect, done, equal, ok, raises  # noqa: E402

MODEL = demo.container()
db = connect()


def rows(sql, *args):
    return db.execute(sql, args).fetchall()


equal(rows("SELECT part, count(*), sum(ok), count(error), count(name) FROM waste_verify(?) GROUP BY part", MODEL),
      [("census", 1, 1, 0, 0), ("codebooks", 7, 7, 0, 0), ("record", 224, 224, 0, 0), ("tensor", 212, 212, 0, 212)],
      "every part of a sound container is a row")
got = rows("SELECT part, min(ok), count(*), max(error), min(gate), max(down) FROM waste_verify(?, ?) GROUP BY part", MODEL, demo.CHECKPOINT)
ok(all(r[1] == 1 for r in got), "with the checkpoint at hand")
ok([r for r in got if r[0] == "record" and 0.1 < r[3] < 0.25 and r[4] > 0.1 and r[5] < 0.25], "records say how far they are off")
equal(rows("SELECT layer, expert FROM waste_verify(?) WHERE part = 'record' LIMIT 2", MODEL), [(1, 0), (1, 1)], "in order")
equal(rows("SELECT * FROM waste_verify(NULL)"), [], "NULL gives no rows")
raises(lambda: rows("SELECT * FROM waste_verify('/no/where')"), "/no/where", name="a container that is not there")
raises(lambda: rows("SELECT * FROM waste_verify('nobody')"), "nobody", name="a name that is not registered")
raises(lambda: rows("SELECT * FROM waste_verify(?, '/no/source')", MODEL), "/no/source", name="a source that is not there")
raises(lambda: rows("SELECT * FROM waste_verify"), "waste_verify needs a model", name="no argument")

home = tempfile.mkdtemp()
copy = os.path.join(home, "copy.waste")
shutil.copytree(MODEL, copy)
with open(os.path.join(copy, "experts-L3.bin"), "r+b") as f:
    f.seek(5 * 20480 + 5000)
    b = f.read(1)
    f.seek(-1, 1)
    f.write(bytes([b[0] ^ 64]))
bad = rows("SELECT part, layer, expert, note FROM waste_verify(?) WHERE NOT ok", copy)
ok(len(bad) == 1 and bad[0][:3] == ("record", 3, 5) and "checksum" in bad[0][3], "a flipped bit is one row")
with open(os.path.join(copy, "experts-L3.bin"), "r+b") as f:
    f.truncate(31 * 20480)
bad = rows("SELECT count(*), min(note) FROM waste_verify(?) WHERE NOT ok", copy)
ok(bad[0][0] >= 1, "a bank cut short is, too")
shutil.rmtree(home)
done()
