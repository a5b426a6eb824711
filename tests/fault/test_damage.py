"""Every damaged container of damage.py: refused with a sentence that names the
cause, or accepted, and never the end of the process. Everything runs in one
process, which also shows that a refusal leaves nothing behind it."""
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from fault import damage  # noqa: E402
from lib import tap  # noqa: E402
from tiny import cases, driver  # noqa: E402

BASES = sorted({c.base for c in damage.CASES} | {"tiny-text"})


def problem(c, status, text, names):
    """What is wrong with an outcome, or None."""
    if isinstance(status, str):
        return f"{status}: {text}"
    if status == 99:
        return text
    if c.expect == "accept" and status:
        return f"refused: {text}"
    if c.expect == "error" and not status:
        return "accepted"
    missing = [n for n in names if n not in text] if c.expect == "error" else []
    return f"{missing} not in the message: {text}" if missing else None


def main(home):
    plain, careful = driver.Checker(), driver.Checker("--verify")
    for base in BASES:
        for verb in ("touch", "text"):
            tap.equal(careful.check(verb, cases.make(base)), (0, "ok"), f"{base} itself: {verb}")
    for n, c in enumerate(damage.CASES):
        path = os.path.join(home, f"{n}.waste")
        names = damage.write(c, path)
        status, text = (careful if c.verify else plain).check(c.verb, path)
        why = problem(c, status, text, names)
        if not why and c.verify:  # without the checksum: any end but a bad one
            status, text = plain.check(c.verb, path)
            why = text if isinstance(status, str) or status == 99 else None
        if not tap.ok(not why, c.name):
            print(f"#   {why}")
        shutil.rmtree(path)
    for checker in (plain, careful):
        code, text = checker.end()
        tap.equal((code, text), (0, ""), "the process ends well")
    tap.done()


if __name__ == "__main__":
    os.makedirs(os.path.join(tap.BUILD, "tests"), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="damage-", dir=os.path.join(tap.BUILD, "tests")) as d:  # links work there
        main(d)
