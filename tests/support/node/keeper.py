"""``python -m support.node.keeper NAME``: gives a node namespaces and cgroups, and takes both back.

It makes cgroups of that name below its own, starts `support.node.init` in them as the first
process of new mount, network, PID, IPC, UTS and cgroup namespaces, and waits. Whatever ends the
first process ends everything in the node, for the kernel kills what is left of a PID namespace;
mounts, interfaces and packet filters go with theirs. Only the cgroups are then left, and are
removed here. The first process reads our stdin: so a test run that is killed ends the node, too,
and its directory, which is the one we are in, is removed for it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from support.node.cgroups import LEAF, UNIFIED, Hierarchy, hierarchies

_REMOVAL_S = 20.0
_ENTRY_S = 10.0
_UNSHARE = ("unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup",
            "--fork", "--kill-child", "--mount-proc")  # fmt: skip


def _make(parent: Path, name: str, is_unified: bool) -> Path:
    made = parent / name
    made.mkdir()
    for file in ("cpuset.cpus", "cpuset.mems"):  # empty at first: in version 1 nothing may enter
        if not is_unified and (parent / file).exists():
            (made / file).write_text((parent / file).read_text())
    return made


def _deepest_first(cgroup: Path) -> Iterator[Path]:
    for entry in os.scandir(cgroup):
        if entry.is_dir(follow_symlinks=False):
            yield from _deepest_first(Path(entry))
    yield cgroup


def remove(cgroup: Path) -> None:
    """Removes a cgroup with all below it, as soon as its last process is gone."""
    deadline = time.monotonic() + _REMOVAL_S
    while cgroup.exists():
        try:
            for each in _deepest_first(cgroup):
                each.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _leave(made: Path, hierarchy: Hierarchy, pid: int) -> None:
    """Takes this process and that of ``pid`` out of a cgroup, once the node's first has left it.

    In version 2 a cgroup with processes gives no controllers to those in it.
    """
    deadline = time.monotonic() + _ENTRY_S
    while not (made / LEAF).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    for each in (0, pid):
        (hierarchy.own / "cgroup.procs").write_text(str(each))


def main() -> None:
    """Runs the node until its first process ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of stdin is the signal
    name, parent = sys.argv[1], os.getppid()
    found = hierarchies()
    made = []
    try:
        for names, hierarchy in found.items():
            made.append(_make(hierarchy.parent, name, names == UNIFIED))
            (made[-1] / "cgroup.procs").write_text("0")
        process = subprocess.Popen([*_UNSHARE, sys.executable, "-m", "support.node.init", *found])
        if UNIFIED in found:
            _leave(made[list(found).index(UNIFIED)], found[UNIFIED], process.pid)
        status = process.wait()
    finally:
        for hierarchy in found.values():
            (hierarchy.own / "cgroup.procs").write_text("0")
        for cgroup in made:
            remove(cgroup)
        if os.getppid() != parent:
            shutil.rmtree(os.getcwd())
    sys.exit(status)


if __name__ == "__main__":
    main()
