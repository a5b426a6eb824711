"""The demo model remembers: the memory questions of eval.jsonl over waste_chat, in one go,
with a process for the last question, and in forks."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import demo  # noqa: E402
from session import file, fresh, messages, number, one, process, stats  # noqa: E402
from tap import EXTENSION, ROOT, SANITIZED, connect, done, equal, ok, skip_all  # noqa: E402

if SANITIZED:
    skip_all("the same paths run on small models in test_session_state.py")
MODEL = demo.container()
tasks = [r for r in demo.rows() if r["skill"] == "memory"]
db = fresh("memory.db", MODEL)
right = {"in one go": 0, "after a restart": 0, "in a fork": 0, "stateless": 0}
told = 0
asked = []
for i, task in enumerate(tasks):
    one(db, "SELECT waste_session('m', ?)", f"t{i}")
    said = [m["content"] for m in task["messages"] if m["role"] == "user"]
    for text in said[:-1]:
        one(db, "SELECT waste_chat(?, ?)", f"t{i}", text)
    if i < 10:
        asked.append([f"t{i}", said[-1], task["answer"]])
    one(db, "SELECT waste_fork(?, ?)", f"t{i}", f"f{i}")
    if i < 10:
        one(db, "SELECT waste_fork(?, ?)", f"t{i}", f"r{i}")
    db.commit()
    reply = one(db, "SELECT waste_chat(?, ?)", f"t{i}", said[-1])
    right["in one go"] += reply == task["answer"]
    other = one(db, "SELECT waste_chat(?, ?)", f"f{i}", said[-1])
    right["in a fork"] += other == task["answer"]
    told += reply == other
    db.commit()
N = len(tasks)
equal(told, N, "a fork answers as the session it is of")
ok(right["in one go"] >= 0.9 * N, f"{right['in one go']} of {N} memory questions are answered right")
equal(right["in a fork"], right["in one go"], "and as many in forks")
db.close()
again = process("memory.db", "out = []\nfor n, text, _ in args[0]:\n"
                             "    out.append([one(db, 'SELECT waste_chat(?, ?)', 'r' + n[1:], text), stats(db, 'r' + n[1:])])\n"
                             "print(json.dumps(out))", asked)
db = connect(file("memory.db"))
equal([r[0] for r in again], [messages(db, n)[-1][1] for n, _, _ in asked], "after a restart the answers are the same")
ok(all(s["source"] == "rows" and s["rejected"] == 0 for _, s in again), "from the rows alone")
known = [one(db, "SELECT sum(n_tokens) FROM waste_messages WHERE session = ? AND seq <"
                 " (SELECT max(seq) - 1 FROM waste_messages WHERE session = ?)", *[number(db, "r" + n[1:])] * 2) for n, _, _ in asked]
equal([s["prefilled"] for _, s in again], [s["prompt_tokens"] - k for (_, s), k in zip(again, known)], "nothing but the question was computed")

# -- the tokens of a conversation are those of rendering it
n = number(db, asked[0][0])
chat = [{"role": r, "content": c} for r, c, _ in messages(db, n)]
ids = []
for g in json.loads(one(db, "SELECT waste_render('m', ?, '{\"thinking\":false,\"add_generation_prompt\":false}')", json.dumps(chat))):
    ids += json.loads(one(db, "SELECT waste_tokenize('m', ?, ?)", g["text"], json.dumps({"markup": g["markup"]})))
stored = b"".join(t for _, _, t in messages(db, n))
equal([int.from_bytes(stored[i:i + 4], "little") for i in range(0, len(stored), 4)], ids, "the stored tokens are those of the whole conversation, rendered")
equal(one(db, "SELECT waste_chat_json('m', ?, '{\"thinking\":false}') ->> 'content'", json.dumps(chat[:-1])), chat[-1]["content"],
      "and the stateless answer is the same")
db.close()

# -- the chat in the terminal, ended and started again
def chat_py(*lines):
    p = subprocess.run([sys.executable, os.path.join(ROOT, "examples", "python", "chat.py"), "--db", file("chat.db"), "--model", MODEL,
                        "--extension", EXTENSION], input="\n".join(lines) + "\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    return p.stdout.replace("> ", "").split("\n")


out = chat_py("My name is Rosa.", "/fork other", "My name is Adam.", "/undo", "/nonsense")
equal(out[0], "Nice to meet you, Rosa!", "examples/python/chat.py talks")
ok("/fork NAME, /undo, /log" in out, "it says what it knows")
out = chat_py("What is my name?", "/log")
equal(out[:2], ["[2 messages so far]", "Your name is Rosa."], "started again it goes on")
equal(out[2:6], ["user: My name is Rosa.", "assistant: Nice to meet you, Rosa!", "user: What is my name?", "assistant: Your name is Rosa."], "and shows all that was said")
done()
