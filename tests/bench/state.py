"""What it costs to keep and to take up a conversation with the state of Kimi K3: 93 layers
of its attention at full width, 443 MiB and 54 KiB for each token, as rows of a database.
Not a test, but it stops at the first wrong thing it sees.

    make build/tests/tools/mkbig all
    python3 tests/bench/state.py [DIRECTORY]    default: a temporary one, removed at the end

Prints one JSON object: bytes, rows, largest BLOB; seconds of writing a turn and of taking
it up in another process; peak memory of each process in MiB. Needs 1.5 GB of disk and as
much memory."""
import base64
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "lib"), TESTS]
from tap import BUILD, connect  # noqa: E402
from tiny import cases  # noqa: E402

KDA_BYTES = 69 * (96 * 128 * 128 + 3 * 96 * 128 * 3) * 4
TOKEN_BYTES = 24 * (512 + 64) * 4
LIMIT = 16 << 20


def make(path):
    tokens = cases.vocabulary()
    subprocess.run([os.path.join(BUILD, "tests", "tools", "mkbig"), path, "--preset", "k3-state", "--trunk-bits", "3",
                    "--vocab", str(len(tokens) + len(cases.XTML))], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(path, "tokenizer.model"), "wb") as f:
        f.write(b"".join(base64.b64encode(t) + b" %d\n" % i for i, t in enumerate(tokens)))
    with open(os.path.join(path, "specials.json"), "w") as f:
        json.dump([{"id": len(tokens) + i, "text": s} for i, s in enumerate(cases.XTML)], f)


def one(db, sql, *args):
    return db.execute(sql, args).fetchone()[0]


def turn(db, text):
    """The reply, and the seconds to its first token, of an ordinary one, and of the last, which
    goes with writing the turn. Python's cursor is a row ahead of what it gives, so the first time is of two rows."""
    times, said, began = [], [], time.monotonic()
    for token, logprob in db.execute("SELECT token, logprob FROM waste_chat_tokens('s', ?, '{\"max_tokens\":6}')", (text,)):
        times.append(time.monotonic() - began)
        said.append((token, logprob.hex()))
        began = time.monotonic()
    token = sorted(times[1:-2])[len(times[1:-2]) // 2]
    return said, times[0] - token, token, times[-2]


def part(name, model, file, turns, check, pragma="secure_delete"):
    """In a process of its own."""
    db = connect(file)
    db.execute("PRAGMA " + pragma)
    if name == "first":
        one(db, "SELECT waste_register('m', ?, '{\"context\":1024}')", model)
        one(db, "SELECT waste_session('m', 's')")
        db.commit()
    began = time.monotonic()
    one(db, "SELECT waste_open('m')")
    out = {"open": time.monotonic() - began, "turns": []}
    for text in turns:
        said, first, token, last = turn(db, text)
        stats = json.loads(one(db, "SELECT stats FROM waste_messages ORDER BY seq DESC LIMIT 1"))
        out["turns"].append({"said": said, "first": first, "token": token, "last": last, "source": stats["source"], "rejected": stats["rejected"],
                             "prefilled": stats["prefilled"]})
    if check:
        n = one(db, "SELECT n_tokens FROM waste_sessions")
        rows = db.execute("SELECT count(*), sum(length(data)), max(length(data)), sum(part <> 'latents'), sum(length(data) * (part <> 'latents')) FROM waste_state").fetchone()
        assert rows[4] == KDA_BYTES and rows[1] == KDA_BYTES + n * TOKEN_BYTES and rows[2] <= LIMIT, rows
        out.update(rows=rows[0], bytes=rows[1], largest=rows[2], file=os.path.getsize(file))
    out["mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps(out))


def process(*args):
    return json.loads(subprocess.run([sys.executable, os.path.abspath(__file__), "--part", json.dumps(args)], check=True, stdout=subprocess.PIPE).stdout)


def main(home):
    model, files = os.path.join(home, "k3-state.waste"), [os.path.join(home, f) for f in ("whole.db", "apart.db")]
    began = time.monotonic()
    make(model)
    made = time.monotonic() - began
    whole = process("first", model, files[0], ["Hello there.", "And now?"], True)
    os.remove(files[0])
    quick = process("first", model, files[0], ["Hello there.", "And now?"], True, "secure_delete = off")
    os.remove(files[0])
    first = process("first", model, files[1], ["Hello there."], True)
    again = process("again", model, files[1], ["And now?"], True)
    assert [t["said"] for t in whole["turns"]] == [first["turns"][0]["said"], again["turns"][0]["said"]], "rows give other bits than memory"
    assert [t["source"] for t in whole["turns"] + again["turns"]] == ["none", "memory", "rows"]
    assert again["turns"][0]["rejected"] == 0 and again["turns"][0]["prefilled"] == whole["turns"][1]["prefilled"]
    a, b, c = first["turns"][0], whole["turns"][1], again["turns"][0]
    print(json.dumps({"make_s": made, "open_s": first["open"], "rows": again["rows"], "bytes": again["bytes"], "largest": again["largest"], "file_bytes": again["file"],
                      "token_s": a["token"], "write_s": a["last"], "write_again_s": b["last"],
                      "write_again_secure_delete_off_s": quick["turns"][1]["last"], "next_from_memory_s": b["first"], "next_from_rows_s": c["first"],
                      "peak_mib": [first["mib"], again["mib"]]}, indent=1))


if sys.argv[1:2] == ["--part"]:
    part(*json.loads(sys.argv[2]))
elif len(sys.argv) > 1:
    main(sys.argv[1])
else:
    home = tempfile.mkdtemp()
    try:
        main(home)
    finally:
        shutil.rmtree(home)
