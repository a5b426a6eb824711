"""Control groups with a memory limit and no swap, under v2 or v1. They need root and a
writable hierarchy. Whoever makes one removes it (os.rmdir) once its processes have ended."""
import os


def write(path, value):
    with open(path, "w") as f:
        f.write(str(value))


def swap_is_off(group, limit):
    if len(open("/proc/swaps").read().splitlines()) < 2:
        return True
    for name, value in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", limit)):
        if os.path.exists(os.path.join(group, name)):
            write(os.path.join(group, name), value)
            return True
    return False


def make(limit):
    """A group of `limit` bytes and no swap, and the file that has the limit; or
    None and why there is none."""
    name = f"waste-test-{os.getpid()}"
    why = "no cgroup hierarchy with a memory controller"
    for root, file in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/unified", "memory.max"),
                       ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
        group = os.path.join(root, name)
        try:
            if file == "memory.max":
                if "memory" not in open(os.path.join(root, "cgroup.controllers")).read().split():
                    continue
                if "memory" not in open(os.path.join(root, "cgroup.subtree_control")).read().split():
                    why = f"{root} does not hand down its memory controller"
                    continue
            elif not os.path.exists(os.path.join(root, file)):
                continue
            os.mkdir(group)
        except OSError as e:
            why = f"{root}: {e.strerror} (needs root and a writable hierarchy)"
            continue
        try:
            write(os.path.join(group, file), limit)
            if swap_is_off(group, limit):
                return group, os.path.join(group, file)
            why = "swap is on and cannot be turned off for one group"
        except OSError as e:
            why = f"{group}: {e.strerror}"
        os.rmdir(group)
    return None, why


def enter(group):
    """This process goes in; for preexec_fn."""
    write(os.path.join(group, "cgroup.procs"), os.getpid())


def peak(group):
    """Most bytes that the group has had, page cache included; None where the system cannot tell."""
    for name in ("memory.peak", "memory.max_usage_in_bytes"):
        if os.path.exists(os.path.join(group, name)):
            return int(open(os.path.join(group, name)).read())
    return None
