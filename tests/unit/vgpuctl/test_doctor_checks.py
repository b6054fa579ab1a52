"""Findings of the node's runtime, driver, labels, processes and leftovers, as pure functions."""

from pathlib import Path

import pytest

from deviceplugin.cdi.strategy import RuntimeFacts
from deviceplugin.watch.pid_visibility import sees_node_pids
from support.node.doctor import put
from vgpuctl.agent_client import AgentOfReport, AgentReport, ConfigOfReport
from vgpuctl.doctor import (
    driver_match,
    image_checks,
    leftovers,
    mps_strangers,
    pid_checks,
    published_check,
    runtime_check,
    selinux_check,
)
from vgpuctl.doctor.finding import FAIL, OK, WARN
from vgpuctl.doctor.host import Host
from vgpuctl.doctor.slice_processes import SliceProcess

LABEL = "system_u:object_r:{}:s0"


def process(pid: int, *files: str, owner: str = "ns/p/c", seen: bool = True) -> SliceProcess:
    return SliceProcess(pid, "train", owner, True, "/", files if seen else None)


def report(publish_problem: str = "") -> AgentReport:
    agent = AgentOfReport("0.1.0", 7, "n1", 0.0)
    config = ConfigOfReport("/etc/c.yaml", "0123456789abcdef", 2)
    return AgentReport(agent, config, [], "abc", publish_problem=publish_problem)


@pytest.mark.parametrize(
    ("facts", "lists", "level", "fix"),
    [
        (RuntimeFacts("docker"), (), FAIL, "use containerd or CRI-O"),
        (RuntimeFacts("cri-o"), ("envvar",), FAIL, "--runtime=crio --set-as-default"),
        (RuntimeFacts("cri-o"), ("cdi-cri",), OK, ""),
        (RuntimeFacts("containerd", (1, 7)), ("envvar", "cdi-cri"), FAIL, "restart containerd"),
        (RuntimeFacts("containerd", (1, 7), nvidia_handlers=("n",)), ("cdi-cri",), FAIL, ""),
        (
            RuntimeFacts(
                "containerd", (1, 7), "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
            ),
            (),
            FAIL,
            "restart k3s or k3s-agent",
        ),
    ],
)
def test_a_runtime_is_held_against_what_the_agent_answers(
    facts: RuntimeFacts, lists: tuple[str, ...], level: str, fix: str
) -> None:
    found = runtime_check.runtime(facts, lists)

    assert (found.check, found.level) == ("runtime", level)
    assert fix in found.fix


def test_only_known_and_different_halves_of_a_driver_are_told() -> None:
    assert driver_match.match("535.1.2", "535.1.2") == []
    assert driver_match.match("", "535.1.2") == driver_match.match("535.1.2", "") == []
    assert driver_match.match("535.1.2", "550.1").pop().level == FAIL
    assert driver_match.module_version("GCC version: 12.3.0\n") == ""


def test_labels_are_judged_by_type_and_by_what_is_written() -> None:
    limits, usage = Path("/r/a/limits"), Path("/r/a/usage")
    good = LABEL.format("container_file_t")

    assert selinux_check.judge({limits: good, usage: good}).level == OK
    assert selinux_check.judge({limits: LABEL.format("container_ro_file_t")}).level == OK
    assert selinux_check.judge({limits: LABEL.format("var_run_t")}).level == FAIL
    assert "/r/a/limits (none)" in selinux_check.judge({limits: ""}).message
    assert "/r/a/pipe" in selinux_check.judge({Path("/r/a/pipe"): "odd"}).fix
    hidden = selinux_check.judge({limits: None, usage: ""})
    assert (hidden.level, "sudo" in hidden.fix) == (WARN, True)


def test_processes_of_a_container_are_one_finding() -> None:
    musl = ("/lib/ld-musl-x86_64.so.1", "/usr/bin/python3")
    other = process(9, "/lib/libc-2.31.so", owner="ns/q/c")

    found = image_checks.images([process(7, *musl), process(8, *musl), other], 34)

    assert [each.level for each in found] == [WARN, WARN]
    assert found[0].message.startswith("ns/p/c: process 7 (train) and 1 more run without")
    assert "its glibc is 2.31, and this build of libvgpu.so needs 2.34" in found[1].message
    assert image_checks.images([other], 31)[0].message.endswith("its loader did not preload it")
    assert image_checks.images([], 34) == []


def test_processes_that_this_user_may_not_see_are_said() -> None:
    (hidden,) = image_checks.images([process(7, seen=False)], 34)

    assert "1 processes of slices may not be seen" in hidden.message
    assert "sudo" in hidden.fix
    assert image_checks.cuda([process(7, seen=False)], 12040) == []
    assert image_checks.cuda([process(7, "/x/libcudart.so.13")], None) == []


def test_a_static_program_matters_on_a_gpu_alone() -> None:
    assert image_checks.images([process(7, "/pause")], 34)[0].level == OK
    (found,) = image_checks.images([process(7, "/tool", "/dev/nvidiactl")], 34)
    assert "statically linked" in found.message


@pytest.mark.parametrize(
    ("kinds", "layout"),
    [(["cgroup2"], "v2"), (["cgroup"], "v1"), (["cgroup", "cgroup2"], pid_checks.HYBRID), ([], "")],
)
def test_the_layout_of_cgroups(kinds: list[str], layout: str) -> None:
    lines = (f"30 23 0:26 / /sys/fs/cgroup rw shared:4 - {kind} x rw" for kind in ["proc", *kinds])

    assert pid_checks.layout("\n".join(lines)) == layout


def test_cgroups_are_told_only_where_there_are_slices() -> None:
    assert pid_checks.cgroups("v2", []) == []
    assert pid_checks.cgroups("v2", [process(7)])[0].level == OK


def test_a_lease_that_is_not_written_is_a_warning() -> None:
    assert published_check.published(report()) == []
    (found,) = published_check.published(report("the API server answers 403"))
    assert (found.check, found.level) == ("published", WARN)
    assert "the API server answers 403; schedulers go by what was before" in found.message


@pytest.mark.parametrize(
    ("free_mib", "has_files", "is_read_only", "level"),
    [
        (3, True, False, FAIL),
        (4, True, False, WARN),
        (63, True, False, WARN),
        (64, True, False, OK),
        (64, False, False, FAIL),
        (64, True, True, FAIL),
    ],
)
def test_room_for_the_agents_state(
    free_mib: int, has_files: bool, is_read_only: bool, level: str
) -> None:
    found = leftovers.judge_room(Path("/s"), free_mib << 20, has_files, is_read_only)

    assert found.level == level
    assert "/s" in found.message


def test_daemons_of_one_pipe_are_one_finding() -> None:
    strangers = [mps_strangers.Stranger(n, "/tmp/nvidia-mps") for n in (7, 8)]

    (one,) = mps_strangers.judge(strangers)

    assert "process 7, 8, pipe directory /tmp/nvidia-mps" in one.message
    assert (
        "pipe directory unseen" in mps_strangers.judge([mps_strangers.Stranger(9, "")])[0].message
    )


def test_a_pod_without_the_nodes_pids_sees_its_own_container_first(tmp_path: Path) -> None:
    in_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    put(tmp_path, "1/cgroup", "0::/\n")
    put(tmp_path, "self/cgroup", "0::/\n")

    assert sees_node_pids({}, tmp_path)
    assert not sees_node_pids(in_pod, tmp_path)
    put(tmp_path, "1/cgroup", "0::/../../../init.scope\n")
    assert sees_node_pids(in_pod, tmp_path)
    assert sees_node_pids(in_pod, tmp_path / "nothing")


def test_processes_are_those_of_a_root_only_where_it_has_any(tmp_path: Path) -> None:
    assert Host.of(str(tmp_path), {}).proc == Path("/proc")
    (tmp_path / "proc/1").mkdir(parents=True)
    assert Host.of(str(tmp_path), {}).proc == tmp_path / "proc"
    assert Host.of("", {}).proc == Path("/proc")
