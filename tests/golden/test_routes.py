"""What tests/tools/routes.c records of the demo model: choices follow from scores, and
the lookahead is right far more often than chance."""
import os
import struct
import subprocess
import sys
import tempfile

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", d) for d in ("lib", "tools")]
import demo  # noqa: E402
import demo_ids  # noqa: E402
from tap import BUILD, done, equal, ok  # noqa: E402

TOKENS, LAYERS, EXPERTS, CHOSEN = 60, 7, 32, 4

ids = next(demo_ids.lines()) + next(demo_ids.lines())
with tempfile.NamedTemporaryFile() as f:
    run = subprocess.run([os.path.join(BUILD, "tests", "tools", "routes"), demo.container(), f.name, str(TOKENS)],
                         input="%s\n%s\n" % (ids, ids), capture_output=True, text=True)
    equal((run.returncode, run.stderr), (0, ""), "the tool runs")
    data = f.read()

equal(struct.unpack("4I", data[:16]), (TOKENS, LAYERS, EXPERTS, CHOSEN), "the head says what follows")
one = struct.calcsize("=%dH%df" % (CHOSEN, 2 * EXPERTS))
equal(len(data), 16 + TOKENS * LAYERS * one, "and there is nothing else")


def best(key):
    return sorted(range(EXPERTS), key=lambda e: (-key[e], e))[:CHOSEN]


passes = []
for at in range(16, len(data), one):
    row = struct.unpack_from("=%dH%df" % (CHOSEN, 2 * EXPERTS), data, at)
    passes.append((row[:CHOSEN], row[CHOSEN:CHOSEN + EXPERTS], row[CHOSEN + EXPERTS:]))
ok(all(list(chosen) == best(key) for chosen, key, _ in passes), "the best by the router's keys were chosen")
ok(all(not any(passes[i][2]) for i in range(LAYERS - 1, len(passes), LAYERS)), "nothing is foretold of no layer")
pairs = [(best(passes[i][2]), passes[i + 1][0]) for i in range(len(passes)) if i % LAYERS + 1 < LAYERS]
right = sum(len(set(a) & set(b)) for a, b in pairs) / (CHOSEN * len(pairs))
print("# of the lookahead's %d best %.0f %% were chosen, by chance %.0f %%" % (CHOSEN, 100 * right, 100 * CHOSEN / EXPERTS))
ok(right > 0.5, "the lookahead sees most of the next layer's choice")
done()
