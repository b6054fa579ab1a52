"""Each finding says what is so and how to fix it; only a failure makes the node unhealthy."""

import errno
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from deviceplugin.pages.state import (
    AgentReport,
    ReportedAgent,
    ReportedCharge,
    ReportedConfig,
    ReportedInjection,
    ReportedProcess,
    ReportedResource,
    ReportedWatch,
)
from libvgpu.errors import VgpuError
from vgpuctl.__main__ import main
from vgpuctl.agent_client import AgentUnreachable
from vgpuctl.doctor import agent_checks, driver, examine, node_checks
from vgpuctl.doctor.examine import connect_problem
from vgpuctl.doctor.finding import FAIL, OK, WARN, Finding
from vgpuctl.doctor.injection_check import injection

MIB = 1 << 20
ROOT_USER, USER = 0, 1000
SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
DENIED = PermissionError(errno.EACCES, "Permission denied")
ABSENT = FileNotFoundError(errno.ENOENT, "No such file or directory")
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


def report(error: str | None = None, registered_at: float | None = 1.0) -> AgentReport:
    return AgentReport(
        agent=ReportedAgent("0.1.0", 7, "n1", 0.0),
        config=ReportedConfig("/etc/c.yaml", "0123456789abcdef", 2, error, None),
        resources=(
            ReportedResource("nvidia.com/vgpu-core", 1.0),
            ReportedResource("nvidia.com/vgpu-memory", registered_at),
        ),
        shim_build="abc",
    )


def with_config(**values: Any) -> AgentReport:
    return replace(report(), config=replace(report().config, **values))


def run_directory(**seen: Any) -> node_checks.RunDirectory:
    values: dict[str, Any] = {
        "filesystem": "tmpfs",
        "mode": 0o700,
        "owner": ROOT_USER,
        "free_bytes": 500 * MIB,
        "slice_bytes": MIB,
    } | seen
    return node_checks.RunDirectory(path=Path("/run/vgpu"), **values)


def levels(findings: list[Finding]) -> list[str]:
    return [finding.level for finding in findings]


def test_a_driver_is_named_with_its_version_and_its_lack_with_what_to_install() -> None:
    assert "CUDA 13.0" in driver.judge(13000, "", simulated=False).message
    assert "simulated, CUDA 12.4" in driver.judge(12040, "", simulated=True).message
    lacking = driver.judge(None, "libcuda.so.1: cannot open", simulated=False)
    assert lacking.level == FAIL
    assert "cannot open" in lacking.message
    assert "install the NVIDIA driver" in lacking.fix


@pytest.mark.parametrize(
    ("capabilities", "needed"),
    [
        (None, True),
        ("", True),
        ("all", True),
        ("compute,utility", True),
        ("utility", False),
        ("utility, video", False),
    ],
)
def test_only_a_container_with_compute_needs_the_driver_library(
    capabilities: str | None, needed: bool
) -> None:
    assert driver.needs_library(capabilities) is needed


def test_an_agent_with_utility_alone_is_told_the_version_by_nvml() -> None:
    by_nvml = driver.without_library(12080)
    assert (by_nvml.level, by_nvml.fix) == (OK, "")
    assert "by NVML the driver has CUDA 12.8" in by_nvml.message
    assert driver.without_library(None).level == WARN
    assert driver.without_library(11080).level == OK
    old = driver.without_library(11030)
    assert (old.level, "the driver has CUDA 11.3" in old.message) == (FAIL, True)


def test_a_missing_library_fails_only_where_it_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", lacking)
    monkeypatch.setattr(driver, "_version_by_nvml", lambda: 13000)
    monkeypatch.delenv("NVIDIA_DRIVER_CAPABILITIES", raising=False)
    assert driver.look().level == FAIL

    monkeypatch.setenv("NVIDIA_DRIVER_CAPABILITIES", "utility")
    assert driver.look().level == OK


def test_nvml_must_answer_and_list_a_gpu() -> None:
    assert node_checks.nvml(["A100", "A100"], "") == Finding("nvml", OK, "2 GPUs: A100, A100")
    assert node_checks.nvml([], "").level == FAIL
    assert node_checks.nvml(None, "NVML says no").message == "NVML says no"


@pytest.mark.parametrize("user", [ROOT_USER, USER])  # the agent's, whoever looks
def test_a_good_run_directory_is_one_line(user: int) -> None:
    (found,) = node_checks.run_directory(run_directory(), user)

    assert found.level == OK
    assert "tmpfs" in found.message and "500 MiB" in found.message


@pytest.mark.parametrize(
    ("seen", "user", "level", "said"),
    [
        ({"filesystem": "ext4"}, ROOT_USER, WARN, "is on ext4"),
        ({"mode": 0o755}, ROOT_USER, WARN, "mode 0755: other users may look"),
        ({"mode": 0o722}, ROOT_USER, FAIL, "other users may write"),
        ({"owner": 5}, USER, FAIL, "belongs to user 5"),
        ({"free_bytes": 109 * MIB}, ROOT_USER, WARN, "room for 109 slices of 110"),
        ({"free_bytes": MIB - 1}, ROOT_USER, FAIL, "room for 0 slices"),
    ],
)
def test_what_is_wrong_with_a_run_directory_is_a_line_with_its_fix(
    seen: dict[str, int | str], user: int, level: str, said: str
) -> None:
    (found,) = node_checks.run_directory(run_directory(**seen), user)

    assert (found.level, found.check) == (level, "run directory")
    assert said in found.message
    assert found.fix


def test_a_file_system_is_found_by_its_device() -> None:
    mounts = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "25 22 0:23 / /run rw,nosuid master:5 propagate_from:2 - tmpfs tmpfs rw,size=9k\n"
    )

    assert node_checks.filesystem_of(os.makedev(0, 23), mounts) == "tmpfs"
    assert node_checks.filesystem_of(os.makedev(8, 1), mounts) == "ext4"
    assert node_checks.filesystem_of(os.makedev(8, 2), mounts) == ""


@pytest.mark.parametrize(
    ("installed", "agent", "level"),
    [(True, True, OK), (None, True, WARN), (False, True, FAIL), (False, False, WARN)],
)
def test_a_shim_that_is_not_installed_fails_only_where_an_agent_is(
    installed: bool | None, agent: bool, level: str
) -> None:
    found = node_checks.shim("abc", installed, Path("/var/lib/vgpu"), agent)

    assert found.level == level


def test_a_shim_that_was_never_built_fails() -> None:
    found = node_checks.shim(VgpuError("missing", "make build"), None, Path("/s"), False)

    assert found == Finding("shim", FAIL, "missing", "make build")


@pytest.mark.parametrize(
    ("problem", "is_node", "level", "said"),
    [
        (None, True, OK, "answers"),
        (DENIED, True, WARN, "may not be opened by this user"),
        (ABSENT, True, FAIL, "does not answer: No such file"),
        (REFUSED, True, FAIL, "does not answer: Connection refused"),
        (ABSENT, False, WARN, "no kubelet on this machine"),
    ],
)
def test_a_socket_of_the_kubelet(
    problem: OSError | None, is_node: bool, level: str, said: str
) -> None:
    found = agent_checks.kubelet_socket("kubelet", SOCKET, problem, is_node)

    assert found.level == level
    assert said in found.message
    assert bool(found.fix) == (level != OK)


def test_an_agent_is_missed_only_on_a_node_and_by_who_may_ask_it() -> None:
    gone = AgentUnreachable("no node agent answers", "start it")
    denied = AgentUnreachable("may not be opened", "ask as root", denied=True)

    assert agent_checks.agent(report(), 3600.0, is_node=True).level == OK
    assert "up 1.0 h" in agent_checks.agent(report(), 3600.0, is_node=True).message
    missed = agent_checks.agent(gone, 0.0, is_node=True)
    assert (missed.level, missed.message) == (FAIL, gone.message)
    assert missed.fix.startswith("start it")
    assert agent_checks.agent(gone, 0.0, is_node=False).level == WARN
    assert agent_checks.agent(denied, 0.0, is_node=True).level == WARN
    assert agent_checks.agent(VgpuError("another form", "x"), 0.0, is_node=False).level == FAIL


def test_a_loop_that_stands_still_fails() -> None:
    stuck = replace(report(), loop_problem="the loop has not turned for 60 s")

    assert agent_checks.agent(stuck, 0.0, is_node=True).level == FAIL


def test_a_rejected_config_fails_with_its_last_error() -> None:
    (found,) = agent_checks.config(report("line 2: unknown key 'sharring'"))

    assert found.level == FAIL
    assert found.message.startswith("line 2: unknown key 'sharring'; the last good one stays")
    assert found.fix == "check it with: vgpuctl config validate /etc/c.yaml"
    assert [each.level for each in agent_checks.config(report())] == [OK]


def test_the_named_config_is_named_and_a_label_that_is_not_told_warns() -> None:
    named = with_config(
        name="a100",
        chosen_by="label nvidia.com/device-plugin.config",
        label_problem="the API server answers 403",
    )
    empty = with_config(chosen_by="fallback empty")
    kept = with_config(error="config file /etc/c.yaml cannot be read: No such file", is_kept=True)

    good, warned = agent_checks.config(named)

    assert good.level == OK
    assert "config a100, chosen by label nvidia.com/device-plugin.config; /etc/c.yaml" in (
        good.message
    )
    assert (warned.level, "answers 403" in warned.message) == (WARN, True)
    assert "the empty config, chosen by fallback empty" in agent_checks.config(empty)[0].message
    (bad,) = agent_checks.config(kept)
    assert bad.level == FAIL
    assert "No such file; the one kept from before the agent's start is in force" in bad.message


def test_resources_that_are_not_registered_fail_by_name() -> None:
    missing = agent_checks.resources(report(registered_at=None))
    nothing = replace(report(), resources=())

    assert missing.level == FAIL
    assert missing.message.endswith(": nvidia.com/vgpu-memory")
    assert agent_checks.resources(report()).level == OK
    assert "since 1970-01-01 00:00:01Z" in agent_checks.resources(report()).message
    assert agent_checks.resources(nothing).level == WARN


def test_resources_that_the_kubelet_does_not_listen_to_fail_by_name() -> None:
    unheard = replace(report(), unheard_resources=("nvidia.com/vgpu-core",))

    silent = agent_checks.resources(unheard)

    assert silent.level == FAIL
    assert silent.message == "registered, but the kubelet does not listen: nvidia.com/vgpu-core"


def test_gpus_of_which_nothing_is_offered_are_named_with_why() -> None:
    found = replace(
        report(),
        withheld_gpus={"GPU-0": "it is in MIG mode"},
        unmatched_entries=("sharing.fractional[0]",),
    )

    first, second = agent_checks.gpus(found)

    assert levels([first, second]) == [WARN, OK]
    assert "nothing of GPU GPU-0 is offered: it is in MIG mode" in first.message
    assert "sharing.fractional[0] is for no GPU of this node" in second.message


def test_what_uses_a_gpu_without_the_shim_is_a_warning() -> None:
    assert agent_checks.watch(report()) == []
    seen = ReportedWatch(
        problem="no pids",
        bypassing_count=3,
        foreign_count=1,
        bypassing=(ReportedProcess("GPU-0", 7, "x", 2 << 30, "a1", "ns/pod/c"),),
        foreign=(ReportedProcess("GPU-0", 8, "y"),),
        charged_count=2,
        charged=(
            ReportedCharge("GPU-0", "a1", "ns/pod/c", 2 << 30),  # its process is named
            ReportedCharge("GPU-0", "a2", "ns/other/c", 3 << 30),
        ),
    )

    findings = agent_checks.watch(replace(report(), watch=seen))

    assert levels(findings) == [WARN] * 5
    assert [finding.message for finding in findings] == [
        "processes that avoid the shim are not seen: no pids",
        "process 7 (x) uses 2 GiB of GPU GPU-0 without the shim, in ns/pod/c (allocation a1)",
        "process 8 (y) uses memory of GPU GPU-0 and belongs to no allocation",
        (
            "processes of ns/other/c hold 3 GiB of GPU GPU-0 that the shim does not count "
            "(allocation a2)"
        ),
        "2 more processes like these",
    ]


def test_how_containers_get_their_gpus_is_a_line() -> None:
    told = ReportedInjection(("cdi-cri",), "containerd 2.1 does CDI", (), "/var/run/cdi/a.json")

    (found,) = injection(told)

    assert (found.check, found.level) == ("injection", OK)
    assert found.message == "cdi-cri, CDI spec /var/run/cdi/a.json: containerd 2.1 does CDI"
    assert injection(ReportedInjection()) == []


def test_what_keeps_containers_from_their_gpus_fails() -> None:
    told = ReportedInjection(
        ("envvar",), "so it is", ("nvidia",), problems=("no driver", "no spec")
    )

    findings = injection(told)

    assert levels(findings) == [FAIL, FAIL, WARN]
    assert [f.message for f in findings[:2]] == ["no driver", "no spec"]
    assert findings[2].fix == "give pods that ask for GPUs runtimeClassName: nvidia"


def test_each_mps_daemon_is_a_line() -> None:
    found = agent_checks.mps_daemons([("GPU-0", "", ""), ("GPU-1", "no answer", "/mps/GPU-1")])
    assert levels(found) == [OK, FAIL]
    assert found[1].fix.endswith(
        "; its log is mps/runner.log in the run directory, those of the "
        "daemon are in /mps/GPU-1/log"
    )
    (elsewhere,) = agent_checks.mps_daemons([("GPU-1", "", "/mps/GPU-1")])
    assert elsewhere.message.endswith("answers; its pipe and logs are in /mps/GPU-1")
    assert agent_checks.mps_daemons([]) == []


def test_gpus_whose_tenants_share_a_server_are_named_as_fault_domains() -> None:
    findings = agent_checks.fault_domains({"GPU-1": 0, "GPU-0": 3})

    assert [(finding.check, finding.level) for finding in findings] == [("fault-domain", OK)] * 2
    assert findings[0].message == (
        "GPU GPU-0 is one fault domain: its containers are clients of one MPS server (3 now), so a "
        "fatal fault of one ends the work of all"
    )
    assert agent_checks.fault_domains({}) == []


def test_entry_points_that_no_build_knew_are_a_warning() -> None:
    (finding,) = node_checks.entry_points([(1, ""), (3, "cuFutureCall")], 2)

    assert (finding.check, finding.level) == ("entry-points", WARN)
    assert finding.message == (
        "the driver answered 2 processes of 2 slices with entry points that their library does not "
        "know (up to 3 a process, cuFutureCall among them): these pass and are not held to the "
        "slice"
    )
    assert "update" in finding.fix
    assert "among" not in node_checks.entry_points([(1, "")], 1)[0].message
    assert node_checks.entry_points([], 0) == []


def test_a_socket_nobody_listens_at_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "s"
    assert isinstance(connect_problem(path), FileNotFoundError)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert isinstance(connect_problem(path), ConnectionRefusedError)
        listener.listen()
        assert connect_problem(path) is None


def test_on_a_machine_without_anything_it_says_so_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks: list[list[Finding]] = []

    def look_once(node: examine.Node, begin: Callable[[str], None]) -> list[Finding]:
        # What programs of other tests leave or start on this machine is found, too.
        if not looks:
            looks.append(examined(node, begin))
        return looks[0]

    examined = examine.findings
    monkeypatch.setattr(examine, "findings", look_once)
    arguments = ["doctor", *(f"--{n}-dir={tmp_path / n}" for n in ("run", "state", "kubelet"))]

    status = main([*arguments, "-o", "json"])
    rows = json.loads(capsys.readouterr().out)
    found = {row["check"]: row for row in rows}
    assert main(arguments) == status
    lines = capsys.readouterr().out.splitlines()

    assert {
        c: found[c]["level"] for c in ("kubelet", "podresources", "agent", "shim")
    } == dict.fromkeys(("kubelet", "podresources", "agent", "shim"), WARN)
    assert status == int(any(f["level"] == FAIL for f in rows))
    assert len(lines) == len(rows)
    assert all(line.startswith(("ok ", "warn ", "fail ")) for line in lines)
    assert all("; fix: " in line for line in lines if not line.startswith("ok"))
    assert list(tmp_path.iterdir()) == [], "it changed something"
