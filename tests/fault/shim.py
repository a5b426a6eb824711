"""tests/fault/shim.c for a test script: start() runs the script again with the
library preloaded and gives what arms its faults; where that cannot be, the whole
script is skipped.

    shim = start()
    shim.read("experts-L", ERROR, errno.EIO, n=3)   the third read of a bank fails
    shim.open("trunk.bin", HANG, 300, times=ALWAYS) every open waits 300 ms
    shim.arm(UNLINK, "model-2", ERROR, errno.EPERM)  a file cannot be deleted
    shim.arm(CHANGE, DIR, KILL, 9, n=5)             the process ends before the fifth rename or deletion in DIR
    shim.arm(STATVFS, DIR, FREE, 1000, times=ALWAYS) a disk is nearly full
    shim.memory(7, stay=True)                       the extension gets no more memory
    shim.off()                                      as it was; what hangs goes on
"""
import ctypes
import os
import sys

from lib import tap

LIBRARY = os.path.join(tap.BUILD, "tests", "fault", "shim.so")
ERROR, SHORT, HANG, FLIP, KILL, FREE = range(6)
READ, OPEN, RENAME, UNLINK, STATVFS, CHANGE = range(1, 7)
ALWAYS = -1


class Shim:
    def __init__(self, lib):
        self.lib = lib
        for f in (lib.shim_calls, lib.shim_faults, lib.shim_allocations):
            f.restype = ctypes.c_long
        lib.shim_arm.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_long, ctypes.c_long, ctypes.c_int, ctypes.c_long)
        lib.shim_arm_memory.argtypes = (ctypes.c_char_p, ctypes.c_long, ctypes.c_int)

    def arm(self, op, text, kind, value, n=1, times=1):
        self.lib.shim_arm(op, text.encode(), n, times, kind, value)

    def read(self, text, kind, value, n=1, times=1):
        self.arm(READ, text, kind, value, n, times)

    def open(self, text, kind, value, n=1, times=1):
        self.arm(OPEN, text, kind, value, n, times)

    def memory(self, n, stay=False):
        return self.lib.shim_arm_memory(b"/waste.so", n, stay)

    def off(self):
        self.lib.shim_off()

    def calls(self):
        return self.lib.shim_calls()

    def faults(self):
        return self.lib.shim_faults()

    def hanging(self):
        return self.lib.shim_hanging()

    def allocations(self):
        return self.lib.shim_allocations()


def start():
    loaded = os.environ.get("LD_PRELOAD", "")
    if not sys.platform.startswith("linux"):
        tap.skip_all("faults are preloaded through LD_PRELOAD, and files found through /proc: Linux only")
    if not os.path.exists(LIBRARY):
        tap.skip_all(f"{LIBRARY} is not built")
    if LIBRARY not in loaded.split(":"):  # a sanitizer's runtime comes first
        env = dict(os.environ, LD_PRELOAD=f"{loaded}:{LIBRARY}" if loaded else LIBRARY)
        os.execve(sys.executable, [sys.executable, *sys.argv], env)
    lib = ctypes.CDLL(LIBRARY)
    shim = Shim(lib)
    shim.read(__file__, ERROR, 5)
    with open(__file__, "rb") as f:
        try:
            os.pread(f.fileno(), 1, 0)
            works = False
        except OSError:
            works = True
    shim.off()
    if not works:
        tap.skip_all("the preloaded library does not see the process's reads")
    return shim
