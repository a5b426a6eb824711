"""The least of TAP that the test scripts need, and where things are.

A script calls ok/equal/raises for each fact and done() at the end. skip_all says
loudly why nothing ran.
"""
import os
import sqlite3
import sys
import traceback

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
