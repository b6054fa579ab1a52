"""Where the cgroups of a test's node go: machines of version 1, of version 2, and of both."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.node.cgroups import NEEDED, UNIFIED, Hierarchy, hierarchies, lacking

ALL = " ".join(sorted(NEEDED))

Found = dict[str, Hierarchy]
Make = Callable[..., Found]


@pytest.fixture
def found(tmp_path: Path) -> Make:
    """Returns ``found(own, kinds, gives)``: the hierarchies of a machine below ``tmp_path``.

    ``own`` has the lines of /proc/self/cgroup; ``gives`` what each cgroup of version 2 gives to
    those in it, by path.
    """

    def make(own: list[str], kinds: dict[str, str], gives: dict[str, str] | None = None) -> Found:
        mounts = "".join(f"x {tmp_path}/{at} {kind} 0 0\n" for at, kind in kinds.items())
        (tmp_path / "mounts").write_text(mounts)
        (tmp_path / "cgroup").write_text("".join(f"{line}\n" for line in own))
        for path, names in (gives or {}).items():
            cgroup = tmp_path / UNIFIED / path
            cgroup.mkdir(parents=True, exist_ok=True)
            (cgroup / "cgroup.controllers").write_text(ALL if path == "" else "")
            (cgroup / "cgroup.subtree_control").write_text(names)
        return hierarchies(tmp_path / "mounts", tmp_path / "cgroup")

    return make


def test_version_1_has_a_cgroup_in_each_hierarchy(found: Make, tmp_path: Path) -> None:
    kinds = {name: f"cgroup rw,{name}" for name in NEEDED}

    got = found([f"{n}:{name}:/mine" for n, name in enumerate(sorted(NEEDED))], kinds)

    assert got.keys() == NEEDED
    assert got["memory"].own == got["memory"].parent == tmp_path / "memory/mine"
    assert lacking(got) == ""


def test_of_both_the_one_with_the_controllers_counts(found: Make) -> None:
    kinds = {name: f"cgroup rw,{name}" for name in NEEDED} | {"two": "cgroup2 rw"}

    got = found([*(f"1:{name}:/" for name in NEEDED), "0::/"], kinds)

    assert got.keys() == NEEDED


def test_version_2_has_one_where_children_get_what_a_node_needs(
    found: Make, tmp_path: Path
) -> None:
    gives = {"": ALL, "user": "cpu memory", "user/session": ""}

    got = found(["0::/user/session"], {UNIFIED: "cgroup2 rw"}, gives)

    root = tmp_path / UNIFIED
    assert got == {UNIFIED: Hierarchy(own=root / "user/session", parent=root)}
    assert lacking(got) == ""


def test_version_2_that_gives_too_little_is_said_with_what_to_do(
    found: Make,
) -> None:
    got = found(["0::/"], {UNIFIED: "cgroup2 rw"}, {"": "cpu memory"})

    assert "gives cpuset, pids to those in it" in lacking(got)
    assert "echo '+cpuset +pids' > cgroup.subtree_control" in lacking(got)


def test_a_machine_without_a_controller_is_said(found: Make) -> None:
    got = found(["1:cpu:/", "2:pids:/"], {"cpu": "cgroup rw,cpu", "pids": "cgroup rw,pids"})

    assert lacking(got) == "no cgroup hierarchy, of version 1 or 2, has cpuset, memory"
