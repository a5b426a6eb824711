"""Reads that fail, come short, are interrupted or hang, while a model opens, reads
its prompt and writes its reply, through SQL: each ends in a sentence that says what
could not be read, or changes nothing; an interrupt is obeyed while a read hangs; and
the next call works."""
import errno
import json
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from fault.shim import ALWAYS, ERROR, FLIP, HANG, SHORT, start  # noqa: E402
from lib.tap import SANITIZED, connect, done, equal, ok, raises  # noqa: E402
from tiny import cases  # noqa: E402

shim = start()
PATH = cases.make("k3-odd-4p")  # records of five blocks, so that a read can stop in the middle
with open(os.path.join(PATH, "manifest.json")) as f:
    BANKS = {int(k): b for k, b in json.load(f)["layers"].items()}
RECORD = BANKS[1]["bytes"] // BANKS[1]["experts"]
REQUEST = json.dumps({"tokens": [5, 6, 7, 50, 90, 33, 21], "max_tokens": 24, "logit_bias": {"2": None}})
PHASES = ("prefill", "decode")
TARGET = 0.25  # seconds from an interrupt to the end of the statement
SLACK = 4 if SANITIZED else 0.6  # what is asked of a busy machine
FLOOR = connect().execute("SELECT value FROM waste_plan(?) WHERE part = 'floor'", (PATH,)).fetchone()[0]


def one(db, sql, *args):
    return db.execute(sql, args).fetchone()[0]


def options(**more):
    """The smallest cache, and nothing read that is not wanted: so reads fail when they matter."""
    return json.dumps(dict({"budget": int(FLOOR), "lookahead": 0}, **more))


def tokens(db, at=None, arm=None):
    """All tokens of a reply; arm() is called before the phase `at`."""
    if at == "prefill":
        arm()
    cursor = db.execute("SELECT token FROM waste_tokens(?, NULL, ?)", (PATH, REQUEST))
    if at == "decode":
        arm()
    return [row[0] for row in cursor]


def opened(**more):
    db = connect(check_same_thread=False)
    one(db, "SELECT waste_open(?, ?)", PATH, options(**more))
    return db


def closed(db):
    one(db, "SELECT waste_close(?)", PATH)
    db.close()


def running():
    return len(os.listdir("/proc/self/task"))


def files():
    """Descriptors of the container."""
    n = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            n += os.readlink(f"/proc/self/fd/{fd}").startswith(os.path.realpath(PATH))
        except OSError:
            pass  # the listing's own
    return n


def settles(get, want, seconds=10):
    """get() becomes `want`: a joined thread is listed for a moment more."""
    end = time.monotonic() + seconds
    while get() != want and time.monotonic() < end:
        time.sleep(0.005)
    return get()


def memory(db):
    return one(db, "SELECT memory_bytes FROM waste_stats")


db = opened()
MODES = db.execute("SELECT banks_direct, banks_buffered FROM waste_stats").fetchone()
shim.read("experts-L", HANG, 0, n=10**6)
WANT = tokens(db, "decode", lambda: ok(shim.calls() >= 10, f"{shim.calls()} records are read for the prompt"))
ok(shim.calls() >= 20, f"and more for the reply: {shim.calls()} in all")
shim.off()
equal(len(WANT), 24, "every token comes when nothing fails")
equal(tokens(db), WANT, "and again the same")
closed(db)
THREADS = settles(running, 1 + ("thread" in SANITIZED))  # of the interpreter and the sanitizer


# -- an error, once: the statement ends, says where, and nothing stays
def says_where(text):
    m = re.fullmatch(r".*layer (\d+), expert (\d+): cannot read (.*) at offset (\d+): (.*)", text)
    if not m:
        return False
    layer, expert, path, offset, cause = m.groups()
    bank = BANKS[int(layer)]
    at = int(offset) - int(expert) * RECORD
    return path.endswith(f"/{bank['file']}") and 0 <= at < RECORD and cause == os.strerror(errno.EIO)


for threads in (0, 2):
    db = opened(io_threads=threads)
    tokens(db)
    before = memory(db)
    for phase in PHASES:
        for n in (1, 2, 5, 11):
            name = f"the read {n} of {phase} fails, {threads} threads"
            try:
                said = str(tokens(db, phase, lambda: shim.read("experts-L", ERROR, errno.EIO, n=n)))
            except Exception as e:  # noqa: BLE001
                said = str(e)
            hits = shim.faults()
            shim.off()
            ok(hits == 1 and says_where(said), f"{name}: {said[:60]}... says layer, expert, file and offset")
            equal(tokens(db), WANT, f"{name}: the next call works")
            equal(settles(lambda: memory(db), before), before, f"{name}: and holds no more memory")
    closed(db)

# -- a disk that is gone for good, and comes back
db = opened(io_threads=2)
shim.read("experts-L", ERROR, errno.EIO, times=ALWAYS)
for i in range(3):
    raises(lambda: tokens(db), "layer", "expert", "offset", os.strerror(errno.EIO), name=f"every read fails: call {i + 1} says so")
shim.off()
equal(tokens(db), WANT, "when it comes back, all is well")
shim.read("experts-L2", ERROR, errno.EIO, times=ALWAYS)
raises(lambda: tokens(db), "layer 2,", "experts-L2.bin", name="one bank is gone: it is named")
shim.off()
equal(tokens(db), WANT, "and comes back")
closed(db)

# -- with lookahead a guess may be what fails: then it is read again, or asked for never
db = opened(lookahead=6, io_threads=4)
ended = {"said": 0, "right": 0, "wrong": 0}
for n in range(1, 31):
    try:
        got = tokens(db, PHASES[n % 2], lambda: shim.read("experts-L", ERROR, errno.EIO, n=n))
        ended["right" if got == WANT else "wrong"] += 1
    except Exception as e:  # noqa: BLE001
        ended["said" if says_where(str(e)) else "wrong"] += 1
    shim.off()
    ended["wrong"] += n % 10 == 0 and tokens(db) != WANT
equal((ended["wrong"], ended["said"] + ended["right"]), (0, 30), f"with lookahead: the right text or an error ({ended})")
closed(db)

# -- what the reader hides: interrupted calls and short counts
for threads in (0, 2):
    db = opened(io_threads=threads)
    for phase in PHASES:
        for name, kind, value, n, times in (
                ("is interrupted by a signal", ERROR, errno.EINTR, 1, 1), ("twenty times in a row", ERROR, errno.EINTR, 3, 20),
                ("comes one byte short", SHORT, RECORD - 1, 2, 1), ("ends inside its first block, five times", SHORT, 100, 1, 5),
                ("brings a block and a bit, always", SHORT, 4096 + 77, 1, ALWAYS), ("brings two blocks, always", SHORT, 8192, 1, ALWAYS)):
            got = tokens(db, phase, lambda: shim.read("experts-L", kind, value, n, times))
            hits = shim.faults()
            shim.off()
            ok(hits >= 1 and (times < 0 or hits == times), f"{phase}, {threads} threads: a read {name}")
            equal(got, WANT, "and changes no token")
    closed(db)
db = opened()
for value in (0, 100):
    shim.read("experts-L", SHORT, value, times=ALWAYS)
    raises(lambda: tokens(db), "layer 1, expert", "experts-L1.bin", "ends at byte", name=f"reads that never bring more than {value} bytes end")
    shim.off()
    equal(tokens(db), WANT, "the next call works")
closed(db)

# -- bytes that are not those that were written
db = opened(verify=True)
for phase in PHASES:
    for byte, word in ((0, "magic"), (RECORD // 2, "checksum")):
        raises(lambda: tokens(db, phase, lambda: shim.read("experts-L", FLIP, byte, n=2)), "layer", "expert", "experts-L", word,
               name=f"{phase}: byte {byte} arrives wrong: {word}")
        shim.off()
        equal(tokens(db), WANT, "it is not kept: the next call works")
closed(db)
equal(files(), 0, "closed: no file is open")


# -- a read that hangs
def interrupted(db, phase, n, name, threads=2, ms=2000, text="experts-L"):
    """The statement ends soon after the interrupt, although the read has not ended."""
    at = []

    def stop():
        end = time.monotonic() + 30
        while not shim.hanging() and time.monotonic() < end:
            time.sleep(0.002)
        time.sleep(0.05)
        at.append((time.monotonic(), shim.hanging()))
        db.interrupt()

    watch = threading.Thread(target=stop)
    watch.start()
    raises(lambda: tokens(db, phase, lambda: shim.read(text, HANG, ms, n=n)), "interrupted", name=name)
    took = time.monotonic() - at[0][0]
    still = shim.hanging()
    watch.join()
    equal(at[0][1], 1, f"{name}: while a read hung")
    if threads:
        equal(still, 1, f"{name}: which it still does")
        ok(took < SLACK, f"{name}: {took * 1000:.0f} ms after the interrupt (wanted: {TARGET * 1000:.0f})")
    return took


for threads in (1, 2, 8):
    db = opened(io_threads=threads)
    for phase in PHASES:
        for n in (1, 5):
            name = f"read {n} of {phase} hangs, {threads} threads"
            interrupted(db, phase, n, name)
            shim.off()
            equal(tokens(db), WANT, f"{name}: the next call works")
    closed(db)
db = opened()
began = time.monotonic()
shim.read("experts-L", HANG, 2000)
raises(lambda: one(db, "SELECT waste_generate(?, NULL, ?)", PATH, json.dumps(dict(json.loads(REQUEST), timeout_ms=100))), "timeout_ms 100", "0 tokens",
       name="a timeout passes while a read hangs")
ok(0.1 < time.monotonic() - began < 0.1 + SLACK and shim.hanging(), "and is obeyed at once")
shim.off()
equal(tokens(db), WANT, "the next call works")
interrupted(db, "prefill", 2, "for the whole two seconds")
equal(tokens(db), WANT, "what wants the record that still hangs waits for it and works")
shim.off()
interrupted(db, "decode", 1, "closing meanwhile")
began = time.monotonic()
threading.Timer(0.2, shim.off).start()
closed(db)
took = time.monotonic() - began
ok(0.1 < took < 0.2 + SLACK, "closing waits for the read that has begun, and no longer")
equal((files(), settles(running, THREADS)), (0, THREADS), "no file is open and no thread is left")
db = opened()
equal(tokens(db, "decode", lambda: shim.read("experts-L", HANG, 30, n=2, times=5)), WANT, "slow reads change no token")
shim.off()
other = connect(check_same_thread=False)  # a second connection, that waits for its turn
one(other, "SELECT waste_open(?)", PATH)
shim.read("experts-L", HANG, 2000)
first = threading.Thread(target=lambda: raises(lambda: tokens(db), "interrupted", name="the one whose read hangs is interrupted"))
first.start()
settles(shim.hanging, 1)
waits = threading.Timer(0.1, other.interrupt)
waits.start()
began = time.monotonic()
raises(lambda: tokens(other), "interrupted", name="and so is the one that waits behind it")
ok(time.monotonic() - began < 0.1 + SLACK, "at once")
db.interrupt()
first.join()
shim.off()
equal((tokens(other), tokens(db)), (WANT, WANT), "both go on")
other.close()
closed(db)

# Where the statement itself is in the read, an interrupt ends it when the read ends:
# with no reader threads, in a row of the embedding, and while the model opens.
db = opened(io_threads=0)
at = interrupted(db, "decode", 1, "no reader threads", threads=0, ms=500)
shim.off()
ok(0.3 < at < 0.5 + SLACK, "an interrupt ends the statement when the read ends")
equal(tokens(db), WANT, "the next call works")
closed(db)
for text, label, ready in (("trunk.bin", "a row of the embedding hangs", opened), ("trunk.bin", "opening hangs in the trunk", None),
                           *([("experts-L2", "opening hangs in a bank", None)] if MODES[0] else [])):
    db = ready() if ready else connect(check_same_thread=False)
    at = interrupted(db, "prefill", 1, label, threads=0, ms=400, text=text)
    shim.off()
    ok(0.2 < at < 0.4 + SLACK, f"{label}: the statement ends with the read")
    equal(tokens(db), WANT, f"{label}: the next call works")
    db.close()

# -- opening
for text, label in (("manifest.json", "manifest.json"), ("trunk.bin", "trunk.bin"), ("codebooks.bin", "codebooks.bin")):
    for n in (1, 2):
        db = connect()
        shim.read(text, ERROR, errno.EIO, n=n)
        name = f"opening: read {n} of {label} fails"
        try:
            one(db, "SELECT waste_open(?, ?)", PATH, options())
            ok(shim.faults() == 0, f"{name}: there is none")
        except Exception as e:  # noqa: BLE001
            ok(shim.faults() == 1 and os.path.join(PATH, text) in str(e) and os.strerror(errno.EIO) in str(e), f"{name}: {e}")
        shim.off()
        equal(tokens(db), WANT, f"{name}: the next call works")
        db.close()
    for kind, value, times in ((ERROR, errno.EINTR, 3), (SHORT, 1000, ALWAYS)):
        db = connect()
        shim.read(text, kind, value, times=times)
        one(db, "SELECT waste_open(?, ?)", PATH, options())
        hits = shim.faults()
        shim.off()
        ok(hits >= 1 and tokens(db) == WANT, f"opening: {hits} reads of {label} {'interrupted' if kind == ERROR else 'short'}: all the same")
        db.close()
    for value, fails in ((errno.EMFILE, True), (errno.EACCES, True), (errno.EINTR, False)):
        db = connect()
        shim.open(text, ERROR, value)
        if fails:
            raises(lambda: one(db, "SELECT waste_open(?, ?)", PATH, options()), text, os.strerror(value), name=f"opening {label}: {os.strerror(value)}")
        else:
            one(db, "SELECT waste_open(?, ?)", PATH, options())
        ok(shim.faults() == 1, "as was asked")
        shim.off()
        equal(tokens(db), WANT, f"opening {label}: {os.strerror(value)}: then it works")
        db.close()
equal((files(), settles(running, THREADS)), (0, THREADS), "no file is open and no thread is left")

# A bank's first read decides how it is read.
for name, kind, value, times, buffered in (("cannot be read past the page cache", ERROR, errno.EINVAL, 1, 1), ("has a bad first record", ERROR, errno.EIO, 1, 1),
                                           ("is interrupted", ERROR, errno.EINTR, 3, 0), ("comes short", SHORT, 512, 1, 0),
                                           ("takes its time", HANG, 100, 1, 0)):
    db = connect()
    shim.read("experts-L2", kind, value, times=times)
    one(db, "SELECT waste_open(?, ?)", PATH, options())
    hits = shim.faults()
    shim.off()
    if MODES[0] == 3:
        equal((hits, db.execute("SELECT banks_direct, banks_buffered FROM waste_stats").fetchone()), (times, (3 - buffered, buffered)),
              f"opening: the bank of layer 2 {name}: {buffered} buffered")
    equal(tokens(db), WANT, "and no token changes")
    closed(db)
for value in (errno.EMFILE, errno.EIO):
    db = connect()
    shim.open("experts-L2", ERROR, value)
    raises(lambda: one(db, "SELECT waste_open(?, ?)", PATH, options()), "layer 2", "experts-L2.bin", os.strerror(value), name=f"opening a bank: {os.strerror(value)}")
    shim.off()
    equal(tokens(db), WANT, "then it works")
    db.close()
db = connect()
shim.read("experts-L", ERROR, errno.EIO, times=ALWAYS)
one(db, "SELECT waste_open(?, ?)", PATH, options())
raises(lambda: tokens(db), "layer 1, expert", "experts-L1.bin", "offset", name="opened from a disk that is gone: the first call says so")
shim.off()
equal(tokens(db), WANT, "and then it works")
closed(db)

# -- the embedding's rows are read one at a time
db = opened()
for phase in PHASES:
    raises(lambda: tokens(db, phase, lambda: shim.read("trunk.bin", ERROR, errno.EIO)), "trunk.bin", "embed_tokens", os.strerror(errno.EIO),
           name=f"{phase}: a row of the embedding cannot be read")
    shim.off()
    equal(tokens(db), WANT, "the next call works")
    for kind, value, times in ((ERROR, errno.EINTR, 4), (SHORT, 3, ALWAYS)):
        equal(tokens(db, phase, lambda: shim.read("trunk.bin", kind, value, times=times)), WANT, f"{phase}: or comes in pieces")
        ok(shim.faults() > 1, "as was asked")
        shim.off()
closed(db)
equal((files(), settles(running, THREADS)), (0, THREADS), "nothing is left running")
done()
