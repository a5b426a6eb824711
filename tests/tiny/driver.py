"""Starts the program of tests/tools/logits.c for a test script.

run(args...)         one process; its exit status and what it printed
Checker(options...)  one process for many containers: check(verb, path) gives
                     (status, sentence), (0, "ok") when all is well, and
                     ("crash" or "hang", details) when the process does not live
                     through it; the next check then starts another
"""
import os
import select
import subprocess
import tempfile

from lib import tap

PROGRAM = os.path.join(tap.BUILD, "tests", "tools", "logits")


def environment():
    """The script's own, without what tests/run adds for extensions that are
    loaded into Python: a sanitized program brings its runtime, and may look for
    leaks."""
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    if "ASAN_OPTIONS" in env:
        env["ASAN_OPTIONS"] = env["ASAN_OPTIONS"].replace("detect_leaks=0:", "", 1)
    return env


def run(*args, timeout=120):
    p = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, errors="replace",
                       env=environment(), timeout=timeout)
    return p.returncode, (p.stdout + p.stderr).strip()


class Checker:
    def __init__(self, *options, timeout=30):
        self.options, self.timeout, self.p = options, timeout, None

    def start(self):
        self.log = tempfile.TemporaryFile()
        self.p = subprocess.Popen([PROGRAM, *self.options, "check"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=self.log, env=environment(), text=True, errors="replace")

    def check(self, verb, path):
        if not self.p:
            self.start()
        self.p.stdin.write(f"{verb}\t{path}\n")
        self.p.stdin.flush()
        if not select.select([self.p.stdout], [], [], self.timeout)[0]:
            self.p.kill()
            return "hang", self.end()[1]
        line = self.p.stdout.readline()
        if not line:
            return "crash", "{}: {}".format(*self.end())
        status, _, text = line.rstrip("\n").partition(" ")
        return (0, "ok") if status == "ok" else (int(status), text)

    def end(self):
        """(exit status, the end of what it wrote to stderr): leaks show here."""
        if not self.p:
            return 0, ""
        try:
            self.p.stdin.close()
        except OSError:
            pass  # it is gone
        code = self.p.wait()
        self.p.stdout.close()
        self.p = None
        self.log.seek(0)
        text = self.log.read().decode(errors="replace")
        self.log.close()
        hits = [l for l in text.splitlines() if "Sanitizer" in l or "runtime error" in l]
        return code, (hits[0] if hits else text[-300:]).strip()


def without_kernels(name, container):
    """Why the table of that name cannot be had here; None: it can."""
    code, said = run("--fast", "--kernels", name, "open", container)
    return said.strip() if code and "no kernels" in said else None
