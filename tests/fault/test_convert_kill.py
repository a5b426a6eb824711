"""Conversions killed at random moments and taken up again: what comes out is what an unbroken run gives, byte for byte."""
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib import checkpoint  # noqa: E402
from lib.tap import EXTENSION, SANITIZED, connect, done, equal, ok, skip_all  # noqa: E402

if SANITIZED:
    skip_all("the processes that are killed load the plain library")
KILLS = 50
HOME = tempfile.mkdtemp()
SOURCE, TARGET = os.path.join(HOME, "checkpoint"), os.path.join(HOME, "model.waste")
CHILD = """
import sqlite3, sys
db = sqlite3.connect(":memory:")
db.enable_load_extension(True)
db.load_extension(sys.argv[1])
print("ready", flush=True)
db.execute("SELECT count(*) FROM waste_convert(?, ?, ?)", sys.argv[2:5]).fetchone()
print("done", flush=True)
"""


def files():
    out = {}
    for name in sorted(os.listdir(TARGET)):
        with open(os.path.join(TARGET, name), "rb") as f:
            out[name] = hashlib.sha256(f.read()).hexdigest()
    return out


def start(options):
    p = subprocess.Popen([sys.executable, "-c", CHILD, EXTENSION, SOURCE, TARGET, options], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    p.stdout.readline()
    return p


checkpoint.model(SOURCE, experts="MXFP4", nested=True, shards=3, layers=5)
for options, overwritten in (("{}", False), ('{"overwrite":true,"threads":2}', True)):
    db = connect()
    db.execute("SELECT count(*) FROM waste_convert(?, ?, ?)", (SOURCE, TARGET, options)).fetchone()
    want = files()
    if overwritten:  # over another container, which has a bank and a file that the new one has not
        shutil.rmtree(TARGET)
        db.execute("SELECT count(*) FROM waste_convert(?, ?, '{\"experts\":\"vq2r\"}')", (SOURCE, TARGET)).fetchone()
        for name in ("experts-L9.bin", "usage.waste"):
            with open(os.path.join(TARGET, name), "wb") as f:
                f.write(b"old")
        old = os.path.join(HOME, "old")
        shutil.copytree(TARGET, old)
    began = time.monotonic()
    if overwritten:
        start(options).wait()
        shutil.rmtree(TARGET)
        shutil.copytree(old, TARGET)
    else:
        shutil.rmtree(TARGET)
        start(options).wait()
        equal(files(), want, "another process makes the same files")
        shutil.rmtree(TARGET)
    whole = time.monotonic() - began
    moments = random.Random(6 + overwritten)
    kills = runs = sound = 0
    different = []
    while kills < KILLS // 2:
        p = start(options)
        try:
            p.wait(moments.uniform(0, 0.8 * whole))
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGKILL)
        p.wait()
        kills += p.returncode == -signal.SIGKILL
        message = p.stderr.read()
        if p.returncode == 0 or "there is a container already" in message:  # killed when it was done
            runs += 1
            different += [] if files() == want else [kills]
            shutil.rmtree(TARGET)
            if overwritten:
                shutil.copytree(old, TARGET)
        elif p.returncode != -signal.SIGKILL:
            different.append(message)
            break
        # a container that is there at any moment can be opened
        elif os.path.exists(os.path.join(TARGET, "manifest.json")):
            sound += 1
            if db.execute("SELECT min(ok) FROM waste_verify(?)", (TARGET,)).fetchone() != (1,):
                different.append("a broken container")
    p = start(options)
    p.wait()
    equal(different, [], f"{kills} kills, {runs} conversions finished in between, all of them the same"
          + (f"; {sound} times the old container was still whole" if overwritten else ""))
    equal(files(), want, "and so is the last")
    ok(not os.path.exists(os.path.join(TARGET, ".convert")), "nothing is left behind")
    shutil.rmtree(TARGET)
shutil.rmtree(HOME)
done()
