"""Where a node's cgroups go on this machine: hierarchies of version 1, or the one of version 2."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: Controllers that a kubelet insists on.
NEEDED = frozenset({"cpu", "cpuset", "memory", "pids"})
#: How the hierarchy of version 2 is called here; those of version 1 have their controllers' names.
UNIFIED = "unified"
#: Where a node's own processes are in it: only a cgroup without any gives controllers to others.
LEAF = "node.processes"
_ENABLED = "cgroup.subtree_control"


@dataclass(frozen=True)
class Hierarchy:
    """One hierarchy.

    Attributes:
        own: the cgroup of this process.
        parent: in which a node's is made.
    """

    own: Path
    parent: Path


def hierarchies(
    mounts: Path = Path("/proc/self/mounts"), cgroups: Path = Path("/proc/self/cgroup")
) -> dict[str, Hierarchy]:
    """Returns the hierarchies that a node gets, by the names of their controllers.

    Where there are both versions, version 2 is left out unless it has what a node needs. In it a
    node's cgroup is made in the nearest one from ours upwards whose children have that, too.

    Args:
        mounts: the kernel's list of mounts.
        cgroups: its list of our cgroups.
    """
    mounted: dict[frozenset[str], Path] = {}
    unified: Path | None = None
    for line in mounts.read_text().splitlines():
        _, target, kind, controllers, *_ = line.split()
        if kind == "cgroup":
            mounted[frozenset(controllers.split(","))] = Path(target)
        elif kind == "cgroup2":
            unified = Path(target)
    found = {}
    for line in cgroups.read_text().splitlines():
        _, names, path = line.split(":", 2)
        if (
            not names
            and unified is not None
            and _names_in(unified / "cgroup.controllers") >= NEEDED
        ):
            own = unified / path.lstrip("/")
            above = [own, *own.parents]
            enabled = (c for c in above[: above.index(unified) + 1] if _gives(c) >= NEEDED)
            found[UNIFIED] = Hierarchy(own, next(enabled, own))
        for options, mount_point in mounted.items():
            if names and frozenset(names.split(",")) <= options:
                own = mount_point / path.lstrip("/")
                found[names] = Hierarchy(own, own)
    return found


def lacking(found: Mapping[str, Hierarchy]) -> str:
    """Returns as a sentence what a node lacks of `hierarchies`, empty if nothing does."""
    if UNIFIED in found:
        parent = found[UNIFIED].parent
        missing = sorted(NEEDED - _gives(parent))
        if not missing:
            return ""
        words = " ".join(f"+{name}" for name in missing)
        return (
            f"no cgroup from {parent} upwards gives {', '.join(missing)} to those in it; as root, "
            f"in one without processes or in the machine's root: echo '{words}' > {_ENABLED}"
        )
    missing = sorted(NEEDED - {name for names in found for name in names.split(",")})
    return f"no cgroup hierarchy, of version 1 or 2, has {', '.join(missing)}" if missing else ""


def left_by_nodes(found: Mapping[str, Hierarchy]) -> Iterator[str]:
    """Returns the cgroups in which a node's may be left: all in ours, of others a node's alone."""
    for hierarchy in found.values():
        for path, _, _ in os.walk(hierarchy.parent):
            if hierarchy.own == hierarchy.parent or "/vgpu-" in path or "/kubepods" in path:
                yield path


def _gives(cgroup: Path) -> set[str]:
    """Returns the controllers that children of a cgroup have."""
    return _names_in(cgroup / _ENABLED)


def _names_in(file: Path) -> set[str]:
    return set(file.read_text().split()) if file.exists() else set()
