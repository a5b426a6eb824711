"""The RAM budget is a ceiling: peak resident size over open, a prefill of 2,000
tokens and decode stays under the budget and 64 MiB at three budgets, on a
container several times larger than the largest of them; and the same inside a
control group that gives the process less memory than the container has. With
WASTE_TEST_BIG=1 once more in a group of 1 GiB, on a container of 2.8 GB in the shape
of Kimi-Linear, which is written for it: a minute on two cores.

Each measurement is a process of its own (this file with arguments), since the
peak of a process cannot be reset everywhere. A control group needs root and a
writable hierarchy; without them that part says SKIP and why."""
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lib import cgroup, tap  # noqa: E402
from tiny import cases, container  # noqa: E402

MIB = 1 << 20
PROMPT, REPLY = 2000, 24
SPARE = 64 * MIB  # beyond the budget: the interpreter, SQLite, code, stacks
GROUP = 160 * MIB
BIG_GROUP, BIG_BUDGET, BIG_DISK = 1024 * MIB, 900 * MIB, 4 << 30  # disk: what has to be free
MKBIG = os.path.join(tap.BUILD, "tests", "tools", "mkbig")

# K3's features; many records of 77,824 bytes. 1,400 in each of 3 layers: 311 MiB, of
# which the prompt wants 259: its tokens differ, and no bias makes favourites.
BIG = dict(cases.K3, hidden_size=128, num_hidden_layers=4, vocab_size=2048, intermediate_size=128,
           num_experts=1400, num_experts_per_token=2, num_shared_experts=1, moe_intermediate_size=512,
           routed_expert_hidden_size=128)


def write_big(path):
    """Real trunk and codebooks; in each layer one real record, under the ids of all."""
    case = {"config": BIG, "seed": "budget", "prefix": "language_model.", "bias": None}
    q = container.quantiser(case)
    width, inner = BIG["routed_expert_hidden_size"], BIG["moe_intermediate_size"]
    shapes = [(inner, width), (inner, width), (width, inner)]
    os.makedirs(path)
    trunk = container.build_trunk(case)
    layers, books, first, total = {}, b"", 0, 0
    for n in range(BIG["first_k_dense_replace"], BIG["num_hidden_layers"]):
        more, std = container.codebooks(case, q, n, first)
        books += more
        one = bytearray(container.record(case, q, n, 0, first, shapes, std))
        name = f"experts-L{n}.bin"
        with open(os.path.join(path, name), "wb") as f:
            for e in range(BIG["num_experts"]):
                struct.pack_into("<H", one, 6, e)
                f.write(one)
            size = f.tell()
            f.flush()
            os.fsync(f.fileno())  # what is not on disk yet would count in the control group
        layers[str(n)] = {"file": name, "experts": BIG["num_experts"], "bytes": size, "codebook_base": first}
        first += 3 * q["stages"]
        total += size
    container.put(path, "trunk.bin", trunk.data)
    container.put(path, "codebooks.bin", books)
    container.put(path, "manifest.json", json.dumps({
        "format_version": 0, "tensor_prefix": case["prefix"], "config": BIG, "layers": layers, "trunk": trunk.index,
        "expert_quant": {"stages": q["stages"], "vec_dim": q["dim"], "entries": q["entries"], "index_block": q["block"],
                         "index_bits": q["bits"]}}))
    return total


def peak():
    """Largest resident size of this process so far."""
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def child(path, budget, tokens):
    db = tap.connect()
    options = json.dumps({"budget": int(budget)}) if int(budget) else "{}"
    plan = {p: (v, why) for p, v, why in db.execute("SELECT part, value, why FROM waste_plan(?, ?)", (path, options))}
    opened = json.loads(db.execute("SELECT waste_open(?, ?)", (path, options)).fetchone()[0])
    after_open = peak()
    ids = [u % BIG["vocab_size"] for u in container.stream("budget", "prompt", int(tokens))]
    n = db.execute("SELECT count(*) FROM waste_tokens(?, NULL, ?)", (path, json.dumps(
        {"tokens": ids, "max_tokens": REPLY}))).fetchone()[0]
    evictions = db.execute("SELECT evictions FROM waste_stats").fetchone()[0]
    swap = [line for line in open("/proc/self/status") if line.startswith("VmSwap:")]
    print(json.dumps({"plan": plan, "slots": opened["cache_slots"], "after_open": after_open, "peak": peak(),
                      "tokens": n, "evictions": evictions, "swap": int(swap[0].split()[1]) if swap else 0}))


def measure(path, budget, tokens=PROMPT, timeout=300, **kw):
    p = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", path, str(budget), str(tokens)],
                       text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, **kw)
    if p.returncode:
        return None, f"exit {p.returncode}: {p.stderr.strip()[-300:]}"
    return json.loads(p.stdout), ""


# ---- control groups ----------------------------------------------------------

def in_a_group(limit, budget, prompt, label, make):
    """make() gives the container's path and the size of its experts."""
    names = (f"{label}: every token came", f"{label}: the plan names the group's file", f"{label}: the peak stays inside it")
    group, file = cgroup.make(limit)
    if not group:
        for name in names:
            tap.skip(file, name)
        return
    try:
        path, size = make()
        got, text = measure(path, budget, prompt, timeout=1200, preexec_fn=lambda: cgroup.enter(group))
    finally:
        os.rmdir(group)
    if not tap.ok(got is not None and got["tokens"] == REPLY and size > limit, names[0]):
        print(f"#   {text}")
        return
    ceiling, why = got["plan"]["ceiling"]
    tap.equal((ceiling, why.endswith(file)), (limit, True), names[1])
    tap.ok(got["peak"] <= limit and not got["swap"], f"{names[2]}: {got['peak'] >> 20} of {limit >> 20} MiB, no swap")


def in_a_gigabyte(home):
    label, facts = "1 GiB and a container of 2.8 GB", 3
    why = ""
    if os.environ.get("WASTE_TEST_BIG") != "1":
        why = "writes 2.8 GB and runs for a minute: WASTE_TEST_BIG=1"
    elif not os.path.exists(MKBIG):
        why = f"{MKBIG} is not built"
    elif shutil.disk_usage(home).free < BIG_DISK:
        why = f"{home} has less than {BIG_DISK >> 30} GiB free"
    if why:
        tap.skip(why, label, facts)
        return

    def make():
        path = os.path.join(home, "gigabyte.waste")
        subprocess.run([MKBIG, path, "--preset", "kimi-linear-48b", "--layers", "8", "--experts", "128"],
                       check=True, stdout=subprocess.DEVNULL)
        os.sync()
        return path, sum(os.path.getsize(os.path.join(path, f)) for f in os.listdir(path) if f.startswith("experts-"))

    in_a_group(BIG_GROUP, BIG_BUDGET, PROMPT, label, make)


def main(home):
    path = os.path.join(home, "big.waste")
    size = write_big(path)
    db = tap.connect()
    floor = db.execute("SELECT value FROM waste_plan(?) WHERE part = 'floor'", (path,)).fetchone()[0]
    budgets = (floor, floor + 24 * MIB, floor + 72 * MIB)
    tap.ok(size > 3 * budgets[-1], f"the experts ({size >> 20} MiB) are more than three times the largest budget")
    for budget in budgets:
        got, text = measure(path, budget)
        name = f"budget {budget >> 20} MiB"
        if not tap.ok(got is not None, f"{name}: opens, reads {PROMPT} tokens, writes {REPLY}"):
            print(f"#   {text}")
            continue
        tap.equal(got["tokens"], REPLY, f"{name}: every token came")
        tap.ok(got["evictions"] > 1000, f"{name}: {got['evictions']} records made room for others")
        tap.equal(got["slots"], got["plan"]["slots"][0], f"{name}: as many slots as planned")
        tap.ok(got["after_open"] <= budget + SPARE, f"{name}: peak while opening is {got['after_open'] >> 20} MiB")
        tap.ok(got["peak"] <= budget + SPARE, f"{name}: peak is {got['peak'] >> 20} MiB")
    tap.raises(lambda: db.execute("SELECT waste_open(?, ?)", (path, json.dumps({"budget": floor - 1}))).fetchone(),
               "below the floor", str(floor), name="a byte below the floor: refused, and the floor is named")
    # the largest budget that the advice of 3/4 allows
    in_a_group(GROUP, GROUP // 4 * 3, PROMPT // 2, "a budget of 3/4 of a group smaller than the container", lambda: (path, size))
    in_a_gigabyte(home)
    tap.done()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    elif tap.SANITIZED:
        tap.skip_all("a sanitizer's own memory would be what is measured")
    elif not os.path.exists("/proc/self/status"):
        tap.skip_all("no /proc to read the peak of a process from")
    else:
        os.makedirs(os.path.join(tap.BUILD, "tests"), exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="budget-", dir=os.path.join(tap.BUILD, "tests")) as d:
            main(d)
