"""Reads that fail, come short, are interrupted or hang, while a model opens, reads
its prompt and writes its reply, through SQL: each ends in a sentence that says what
could not be read, or changes nothing; an interrupt is obeyed while a read hangs; and
the next call works."""
import errno
import gc
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
FOREVER = 120_000  # milliseconds: a read that hangs until it is told to go on
TARGET = 0.25  # seconds wanted from an interrupt to the end of the statement; shown, not tested
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
    db.execute("SELECT waste_close(?)", (PATH,)).fetchall()
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


for threads in (1, 2):
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
for threads in (1, 2):
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


# -- a read that hangs, until it is told to go on: a statement that ends before has not waited for it
def interrupted(db, call, name):
    """call() ends by the interrupt that it gets when a read hangs, and the read hangs on."""
    at = []

    def stop():
        end = time.monotonic() + 60
        while not shim.hanging() and time.monotonic() < end:
            time.sleep(0.002)
        time.sleep(0.05)
        at.append((time.monotonic(), shim.hanging()))
        db.interrupt()

    watch = threading.Thread(target=stop)
    watch.start()
    raises(call, "interrupted", name=name)
    took, still = time.monotonic() - at[0][0], shim.hanging()
    watch.join()
    equal((at[0][1], still), (1, 1), f"{name}: while a read hung, which it still does")
    print(f"# {took * 1000:.0f} ms after the interrupt (wanted: {TARGET * 1000:.0f})")


def reply(db, phase, n, name, text="experts-L"):
    """A reply whose n-th read of `phase` hangs."""
    interrupted(db, lambda: tokens(db, phase, lambda: shim.read(text, HANG, FOREVER, n=n)), name)


for threads in (1, 2, 8):
    db = opened(io_threads=threads)
    for phase in PHASES:
        for n in (1, 5):
            name = f"read {n} of {phase} hangs, {threads} threads"
            reply(db, phase, n, name)
            shim.off()
            equal(tokens(db), WANT, f"{name}: the next call works")
        name = f"a row of the embedding in {phase} hangs, {threads} threads"
        reply(db, phase, 1, name, text="trunk.bin")
        shim.off()
        equal(tokens(db), WANT, f"{name}: the next call works")
    closed(db)
db = opened()
shim.read("experts-L", HANG, FOREVER)
raises(lambda: one(db, "SELECT waste_generate(?, NULL, ?)", PATH, json.dumps(dict(json.loads(REQUEST), timeout_ms=100))), "timeout_ms 100", "0 tokens",
       name="a timeout passes while a read hangs")
equal(shim.hanging(), 1, "and is obeyed before the read ends")
shim.off()
equal(tokens(db), WANT, "the next call works")
for text, what in (("experts-L", "record"), ("trunk.bin", "row of the embedding")):
    reply(db, "prefill", 1, f"a {what} hangs on", text=text)
    goes_on = threading.Timer(0.2, shim.off)
    goes_on.start()
    equal(tokens(db), WANT, f"what wants the {what} that still hangs waits for it, or has it from elsewhere")
    goes_on.join()
closed(db)


def closes_after_the_read(db, name):
    told = []

    def go_on():
        told.append(shim.hanging())
        shim.off()

    gc.collect()  # of earlier connections, which closures may hold
    threading.Timer(0.2, go_on).start()
    closed(db)
    equal((told, shim.hanging()), ([1], 0), f"{name}: closing waits for the read that has begun")
    equal((files(), settles(running, THREADS)), (0, THREADS), f"{name}: no file is open and no thread is left")


for text in ("experts-L", "trunk.bin"):
    db = opened()
    reply(db, "decode", 1, f"closing while {text} hangs", text=text)
    closes_after_the_read(db, text)
db = opened()
equal(tokens(db, "decode", lambda: shim.read("experts-L", HANG, 30, n=2, times=5)), WANT, "slow reads change no token")
shim.off()
other = connect(check_same_thread=False)  # a second connection, that waits for its turn
one(other, "SELECT waste_open(?)", PATH)
shim.read("experts-L", HANG, FOREVER)
first = threading.Thread(target=lambda: raises(lambda: tokens(db), "interrupted", name="the one whose read hangs is interrupted"))
first.start()
settles(shim.hanging, 1)
threading.Timer(0.1, other.interrupt).start()
raises(lambda: tokens(other), "interrupted", name="and so is the one that waits behind it")
equal(shim.hanging(), 1, "before the read ends")
db.interrupt()
first.join()
shim.off()
equal((tokens(other), tokens(db)), (WANT, WANT), "both go on")
other.close()
closed(db)

# -- opening, and what else reads a container
for text, call in (("manifest.json", "SELECT waste_open(?)"), ("trunk.bin", "SELECT waste_open(?)"), ("codebooks.bin", "SELECT waste_open(?)"),
                   *([("experts-L2", "SELECT waste_open(?)")] if MODES[0] else []),
                   ("manifest.json", "SELECT count(*) FROM waste_info(?)"), ("manifest.json", "SELECT count(*) FROM waste_plan(?)"),
                   ("manifest.json", "SELECT waste_register('m', ?)")):
    for n in (1, 2) if text == "trunk.bin" else (1,):
        db = connect(check_same_thread=False)
        name = f"{call}: read {n} of {text} hangs"
        shim.read(text, HANG, FOREVER, n=n)
        interrupted(db, lambda: one(db, call, PATH), name)
        again = connect(check_same_thread=False)
        interrupted(again, lambda: one(again, "SELECT waste_open(?)", PATH), f"{name}: who opens it next waits, and can be interrupted")
        again.close()
        shim.off()
        equal(tokens(db), WANT, f"{name}: the next call works")
        db.close()
        equal((files(), settles(running, THREADS)), (0, THREADS), f"{name}: nothing is left of it")
db = connect(check_same_thread=False)
shim.read("trunk.bin", HANG, FOREVER)
interrupted(db, lambda: one(db, "SELECT waste_open(?)", PATH), "the last connection closes while opening hangs")
closes_after_the_read(db, "opening")

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
