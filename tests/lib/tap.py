"""The least of TAP that the test scripts need, and where things are.

A script calls ok/equal/raises for each fact and done() at the end. skip_all says
loudly why nothing ran.
"""
import os
import re
import sqlite3
import subprocess
import sys
import traceback

# One count of points, however it is imported.
sys.modules["tap"] = sys.modules["lib.tap"] = sys.modules[__name__]

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("WASTE_TEST_BUILD", "build"))
EXTENSION = os.path.join(BUILD, "waste.so")
SANITIZED = os.environ.get("WASTE_TEST_SANITIZE", "")
_n = 0
_failed = 0


def ok(condition, name):
    global _n, _failed
    _n += 1
    _failed += not condition
    print(f"{'ok' if condition else 'not ok'} {_n} - {name}".replace("\n", "\\n").replace("#", "\\#"), flush=True)
    return bool(condition)


def equal(got, want, name):
    if not ok(got == want, name):
        print(f"#   got:  {got!r}\n#   want: {want!r}".replace("\n", "\n# "), flush=True)


def raises(call, *texts, name, kind=sqlite3.Error):
    """call() must raise `kind`, and every one of `texts` must be in the message."""
    try:
        got = call()
    except kind as e:
        missing = [t for t in texts if t.lower() not in str(e).lower()]
        if not ok(not missing, name):
            print(f"#   message {e!s} lacks {missing}", flush=True)
        return
    ok(False, name)
    print(f"#   no error; got {got!r}", flush=True)


def skip(reason, name, count=1):
    global _n
    for _ in range(count):
        _n += 1
        print(f"ok {_n} - {name} # SKIP {reason}", flush=True)


def skip_all(reason):
    print(f"1..0 # SKIP {reason}", flush=True)
    sys.exit(0)


def cross_built(folder, system, how):
    """Skips all unless `folder` has programs for another system or CPU: `how` builds
    them, and leaves in folder/missing the reason if it could not."""
    if SANITIZED:
        skip_all("sanitizers run on the machine's own system and CPU")
    try:
        with open(os.path.join(ROOT, folder, "missing"), encoding="utf-8") as f:
            reason = f.read().strip()
    except FileNotFoundError:
        skip_all(f"not built for {system}: {how}")
    if reason:
        skip_all(f"no tests on {system}: {reason.splitlines()[-1]}")


HANGS = 1200  # seconds after which a program that another one runs is taken to hang
_POINT = re.compile(r"(not )?ok (\d+)(?: - (.*?))?\s*(?:# SKIP ?(.*))?$")


def program(name, path, under, **env):
    """A unit test that another program runs. Its points go through; what it says beside
    them is the reason of a skip, or stands behind a failure. Their names, None for those
    that were skipped or failed."""
    if not os.path.exists(os.path.join(ROOT, path)):
        ok(False, f"{name} was built")
        return []
    try:
        p = subprocess.run(under + [path], cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=HANGS,
                           env=dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", WASTE_TEST_EMULATED="1", **env))
    except subprocess.TimeoutExpired as e:
        ok(False, f"{name}: ran to its end")
        print("# hung for {} s, after\n# {}".format(
            HANGS, "\n# ".join((e.stdout or b"").decode(errors="replace").splitlines()[-20:])), flush=True)
        return []
    points, said, plan = [], [], None
    for line in p.stdout.splitlines():
        m = _POINT.match(line)
        if line.startswith("1.."):
            plan = int(line[3:])
        elif not m:
            said.append(line.lstrip("# "))
        elif m[4] is not None:
            skip(" ".join(said) or "no reason given", f"{name}: {m[3] or m[4]}")
            points.append(None)
            said = []
        else:
            points.append(m[3] if ok(not m[1], f"{name}: {m[3]}") else None)
    ok(p.returncode == 0 and plan == len(points), f"{name}: ran to its end")
    if p.returncode or plan != len(points):
        print("# exit {}, {} of {} points\n# {}".format(
            p.returncode, len(points), plan, "\n# ".join(said[-20:] + p.stderr.splitlines()[-20:])), flush=True)
    return points


def done():
    print(f"1..{_n}", flush=True)
    sys.exit(1 if _failed else 0)


def _crash(kind, value, tb):
    """A script that dies fails by itself; no plan is printed, and the others go on."""
    ok(False, f"the script ran to its end: {kind.__name__}: {value}")
    print("# " + "".join(traceback.format_exception(kind, value, tb)).replace("\n", "\n# "), flush=True)


sys.excepthook = _crash


def connect(path=":memory:", **kw):
    """A connection with the extension loaded."""
    db = sqlite3.connect(path, **kw)
    db.enable_load_extension(True)
    db.load_extension(EXTENSION)
    db.enable_load_extension(False)
    return db
