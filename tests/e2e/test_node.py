"""A real kubelet, containerd and runc run the example pods on simulated GPUs (`make e2e-node`).

Each pod sees its slice, is refused beyond it, and keeps its limit whatever is restarted around it.
In the long form only, as root, where Go and the Debian packages are; they run in a step of their
own, since they compare the whole machine before and after.

What the kubelet tries again only after 10 to 15 seconds is of the long form. In the gate an agent
dies while a container starts in cluster/test_killed_agent.py, and /run is emptied by the reboot of
cluster/test_restarts.py, and under an agent in deviceplugin/agent/test_restarts.py.

One node serves all tests. Those that come first only look.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from libvgpu import region
from support import ROOT
from support.node.parts import missing
from support.node.programs import LOOK_INSIDE, MAKE_A_NODE, SECOND_PROCESS, TO_THE_BYTE
from support.node.real import MARKS, RealNode, example, example_config, idle_pod, running_node
from support.node.slices import GIB, OUT_OF_MEMORY, asked, assert_slice_holds
from support.suite import surroundings
from support.waiting import wait_until

#: The first two fill the GPU that they share, so that the other two of vgpu get the small one.
PODS = ("vgpu-30", "vgpu-70", "vgpu-hardened", "vgpu-host-ipc", "mps-half", "mps-quarter")
VGPU_PODS = PODS[:4]
MPS_PODS = PODS[4:]
#: Those of family mps, and those on the small GPU, who share one server in family vgpu.
CLIENT_PODS = PODS[2:]
GPUS = ("a100-80g", "a100-80g", "t4")
#: How far a share of 3 s may be off on a machine that does other things; benchmarks measure it.
SHARE_POINTS = 5

pytestmark = MARKS


def agent_config(*rules: dict[str, Any]) -> dict[str, Any]:
    """The examples' config, with one more GPU whose containers are clients of one MPS server."""
    config = example_config()
    (shared,) = (e for e in config["sharing"]["fractional"] if e["family"] == "vgpu")
    config["sharing"]["fractional"].append(shared | {"devices": [2], "concurrency": "mps"})
    return config | {"limits": list(rules)}


@pytest.fixture(scope="module")
def before() -> set[str]:
    """The machine before there was a node."""
    why_not = missing()
    if why_not:
        pytest.skip(why_not)
    return surroundings.look()


@pytest.fixture(scope="module")
def node(before: set[str]) -> Iterator[RealNode]:
    """A node on which all pods have shown what they got."""
    with running_node(agent_config(), GPUS) as node:
        for name in PODS:
            node.put(example(name))
            wait_until(partial(node.pod, name), f"pod {name}")
        for name in PODS:
            node.wait_said(name, "compute")
        yield node


@pytest.mark.parametrize("name", PODS)
def test_a_pod_sees_its_slice_and_is_refused_beyond_it(node: RealNode, name: str) -> None:
    assert_slice_holds(node, name)


@pytest.mark.parametrize("name", VGPU_PODS)
def test_a_pod_gets_no_more_than_its_share_of_the_time(node: RealNode, name: str) -> None:
    percent, _ = asked(example(name))

    assert 0 < node.wait_said(name, "compute")["share_percent"] <= percent + SHARE_POINTS


@pytest.mark.parametrize("name", PODS)
def test_a_container_has_what_the_agent_answered(node: RealNode, name: str) -> None:
    pod = example(name)
    percent, limit_bytes = asked(pod)

    inside = node.execute(name, LOOK_INSIDE)

    assert inside["uid"] == pod["spec"].get("securityContext", {}).get("runAsUser", 0)
    assert inside["env"]["NVIDIA_VISIBLE_DEVICES"] == node.wait_said(name, "view")["uuid"]
    assert inside["mounts"]["/run/vgpu/limits"] == "ro"
    assert inside["mounts"]["/run/vgpu/usage"] == "rw"
    assert inside["mounts"]["/run/vgpu/ring"] == "rw"
    assert inside["mounts"]["/etc/ld.so.preload"] == "ro"
    assert inside["mounts"][inside["preload"]] == "ro"
    assert inside["shim"]
    assert not inside["limits_writable"]
    assert inside["usage_writable"]
    if name in CLIENT_PODS:
        assert inside["env"]["CUDA_MPS_PIPE_DIRECTORY"] in inside["mounts"]
    told = {variable for variable in inside["env"] if variable.startswith("CUDA_MPS_")}
    if name in VGPU_PODS:  # the shim holds it, whoever it shares its GPU with
        assert told == ({"CUDA_MPS_PIPE_DIRECTORY"} if name in CLIENT_PODS else set())
    if name in MPS_PODS:
        assert inside["env"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == str(percent)
        mebibytes = int(inside["env"]["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"][len("0=") : -1])
        assert mebibytes << 20 >= limit_bytes


def test_the_examples_are_what_they_say(node: RealNode) -> None:
    hardened = node.execute("vgpu-hardened", LOOK_INSIDE)
    host_ipc = node.execute("vgpu-host-ipc", LOOK_INSIDE)
    plain = node.execute("vgpu-30", LOOK_INSIDE)

    assert (hardened["uid"], hardened["root_writable"]) == (1000, False)
    assert (plain["uid"], plain["root_writable"]) == (0, True)
    host = node.inside("/dev/shm").stat().st_dev
    assert host_ipc["shared_memory"] == host != plain["shared_memory"]


def test_two_pods_share_one_gpu(node: RealNode) -> None:
    assert node.wait_said("vgpu-30", "view")["uuid"] == node.wait_said("vgpu-70", "view")["uuid"]


def test_a_second_process_of_a_full_container_is_refused(node: RealNode) -> None:
    assert node.execute("vgpu-30", SECOND_PROCESS) == OUT_OF_MEMORY


def test_a_pod_that_asks_for_nothing_gets_nothing(node: RealNode) -> None:
    node.put(idle_pod("plain"))
    mounts = node.execute("plain", "import json; print(json.dumps(open('/proc/mounts').read()))")
    shim = node.execute("plain", "import json; print(json.dumps(open('/proc/self/maps').read()))")

    assert "vgpu" not in mounts + shim
    assert "ld.so.preload" not in mounts
    node.delete("plain")


def test_the_command_line_lists_every_pod(node: RealNode) -> None:
    listed = {row["pod"]: row for row in yaml.safe_load(node.vgpuctl("ps", "-o", "json"))}

    assert set(listed) == {f"{name}-node" for name in PODS}


def test_a_pod_that_no_gpu_can_hold_fails_with_our_sentence(node: RealNode) -> None:
    pod = example("vgpu-30")
    pod["metadata"]["name"] = "too-much"
    (container,) = pod["spec"]["containers"]
    # Free in sum: 55 % of the small GPU, and memory of the large one.
    container["resources"]["limits"] = {"nvidia.com/vgpu-core": 50, "nvidia.com/vgpu-memory": 20}

    node.put(pod)
    status = node.wait_judged("too-much")

    assert status["reason"] == "UnexpectedAdmissionError"
    assert "the two halves of a slice are never split over GPUs" in status["message"], status
    node.delete("too-much")
    for name in PODS:
        assert "running" in node.container(name)["state"], name


def test_pods_do_not_notice_a_killed_kubelet(node: RealNode) -> None:
    # Before any container was started again: of several of one name the kubelet takes any for the
    # one that its pod has, and rejects the pod if that one has ended.
    containers = {name: node.container(name)["containerID"] for name in PODS}

    node.kill("kubelet")
    assert node.execute_by_id(containers["vgpu-30"], SECOND_PROCESS) == OUT_OF_MEMORY
    node.start_kubelet()

    wait_until(
        lambda: {name: node.container(name).get("containerID") for name in PODS} == containers,
        "the kubelet knows its containers again",
    )


def test_restarted_containers_keep_their_limits(node: RealNode) -> None:
    node.restart_containers(*PODS)

    for name in PODS:
        assert_slice_holds(node, name)


@pytest.mark.long
def test_pods_do_not_notice_a_killed_agent_but_start_only_with_one(node: RealNode) -> None:
    others = [name for name in PODS if name != "vgpu-hardened"]
    containers = {name: node.container(name)["containerID"] for name in others}
    restarts = node.restarts("vgpu-hardened")

    node.kill("agent")
    try:
        assert node.execute("vgpu-30", SECOND_PROCESS) == OUT_OF_MEMORY
        node.end_container("vgpu-hardened")
        assert "PreStartContainer" in node.wait_refused_start("vgpu-hardened")
    finally:
        node.start_agent()
    node.wait_restarted(restarts)
    assert_slice_holds(node, "vgpu-hardened")
    assert {name: node.container(name)["containerID"] for name in others} == containers


def test_an_edited_config_holds_in_the_running_container(node: RealNode) -> None:
    rounds = sum(line["phase"] == "view" for line in node.said("vgpu-30"))
    container = node.container("vgpu-30")["containerID"]
    rule = {"match": {"namespace": "default", "container": "batch"}, "core": 10, "memory": "8Gi"}

    node.change_config(agent_config(rule))

    assert_slice_holds(node, "vgpu-30", rounds, 8 * GIB)
    assert node.wait_said("vgpu-30", "compute", rounds)["share_percent"] <= 10 + SHARE_POINTS
    node.change_config(agent_config())
    assert_slice_holds(node, "vgpu-30", rounds + 1)
    assert node.container("vgpu-30")["containerID"] == container


@pytest.mark.long
def test_containers_that_start_after_the_run_directory_was_emptied(node: RealNode) -> None:
    run_dir = node.inside("/run/vgpu")
    clients = node.restarts(*CLIENT_PODS)
    node.stop("mps")  # its pipes are there, too: as after a reboot it begins again
    while entries := list(run_dir.iterdir()):
        for entry in entries:  # while the agent renames and makes spare files
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()
    node.start_mps()

    late = example("vgpu-30")
    late["metadata"]["name"] = "late"
    (container,) = late["spec"]["containers"]
    container["resources"]["limits"] = {"nvidia.com/vgpu-core": 5, "nvidia.com/vgpu-memory": 1}
    node.put(late)
    view = node.wait_said("late", "view")
    assert view["cuda_total_bytes"] == GIB
    node.delete("late")
    node.wait_restarted(clients)  # they have ended with their daemon
    for name in CLIENT_PODS:
        node.wait_said(name, "memory")
    node.restart_containers(*PODS[:2])

    for name in PODS:
        assert_slice_holds(node, name)

    found = {
        region.read_limits(d).limits.devices[0].memory_limit_bytes
        for d in (run_dir / "allocations").iterdir()
    }
    assert found == {asked(example(name))[1] for name in PODS}


def test_a_deleted_pod_leaves_its_units_to_the_next_to_the_byte(node: RealNode) -> None:
    pod = example("vgpu-70")
    gpu = node.wait_said("vgpu-70", "view")["uuid"]
    pod["metadata"]["name"] = "next"
    (container,) = pod["spec"]["containers"]
    container["command"] = ["python3", "-c", TO_THE_BYTE]

    node.delete("vgpu-70")
    node.put(pod)

    said = node.wait_said("next", "bytes")
    assert said["total"] == asked(pod)[1]
    assert said["left"] == 0
    assert said["codes"] == [0, OUT_OF_MEMORY, OUT_OF_MEMORY, 0]
    assert node.execute("next", LOOK_INSIDE)["env"]["NVIDIA_VISIBLE_DEVICES"] == gpu


def test_a_test_run_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    base = tmp_path / f"vgpu-node-{os.getpid()}"
    base.mkdir()
    run = subprocess.Popen(
        [sys.executable, "-c", MAKE_A_NODE, str(base)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        stdout=subprocess.PIPE,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == b"made\n"
    assert surroundings.processes_naming(base.name)

    run.kill()
    run.communicate()

    wait_until(lambda: not surroundings.processes_naming(base.name), "end of every process")
    wait_until(lambda: not base.exists(), "end of its files")
    assert not [found for found in surroundings.look() if base.name in found]


def test_a_node_that_is_killed_leaves_nothing_behind(node: RealNode, before: set[str]) -> None:
    node.end(kill=True)

    wait_until(lambda: not surroundings.processes_naming(node.base.name), "end of every process")
    assert before ^ surroundings.look() == set()
