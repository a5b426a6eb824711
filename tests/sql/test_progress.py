"""{"progress":true}: lines on stderr, only then, in a terminal and in a file."""
import json
import os
import pty
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.tap import SANITIZED, connect, done, equal, ok, raises, skip # noqa: E402
from tiny import cases  # noqa: E402

CHAT, K3 = cases.make("tiny-chat"), cases.make("k3")
CLOSING = re.compile(r"\[(\d+) tokens, (\d+\.\d) s, (\d+\.\d\d) tok/s \| experts (\d+) hit / (\d+) miss = (\d+)%\]")
PROMPT = re.compile(r"\[prompt (\d+) of (\d+) tokens, \d+\.\d s, \d+\.\d\d tok/s \| hit \d+%, \d+\.\d MB read\]")
LIVE = re.compile(r"\[(\d+) tokens, \d+\.\d s, \d+\.\d\d tok/s \| hit \d+%, \d+\.\d MB/token\]")
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from lib.tap import connect
db = connect()
for sql, *args in json.loads(sys.argv[2]):
    print(json.dumps(db.execute(sql, args).fetchall()), flush=True)
"""


def command(calls):
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, "-c", SCRIPT, tests, json.dumps(calls)]


def piped(*calls):
    """Results and stderr of a process that runs these."""
    p = subprocess.run(command(calls), capture_output=True, text=True, timeout=300)
    return [json.loads(line) for line in p.stdout.splitlines()], p.stderr


def on_terminal(*calls):
    """What a terminal is sent."""
    ours, theirs = pty.openpty()
    p = subprocess.Popen(command(calls), stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    out = b""
    try:
        while True:
            got = os.read(ours, 65536)
            if not got:
                break
            out += got
    except OSError:
        pass  # Linux: the other side is closed
    p.wait(timeout=300)
    os.close(ours)
    return out.decode().replace("\r\n", "\n")


# -- silence unless asked
results, text = piped(("SELECT waste_generate(?, 'Hi')", CHAT), ("SELECT waste_generate_json(?, 'Hi', '{\"stats\":true,\"progress\":false}')", CHAT),
                      ("SELECT count(*) FROM waste_tokens(?, 'Hi')", CHAT), ("SELECT waste_close(?)", CHAT))
equal(text, "", "nothing is written unless asked")

# -- the closing line
for name, sql in (("waste_generate", "SELECT waste_generate(?, NULL, ?)"), ("waste_generate_json", "SELECT waste_generate_json(?, NULL, ?)"),
                  ("waste_tokens", "SELECT count(*) FROM waste_tokens(?, NULL, ?)")):
    o = json.dumps({"tokens": cases.sequences("k3")["len70"], "max_tokens": 16, "progress": True, "logit_bias": {"2": None}})
    (result, stats), text = piped((sql, K3, o), ("SELECT hits, misses FROM waste_stats",))
    m = CLOSING.fullmatch(text.rstrip("\n"))
    if ok(m and text.endswith("]\n"), f"{name}: one closing line"):
        n, seconds, rate, hits, misses, percent = m.groups()
        equal(n, "16", f"{name}: tokens made")
        equal([int(hits), int(misses)], stats[0], f"{name}: hits and misses are those of waste_stats")
        equal(int(percent), int(100 * int(hits) / (int(hits) + int(misses)) + 0.5), f"{name}: and so is the percentage")
    else:
        print(f"# {text!r}")
_, text = piped(("SELECT waste_generate(?, 'Hi', '{\"progress\":true}')", CHAT), ("SELECT waste_generate(?, 'Hi', '{\"progress\":true}')", CHAT))
equal(len(CLOSING.findall(text)), 2, "one for each call")
equal(len(text.splitlines()), 2, "and nothing else")
_, text = piped(("SELECT n FROM waste_tokens(?, 'Hi', '{\"progress\":true}') LIMIT 2", CHAT),)
m = CLOSING.fullmatch(text.rstrip("\n"))
equal(m and m.group(1), "2", "a statement that stops early closes the line")
_, text = piped(("SELECT waste_generate_json(?, NULL, ?)", K3, json.dumps({"tokens": [5] * 60, "timeout_ms": 1, "max_tokens": 10**6, "progress": True})),)
ok(CLOSING.fullmatch(text.rstrip("\n")), "so does a timeout")
p = piped(("SELECT waste_generate(?, NULL, '{\"tokens\":[5],\"progress\":true,\"max_tokens\":1}')", cases.make("linear-dense")),)[1]
ok("experts 0 hit / 0 miss = 0%]" in p, "a model without experts has none to count")
db = connect()
raises(lambda: db.execute("SELECT waste_generate(?, 'Hi', '{\"progress\":\"yes\"}')", (CHAT,)).fetchone(), "option 'progress'", "true or false",
       name="progress is true or false")
raises(lambda: db.execute("SELECT n FROM waste_next(?, 'Hi', 1, '{\"progress\":true}')", (CHAT,)).fetchone(), "progress",
       name="what makes no tokens has none")
db.close()

# -- a live line: a prompt and a reply of a second or so each
try:
    for end in pty.openpty():
        os.close(end)
except OSError as e:
    skip(f"no terminal to be had: {e}", "the live line on a terminal", 8)
    done()
LONG = json.dumps({"tokens": [5 + i % 80 for i in range(2000 if SANITIZED else 30000)], "max_tokens": 500 if SANITIZED else 8000,
                   "progress": True, "logit_bias": {"2": None}})
linear = cases.make("linear")
began = time.monotonic()
text = on_terminal(("SELECT waste_open(?, '{\"context\":100000}')", linear), ("SELECT waste_generate(?, NULL, ?)", linear, LONG))
took = time.monotonic() - began
drawn = text.split("\r")
prompts = [PROMPT.fullmatch(d.strip()) for d in drawn if d.startswith("[prompt")]
lives = [LIVE.fullmatch(d.strip()) for d in drawn if "MB/token" in d]
ok(all(prompts) and (prompts or took < 2), f"{len(prompts)} lines during the prompt")
done_so_far = [int(m.group(1)) for m in prompts if m]
equal(done_so_far, sorted(done_so_far), "which goes forward")
ok(all(n % 64 == 0 for n in done_so_far), "by passes of 64 tokens")  # how many are drawn is a matter of speed
ok(all(lives) and (lives or took < 2), f"{len(lives)} lines during the reply")
ok(text.endswith("\n") and CLOSING.fullmatch(drawn[-1].strip()) and text.count("\n") == 1, "the closing line takes the live one's place")
ok(len(drawn) <= 5 * took + 3, f"{len(drawn)} redraws in {took:.1f} s: at most five a second")
widths = [len(d.rstrip("\n")) for d in drawn[1:]]
ok(all(b >= len(a.rstrip()) for a, b in zip(drawn[1:], widths[1:])), "nothing of a longer line is left beside a shorter one")
done()
