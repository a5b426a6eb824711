"""Where a container lies and what the process was given changes no token: descriptor 0
for a bank, file systems without direct reads, two file systems, links, no right to
write, a device of 4096-byte sectors. And what is read at open, counted by strace.

Eight connections in all orders are tests/sql/test_lifetime.py's."""
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from fault import shim  # noqa: E402
from lib import tap  # noqa: E402
from tiny import cases  # noqa: E402

PATH = cases.make("k3-odd-4p")
with open(os.path.join(PATH, "manifest.json")) as f:
    BANKS = [b for _, b in sorted(json.load(f)["layers"].items())]
RECORD = BANKS[0]["bytes"] // BANKS[0]["experts"]
REQUEST = json.dumps({"tokens": [5, 6, 7, 50, 90, 33, 21], "max_tokens": 24, "logit_bias": {"2": None}})
TMPFS = "/dev/shm"
MARK = "/a mark in the trace"  # asked for between opening and the first token
PLAIN = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}  # a sanitizer's runtime is for Python
OUT = 100  # what a child writes its report to


# ---- a process that uses a container ------------------------------------------------

def direct(path):
    """Whether this process can read a record of the file past the page cache."""
    if not hasattr(os, "O_DIRECT"):
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return False
    buffer = mmap.mmap(-1, RECORD)
    try:
        return os.preadv(fd, [buffer], 0) == RECORD
    except OSError:
        return False
    finally:
        os.close(fd)


def can_be_direct(path):
    """How many banks can, and how many cannot."""
    n = sum(direct(os.path.join(path, b["file"])) for b in BANKS)
    return [n, len(BANKS) - n]

def zero_for_a_bank():
    """Closes descriptor 0 while the first bank is being opened: it or one after it gets the number."""
    s = shim.start()
    s.open("experts-L1", shim.HANG, 60000)

    def close():
        while not s.hanging():
            time.sleep(0.002)
        os.close(0)
        s.off()

    threading.Thread(target=close).start()


def child(path, how):
    if how == "zero":
        zero_for_a_bank()
    os.dup2(1, OUT)
    if how == "none":  # not one of the three that every process has
        for fd in (0, 1, 2):
            os.close(fd)
    db = tap.connect()
    floor = db.execute("SELECT value FROM waste_plan(?) WHERE part = 'floor'", (path,)).fetchone()[0]
    options = {"budget": int(floor)}
    if how == "usage":
        options["usage"] = True
    db.execute("SELECT waste_open(?, ?)", (path, json.dumps(options))).fetchone()
    os.access(MARK, os.F_OK)
    low = {}
    for fd in (0, 1, 2):
        try:
            low[fd] = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
    tokens = [r[0] for r in db.execute("SELECT token FROM waste_tokens(?, NULL, ?)", (path, REQUEST))]
    modes = db.execute("SELECT banks_direct, banks_buffered FROM waste_stats").fetchone()
    try:
        closing = db.execute("SELECT waste_close(?)", (path,)).fetchone()[0]
    except Exception as e:  # noqa: BLE001
        closing = str(e)
    left = db.execute("SELECT count(*) FROM waste_stats").fetchone()[0]
    again = [r[0] for r in db.execute("SELECT token FROM waste_tokens(?, NULL, ?)", (path, REQUEST))]
    db.close()
    os.write(OUT, json.dumps({"tokens": tokens, "again": again, "modes": modes, "low": low, "closing": closing, "left": left,
                              "can": can_be_direct(path)}).encode())


def command(path, how="plain"):
    return [sys.executable, os.path.abspath(__file__), "--child", path, how]


def run(args, **kw):
    """The report of a child, or None and what it said."""
    p = subprocess.run(args, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=300, **kw)
    try:
        return json.loads(p.stdout), ""
    except ValueError:
        return None, f"exit {p.returncode}: {p.stdout[-200:]} {p.stderr[-400:]}".strip()


# ---- the facts -------------------------------------------------------------------------

def same(path, want, name, args=None, **kw):
    """The report, after the facts that hold everywhere."""
    got, text = run(args or command(path), **kw)
    if not tap.ok(got is not None, f"{name}: opens and answers"):
        print("#   " + text.replace("\n", "\n#   "))
        return None
    tap.equal((got["tokens"], got["again"]), (want, want), f"{name}: the same tokens, before closing it and after")
    tap.equal(got["left"], 0, f"{name}: closed is closed")
    tap.equal(got["modes"], got["can"], f"{name}: {got['can'][0]} banks read past the page cache, {got['can'][1]} through it, and waste_stats says so")
    return got


def descriptors(want):
    if sys.platform.startswith("linux") and os.path.exists(shim.LIBRARY):
        got = same(PATH, want, "descriptor 0", command(PATH, "zero"))
        if got:
            file = got["low"].get("0")
            tap.ok(file in [b["file"] for b in BANKS], f"descriptor 0: it is a bank's: {file}")
    else:
        tap.skip(f"{shim.LIBRARY} is not built", "descriptor 0 for a bank", 4)
    got = same(PATH, want, "no standard input, output, error", command(PATH, "none"))
    if got:
        tap.equal(len(set(got["low"].values()) & set(os.listdir(PATH))), 3, f"the container's files have those numbers: {got['low']}")


def no_direct_reads(home, want):
    why = can_mount()
    if why:
        tap.skip(why, "a file system that has no direct reads", 4)
        return
    place = os.path.join(home, "ramfs")
    inside = os.path.join(place, "a.waste")
    os.mkdir(place)
    same(inside, want, "on ramfs", mounted('mount -t ramfs none "$1"; cp -r "$2" "$3"', [place, PATH, inside], inside))


def file_systems(home, want):
    with open("/proc/mounts") as f:
        memory = any(line.split()[1:3] == [TMPFS, "tmpfs"] for line in f)
    if not memory or not os.access(TMPFS, os.W_OK):
        tap.skip(f"{TMPFS} is no tmpfs that can be written to", "a container on tmpfs; on two file systems", 8)
        return
    with tempfile.TemporaryDirectory(prefix="waste-places-", dir=TMPFS) as d:
        there = os.path.join(d, "a.waste")
        shutil.copytree(PATH, there)
        same(there, want, "on tmpfs")
        two = os.path.join(home, "two.waste")
        shutil.copytree(PATH, two)
        for name in (BANKS[0]["file"], "trunk.bin"):
            os.unlink(os.path.join(two, name))
            os.symlink(os.path.join(there, name), os.path.join(two, name))
        same(two, want, "on two file systems, through links")


def links(home, want):
    direct_link, far, deep = (os.path.join(home, n) for n in ("link.waste", "far.waste", "deep.waste"))
    os.symlink(PATH, direct_link)
    os.symlink("link.waste", far)
    same(far, want, "a link to a link")
    same(far + "/", want, "with a slash behind it", command(far + "/"))
    same(far, want, "by a relative path", command("./far.waste"), cwd=home)
    os.mkdir(deep)
    for name in os.listdir(PATH):
        os.symlink(os.path.join(PATH, name), os.path.join(deep, name))
    same(deep, want, "every file a link")
    os.unlink(os.path.join(deep, BANKS[1]["file"]))
    os.symlink("nothing", os.path.join(deep, BANKS[1]["file"]))
    db = tap.connect()
    tap.raises(lambda: db.execute("SELECT waste_open(?)", (deep,)).fetchone(), BANKS[1]["file"], "No such file", name="a link to nothing: the file is named")
    db.close()


def mounted(script, args, path, how="plain"):
    """A command that runs `script` with args in $1.. and, as its last arguments, a child,
    all in a mount namespace of its own: what it mounts ends with it."""
    loaded = os.environ.get("LD_PRELOAD")
    return ["env", "-u", "LD_PRELOAD", "unshare", "--mount", "sh", "-ec", f'{script}; shift {len(args)}; exec "$@"', "sh", *args,
            "env", *([f"LD_PRELOAD={loaded}"] if loaded else []), *command(path, how)]


def can_mount():
    if os.name != "posix" or os.geteuid() != 0:
        return "mounting needs root"
    for tool in ("unshare", "mount"):
        if not shutil.which(tool):
            return f"{tool} is not installed"
    p = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, env=PLAIN)
    return (p.stderr.strip() or "unshare does not work") if p.returncode else None


def read_only(home, want):
    box = os.path.join(home, "box.waste")
    shutil.copytree(PATH, box)
    for name in os.listdir(box):
        os.chmod(os.path.join(box, name), 0o444)
    os.chmod(box, 0o555)
    same(box, want, "no write bit anywhere")
    tap.equal(sorted(os.listdir(box)), sorted(os.listdir(PATH)), "nothing was written to it")
    why = can_mount()
    if why:
        tap.skip(why, "a container that is mounted read-only", 6)
    else:
        script = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"'
        same(box, want, "mounted read-only", mounted(script, [box], box))
        got = same(box, want, "and asked to keep usage there", mounted(script, [box], box, "usage"))
        if got:
            tap.ok("usage.waste" in str(got["closing"]) and "Read-only" in str(got["closing"]), f"closing says that it could not: {got['closing']}")
    os.chmod(box, 0o755)


def large_sectors(home, want):
    """A file system on a device that reads 4096 bytes or none."""
    facts = 4
    why = can_mount() or next((f"{t} is not installed" for t in ("losetup", "mkfs.ext4") if not shutil.which(t)), None)
    if why:
        tap.skip(why, "a device of 4096-byte sectors", facts)
        return
    image, place = os.path.join(home, "disk.img"), os.path.join(home, "disk")
    with open(image, "wb") as f:
        f.truncate(24 << 20)
    p = subprocess.run(["losetup", "--find", "--show", "--sector-size", "4096", image], capture_output=True, text=True, env=PLAIN)
    if p.returncode:
        tap.skip(f"no loop device: {p.stderr.strip()}", "a device of 4096-byte sectors", facts)
        return
    device = p.stdout.strip()
    try:
        with open(f"/sys/block/{os.path.basename(device)}/queue/logical_block_size") as f:
            size = f.read().strip()
        p = subprocess.run(["mkfs.ext4", "-q", "-b", "4096", device], capture_output=True, text=True, env=PLAIN)
        if size != "4096" or p.returncode:
            tap.skip(f"sectors of {size}; {p.stderr.strip()}", "a device of 4096-byte sectors", facts)
            return
        os.mkdir(place)
        inside = os.path.join(place, "a.waste")
        script = 'mount "$1" "$2"; cp -r "$3" "$4"; sync -f "$4"'
        same(inside, want, "a device of 4096-byte sectors", mounted(script, [device, place, PATH, inside], inside))
    finally:
        subprocess.run(["losetup", "--detach", device], capture_output=True, env=PLAIN)


# ---- what is read ------------------------------------------------------------------------

def trace(path, log):
    """[(file, bytes asked, offset, bytes given)] before and after opening."""
    args = ["strace", "-f", "-y", "-s", "0", "-o", log, "-e", "trace=?access,?faccessat,?faccessat2,pread64", *command(path)]
    got, text = run(args)
    if not got:
        return None, text
    before, after, pending, opened = [], [], {}, False
    with open(log) as f:
        for line in f:
            pid, _, line = line.strip().partition(" ")
            line = line.strip()
            if line.endswith("<unfinished ...>"):
                pending[pid] = line[:-len("<unfinished ...>")]
                continue
            resumed = re.match(r"<\.\.\. \w+ resumed>", line)
            if resumed:
                line = pending.pop(pid, "") + line[resumed.end():]
            opened = opened or MARK in line
            m = re.match(r'pread64\(\d+<(.*)>, .*, (\d+), (\d+)\)\s+= (-?\d+)', line)
            if m and m.group(1).startswith(path + "/"):
                (after if opened else before).append((os.path.basename(m.group(1)), int(m.group(2)), int(m.group(3)), int(m.group(4))))
    return (before, after), ""


def reads(home):
    if tap.SANITIZED:
        tap.skip("a sanitized process is not traced", "what is read at open", 5)
        return
    if not shutil.which("strace"):
        tap.skip("strace is not installed", "what is read at open", 5)
        return
    path = os.path.realpath(PATH)
    got, text = trace(path, os.path.join(home, "trace"))
    if not got:
        tap.skip(f"strace cannot trace here: {text[:200]}", "what is read at open", 5)
        return
    before, after = got
    banks = [b["file"] for b in BANKS]
    tap.equal(sorted(r for r in before if r[0] in banks and r[3] >= 0), [(b, RECORD, 0, RECORD) for b in banks] if can_be_direct(PATH)[0] else [],
              "opening reads one whole record of each bank, to see how it can be read, and no more")
    size = os.path.getsize(os.path.join(PATH, "trunk.bin"))
    trunk = sorted((at, at + given) for name, _, at, given in before if name == "trunk.bin")
    tap.ok(size * 0.5 < sum(b - a for a, b in trunk) <= size, f"opening reads the trunk: {sum(b - a for a, b in trunk)} of {size} bytes")
    tap.ok(all(a[1] <= b[0] for a, b in zip(trunk, trunk[1:])), "and nothing of it twice")
    odd = [r for r in after if r[0] in banks and (r[1] != RECORD or r[2] % RECORD or r[3] != RECORD)]
    tap.equal(odd, [], "every read of a bank is one whole record")
    tap.ok(sum(r[0] in banks for r in after) > 20 and RECORD % 4096 == 0, f"{sum(r[0] in banks for r in after)} of them, of {RECORD} bytes")


def main(home):
    first, text = run(command(PATH))
    if not tap.ok(first is not None and len(first["tokens"]) == 24, "where it is"):
        print(f"#   {text}")
        tap.done()
    want = first["tokens"]
    descriptors(want)
    file_systems(home, want)
    no_direct_reads(home, want)
    links(home, want)
    read_only(home, want)
    large_sectors(home, want)
    reads(home)
    tap.done()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    elif not os.path.exists("/proc/self/fd"):
        tap.skip_all("no /proc to see descriptors in")
    else:
        os.makedirs(os.path.join(tap.BUILD, "tests"), exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="places-", dir=os.path.join(tap.BUILD, "tests")) as d:
            main(d)
