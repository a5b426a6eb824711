"""make install: what it puts where, and a C program that finds it with pkg-config."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from tap import BUILD, ROOT, SANITIZED, done, equal, ok, skip, skip_all  # noqa: E402

if SANITIZED or os.path.basename(BUILD) != "build":
    skip_all("installs the plain build in build/")

HOST = r"""
#include <stdio.h>
#include <waste.h>
int main(void)
{
    waste_container *c;
    waste_error e = {0};
    waste_status st = waste_container_open(&c, "/no/such/model", NULL, &e);
    printf("%s %d %s\n", waste_version(), (int)st, e.text);
    return 0;
}
"""
tmp = tempfile.mkdtemp()
prefix = os.path.join(tmp, "usr")
env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(prefix, "lib", "pkgconfig"))
env.pop("MAKEFLAGS", None)
p = subprocess.run(["make", "install", "PREFIX=" + prefix], cwd=ROOT, env=env, capture_output=True, text=True)
equal(p.returncode, 0, "make install PREFIX=...")
found = sorted(os.path.relpath(os.path.join(d, f), prefix) for d, _, fs in os.walk(prefix) for f in fs)
equal(found, ["include/waste.h", "lib/libwaste.a", "lib/pkgconfig/waste.pc", "lib/waste.so"], "four files")
if not shutil.which("pkg-config"):
    skip("no pkg-config", "a program built through pkg-config", 2)
else:
    with open(os.path.join(tmp, "host.c"), "w") as f:
        f.write(HOST)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "waste"], env=env, capture_output=True, text=True)
    built = subprocess.run(["cc", os.path.join(tmp, "host.c"), "-o", os.path.join(tmp, "host")] + flags.stdout.split(),
                           capture_output=True, text=True)
    if not ok(built.returncode == 0, "a C program builds with what pkg-config says"):
        print("# " + (flags.stderr + built.stderr).replace("\n", "\n# "), flush=True)
    else:
        said = subprocess.run([os.path.join(tmp, "host")], capture_output=True, text=True).stdout
        version = subprocess.run(["pkg-config", "--modversion", "waste"], env=env, capture_output=True, text=True).stdout
        ok(said.startswith(version.strip() + " -1 ") and "/no/such/model" in said, "it runs, and is of the version pkg-config says")
shutil.rmtree(tmp)
done()
