"""``python -m support.node_keeper NAME``: gives a node namespaces and cgroups, and takes both back.

It makes cgroups of that name below its own, starts `support.node_init` in them as the first
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

_REMOVAL_S = 20.0
_UNSHARE = ("unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup",
            "--fork", "--kill-child", "--mount-proc")  # fmt: skip


def hierarchies() -> dict[str, tuple[Path, Path]]:
    """Returns where each cgroup hierarchy of version 1 is mounted, and our own cgroup in it."""
    mounted: dict[frozenset[str], Path] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, target, kind, controllers, *_ = line.split()
        if kind == "cgroup":
            mounted[frozenset(controllers.split(","))] = Path(target)
    found = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for options, mount_point in mounted.items():
            if names and frozenset(names.split(",")) <= options:
                found[names] = (mount_point, mount_point / path.lstrip("/"))
    return found


def _make(own: Path, name: str) -> Path:
    made = own / name
    made.mkdir()
    for file in ("cpuset.cpus", "cpuset.mems"):  # empty at first, and then nothing may enter
        if (own / file).exists():
            (made / file).write_text((own / file).read_text())
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


def main() -> None:
    """Runs the node until its first process ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of stdin is the signal
    name, parent = sys.argv[1], os.getppid()
    found = hierarchies()
    made = []
    try:
        for _, own in found.values():
            made.append(_make(own, name))
            (made[-1] / "cgroup.procs").write_text("0")
        status = subprocess.run(
            [*_UNSHARE, sys.executable, "-m", "support.node_init", *found], check=False
        ).returncode
    finally:
        for _, own in found.values():
            (own / "cgroup.procs").write_text("0")
        for cgroup in made:
            remove(cgroup)
        if os.getppid() != parent:
            shutil.rmtree(os.getcwd())
    sys.exit(status)


if __name__ == "__main__":
    main()
