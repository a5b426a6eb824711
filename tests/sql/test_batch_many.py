"""1,000 prompts in one waste_batch are 1,000 single calls, byte for byte; and while 32 of
them are in flight, prompts of 4,000 tokens come and are interrupted."""
import json
import os
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import demo  # noqa: E402
from tap import SANITIZED, connect, done, equal, ok  # noqa: E402

N = 200 if SANITIZED else 1000
OPTIONS = '{"max_tokens":20}'
prompts = [r["messages"][0]["content"] for r in demo.rows() if len(r["messages"]) == 1]
prompts += [f"Add {a} and {b}." for a in range(27) for b in range(27)]
prompts = prompts[::-1][:N]

db = connect(check_same_thread=False)
db.execute("SELECT waste_register('demo', ?, '{\"context\":6000}')", (demo.container(),))
db.execute("CREATE TABLE p(id INTEGER PRIMARY KEY, prompt TEXT)")
db.executemany("INSERT INTO p VALUES (?, ?)", list(enumerate(prompts)))
db.commit()
single = db.execute("SELECT id, waste_generate('demo', prompt, ?) FROM p ORDER BY id", (OPTIONS,)).fetchall()

# -- alone
batch = "SELECT key, text FROM waste_batch('demo', 'SELECT id, prompt FROM p', ?) ORDER BY key"
equal(db.execute(batch, ('{"max_tokens":20,"parallel":64}',)).fetchall(), single, f"{N} prompts at once, byte for byte")

# -- with others, who are interrupted in long prompts
other = connect(check_same_thread=False)
other.execute("SELECT waste_register('demo', ?, '{\"context\":6000}')", (demo.container(),))
other.execute("SELECT waste_open('demo')")
LONG = json.dumps({"tokens": [100 + i * 37 % 1500 for i in range(4000)], "max_tokens": 1000, "prefix_cache": False})
got, over = [], threading.Event()


def run():
    got.extend(db.execute(batch, ('{"max_tokens":20,"parallel":32}',)).fetchall())
    over.set()


thread = threading.Thread(target=run)
thread.start()
told = [0.0]


def tell():
    told[0] = time.monotonic()
    other.interrupt()


late, ends = [], []
while not over.is_set() and len(ends) < 20:
    timer = threading.Timer(0.05 + 0.02 * len(ends), tell)
    timer.start()
    try:
        other.execute("SELECT waste_generate('demo', NULL, ?)", (LONG,)).fetchone()
        ends.append("done")
    except Exception as e:
        ends.append(str(e))
        late.append(time.monotonic() - told[0])
    timer.join()
thread.join()
ok(ends and set(ends) == {"interrupted"}, f"{len(ends)} prompts of 4,000 tokens, all interrupted")
equal(got, single, "and none of it touched the 32 others")
if late:
    print(f"# interrupted to returned: median {statistics.median(late) * 1e3:.0f} ms, most {max(late) * 1e3:.0f} ms")
equal(other.execute("SELECT waste_generate('demo', ?, ?)", (prompts[0], OPTIONS)).fetchone()[0], single[0][1], "who was interrupted goes on")
done()
