"""Conversions that the file system fails, or that end at any of their renames and deletions: a shard that cannot be deleted,
a disk that is too small, and every step of the publication. What comes out in the end is always the same."""
import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from fault.shim import ALWAYS, CHANGE, ERROR, FREE, KILL, STATVFS, UNLINK, start  # noqa: E402
from lib import checkpoint  # noqa: E402
from lib.tap import SANITIZED, connect, done, equal, ok, raises  # noqa: E402

shim = start()
LAYERS = 2
HOME = tempfile.mkdtemp()
SOURCE, TARGET, FIRST = (os.path.join(HOME, n) for n in ("checkpoint", "model.waste", "first"))
SHARDS = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
db = connect()
checkpoint.model(FIRST, experts="MXFP4", nested=True, shards=3, layers=LAYERS)


def fresh():
    for path in (SOURCE, TARGET):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(FIRST, SOURCE)


def convert(**options):
    return db.execute("SELECT phase, kind, bytes, note FROM waste_convert(?, ?, ?)", (SOURCE, TARGET, json.dumps(options))).fetchall()


def files(path=None):
    out = {}
    for name in sorted(os.listdir(path or TARGET)):
        with open(os.path.join(path or TARGET, name), "rb") as f:
            out[name] = hashlib.sha256(f.read()).hexdigest()
    return out


def shards():
    return [n for n in SHARDS if os.path.exists(os.path.join(SOURCE, n))]


fresh()
convert()
want = files()

# -- shards that cannot be deleted
for code in (errno.EACCES, errno.EPERM):
    fresh()
    shim.arm(UNLINK, os.path.join(SOURCE, SHARDS[1]), ERROR, code, times=ALWAYS)
    rows = convert(reclaim="on")
    notes = [r[3] for r in rows if r[0] == "reclaim"]
    equal(shim.faults(), 1, f"{errno.errorcode[code]}: one deletion fails")
    shim.off()
    said = [n for n in notes if SHARDS[1] in n]
    ok(len(said) == 1 and os.strerror(code) in said[0], f"a row names the shard and says {os.strerror(code)!r}")
    equal(shards(), [SHARDS[1]], "the others are gone")
    equal(max(r[2] for r in rows if r[0] == "reclaim"), sum(os.path.getsize(os.path.join(FIRST, n)) for n in SHARDS if n != SHARDS[1]),
          "and only they count as freed")
    equal(files(), want, "the conversion goes on to the same container")
    with open(os.path.join(SOURCE, ".reclaimed")) as f:
        equal(sorted(f.read().split()), SHARDS, "the ledger has all, which costs nothing")

# -- a ledger or a kept header that cannot be written is an error before anything is deleted
fresh()
os.mkdir(os.path.join(SOURCE, ".reclaimed"))
raises(lambda: convert(reclaim="on"), ".reclaimed", name="a ledger that cannot be read or written")
equal(shards(), SHARDS, "deletes nothing")

# -- a disk that is too small
fresh()
shim.arm(STATVFS, HOME, FREE, 100 << 10, times=ALWAYS)
plan = convert(plan=True)
facts = {r[1]: r[2] for r in plan if r[0] == "plan"}
problems = [r[3] for r in plan if r[0] == "problem"]
ok(len(problems) == 1 and "free" in problems[0] and str(facts["peak_disk"]) in problems[0], "the plan says how much is free and needed")
equal(facts["free_disk"], 100 << 10, "and has both as figures")
ok(facts["peak_disk"] > 100 << 10, "which do not fit")
raises(convert, TARGET, "more bytes", "102400 are free", name="a conversion is refused")
equal((shards(), os.path.exists(TARGET)), (SHARDS, False), "before it wrote anything")
equal(len([r for r in convert(reclaim="on") if r[0] == "manifest"]), 1, "one that deletes as it goes is not: it makes room")
equal((files(), shards()), (want, []), "and gives the same container")
fresh()
shim.arm(STATVFS, HOME, ERROR, errno.ENOSYS, times=ALWAYS)
equal([r for r in convert(plan=True) if r[0] == "problem"], [], "a system that does not say is no problem")
shim.off()
sized = {r[1]: r[2] for r in convert(plan=True) if r[0] == "plan"}["peak_disk"]
shim.arm(STATVFS, HOME, FREE, sized // 4096 * 4096 + 4096, times=ALWAYS)
equal([r for r in convert(plan=True) if r[0] == "problem"], [], "the room that the plan asks for is enough for it")
shim.off()


# -- an end at every rename and deletion
def ends_at(n, **options):
    """Whether a process that converts ends before its n-th rename or deletion in the target."""
    pid = os.fork()
    if pid == 0:
        shim.arm(CHANGE, TARGET, KILL, 9, n=n)
        try:
            convert(**options)
            os._exit(0)
        except BaseException:  # noqa: BLE001
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def state(old):
    """What somebody would find, in one word."""
    if not os.path.exists(TARGET):
        return "nothing"
    if not os.path.exists(os.path.join(TARGET, "manifest.json")):
        return "published in part" if os.path.exists(os.path.join(TARGET, ".convert", "publish.json")) else "at work"
    sound = db.execute("SELECT min(ok) FROM waste_verify(?)", (TARGET,)).fetchone() == (1,)
    found = files_of_target()
    return "new" if sound and found == want else "old" if sound and found == old else "broken"


def files_of_target():
    work = os.path.join(TARGET, ".convert")
    hidden = os.path.join(HOME, "hidden")
    if os.path.exists(work):
        os.rename(work, hidden)
    out = files()
    if os.path.exists(hidden):
        os.rename(hidden, work)
    return out


for over in (False, True):
    fresh()
    old = {}
    if over:
        convert(experts="vq2r")
        old = files()
        shutil.copytree(TARGET, os.path.join(HOME, "old"))
    options = {"overwrite": True} if over else {}
    n, seen, wrong, step = 1, {}, [], 3 if SANITIZED else 1
    while (status := ends_at(n, **options)) == 9:
        found = state(old)
        seen[found] = seen.get(found, 0) + 1
        again = dict(options, overwrite=True) if found == "new" else options
        try:
            convert(**again)
        except Exception as e:  # noqa: BLE001
            if found != "new" or "there is a container already" not in str(e):
                wrong.append((n, found, str(e)))
        if files() != want or os.path.exists(os.path.join(TARGET, ".convert")):
            wrong.append((n, found, "other files"))
        shutil.rmtree(TARGET)
        if over:
            shutil.copytree(os.path.join(HOME, "old"), TARGET)
        n += step
    where = "over another container" if over else "into an empty place"
    equal(status, 0, f"{where}: {n - 1} renames and deletions; the process ended before {'each' if step == 1 else 'some'} of them")
    equal(wrong, [], "each time the next run came to the same container")
    equal(seen.get("broken"), None, f"and what was found was {seen}")
    ok({"published in part", "old" if over else "at work"} <= set(seen), "in the middle of the publication too")
shutil.rmtree(HOME)
done()
