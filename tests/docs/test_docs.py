"""README.md and docs/*.md do what they say: their commands are run and their
output is compared.

In a page, a ```sh block is run by the shell in the repository's root, and a
```sql block by the sqlite3 shell (one database file per page, the extension
loaded, .mode list) - unless the line before it is `<!-- not run: why -->`. A
```text block right after one of them is its whole output. In it, a line that
is just "..." stands for any lines, and "..." inside a line for any characters.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from tap import BUILD, ROOT, SANITIZED, done, ok, skip_all  # noqa: E402

if SANITIZED or os.path.basename(BUILD) != "build":
    skip_all("the pages speak of the plain build in build/")
if not shutil.which("sqlite3"):
    skip_all("no sqlite3 shell")

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(text):
    """(language, body, line, reason not to run, following output or None)"""
    found = list(FENCE.finditer(text))
    for i, m in enumerate(found):
        if m.group(1) not in ("sh", "sql"):
            continue
        before = text[:m.start()].rstrip("\n").rsplit("\n", 1)[-1]
        why = re.fullmatch(r"<!-- not run: (.+) -->", before)
        out = None
        if i + 1 < len(found) and found[i + 1].group(1) == "text" and \
                not text[m.end():found[i + 1].start()].strip():
            out = found[i + 1].group(2)
        yield m.group(1), m.group(2), text.count("\n", 0, m.start()) + 1, why and why.group(1), out


def matches(got, want):
    rx = ""
    for line in want.splitlines(keepends=True):
        if line.strip() == "...":
            rx += r"(?:.*\n)*"
        else:
            rx += ".*".join(re.escape(p) for p in line.split("..."))
    return re.fullmatch(rx, got) is not None


def run(lang, body, db):
    if lang == "sh":
        cmd, given = ["sh", "-e"], body
    else:
        cmd, given = ["sqlite3", db], ".load build/waste\n.bail on\n.mode list\n" + body
    p = subprocess.run(cmd, input=given, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, timeout=1200)
    return p.returncode, p.stdout


pages = ["README.md"] + sorted("docs/" + f for f in os.listdir(os.path.join(ROOT, "docs")) if f.endswith(".md"))
tmp = tempfile.mkdtemp()
for page in pages:
    db = os.path.join(tmp, page.replace("/", "_") + ".db")
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        text = f.read()
    for lang, body, line, why, want in blocks(text):
        name = f"{page}:{line} {body.strip().splitlines()[0][:60]}"
        if why:
            print(f"# not run: {name}: {why}", flush=True)
            continue
        code, got = run(lang, body, db)
        fine = code == 0 or (want is not None and lang == "sql")
        if not ok(fine and (want is None or matches(got, want)), name):
            print(f"# exit {code}\n# got:\n{got}# want:\n{want}".replace("\n", "\n#   "), flush=True)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        if not link.startswith("http"):
            path = os.path.join(ROOT, os.path.dirname(page), link)
            ok(os.path.exists(path), f"{page} links to {link}")
shutil.rmtree(tmp)
done()
