"""`vgpuctl doctor` as typed, on a simulated machine with the tree of a node next to it.

Each finding is made by what makes it on a node, and gone once that is put right.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from libvgpu.allocation_dirs import META
from support import CLIENT_PATH, ROOT
from support.lines import expect
from support.node.doctor import Finding, doctor, of, put
from support.node.simulated import CONFIG, SimulatedNode
from support.waiting import PATIENCE_S, wait_until

KUBELET = "var/lib/kubelet/config.yaml"
CONTAINERD, CRIO = "etc/containerd/config.toml", "etc/crio/crio.conf"
PLUGIN = "plugins.'io.containerd.grpc.v1.cri'"
NVIDIA = f"""\
[{PLUGIN}.containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""
DEFAULT = f'[{PLUGIN}.containerd]\ndefault_runtime_name = "nvidia"\n'


@pytest.fixture
def node(short_path: Path) -> Iterator[SimulatedNode]:
    with SimulatedNode(short_path, "t4") as node:
        yield node


def run_on(node: SimulatedNode, *options: str, **more: object) -> list[Finding]:
    environment = node.machine.environment(os.environ)
    return doctor(node.base, *options, env=environment, **more)  # type: ignore[arg-type]


# ---- the container runtime --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "level", "said", "fix"),
    [
        ({CONTAINERD: "version = 2\n"}, "warn", "whether it does CDI is not known", "--version"),
        (
            {CONTAINERD: f"version = 2\n[{PLUGIN}]\nenable_cdi = false\n"},
            "fail",
            "has neither CDI nor a runtime of NVIDIA's",
            "nvidia-ctk runtime configure --runtime=containerd --set-as-default && systemctl",
        ),
        ({CONTAINERD: f"version = 2\n[{PLUGIN}]\nenable_cdi = true\n"}, "ok", "by CDI", ""),
        (
            {CONTAINERD: f"version = 2\n{NVIDIA}"},
            "warn",
            "pods without a runtime class start without a GPU",
            "runtimeClassName: nvidia",
        ),
        ({CONTAINERD: f"version = 2\n{NVIDIA}{DEFAULT}"}, "ok", "default runtime nvidia", ""),
        ({CONTAINERD: "version = 3\n"}, "ok", "containerd 2.0", ""),
        ({CRIO: "[crio.runtime]\n"}, "ok", "cri-o", ""),
    ],
)
def test_a_runtime_without_the_gpu(
    tmp_path: Path, files: Mapping[str, str], level: str, said: str, fix: str
) -> None:
    (tmp_path / "k").mkdir()
    tree = tmp_path / "root"
    for name, text in files.items():
        put(tree, name, text)
    socket = "crio/crio.sock" if CRIO in files else "containerd/containerd.sock"
    put(tree, KUBELET, f"containerRuntimeEndpoint: unix:///run/{socket}\n")

    (found,) = of(doctor(tmp_path, f"--host-root={tree}"), "runtime")

    assert found["level"] == level, found
    assert said in found["message"]
    assert fix in found["fix"]


def test_a_machine_without_any_runtime(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    (tmp_path / "root").mkdir()

    (found,) = of(doctor(tmp_path, f"--host-root={tmp_path / 'root'}"), "runtime")

    assert found["level"] == "warn"
    assert "is not known" in found["message"]


def test_a_container_that_does_not_see_the_node(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    in_pod = {**os.environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    in_pod.pop("VGPU_HOST_ROOT", None)

    (found,) = of(doctor(tmp_path, env=in_pod), "runtime")

    assert found["level"] == "warn"
    assert "hostPID: true and privileged: true" in found["fix"]


def test_what_the_running_agent_answers_is_held_against_the_runtime(
    node: SimulatedNode, tmp_path: Path
) -> None:
    put(tmp_path, KUBELET, "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n")
    put(tmp_path, CONTAINERD, f"version = 2\n{NVIDIA}{DEFAULT}[{PLUGIN}]\nenable_cdi = false\n")
    config = node.base / "config.yaml"
    config.write_text(CONFIG + "flags: {plugin: {deviceListStrategy: envvar}}\n")
    node.stop_agent()
    (found,) = of(run_on(node, f"--host-root={tmp_path}"), "runtime")
    assert found["level"] == "ok"
    node.start_agent()
    (found,) = of(run_on(node, f"--host-root={tmp_path}"), "runtime")
    assert found["level"] == "ok"

    plugin = f"deviceListStrategy: cdi-cri, cdiSpecDir: {tmp_path / 'cdi'}"
    config.write_text(CONFIG + f"flags: {{plugin: {{{plugin}}}}}\n")
    node.stop_agent()
    (down,) = of(run_on(node, f"--host-root={tmp_path}"), "runtime")
    node.start_agent()
    (up,) = of(run_on(node, f"--host-root={tmp_path}"), "runtime")

    assert up == down
    assert up["level"] == "fail"
    assert "has no CDI, and deviceListStrategy is cdi-cri" in up["message"]


# ---- the driver -------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "level"), [(11030, "fail"), (11040, "ok"), (13000, "ok")])
def test_a_driver_that_is_too_old(tmp_path: Path, version: int, level: str) -> None:
    source = tmp_path / "old.c"
    source.write_text(f"int cuDriverGetVersion(int *v) {{ *v = {version}; return 0; }}\n")
    subprocess.run(
        ["gcc", "-shared", "-o", str(tmp_path / "libcuda.so.1"), str(source)], check=True
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}

    (found,) = of(doctor(tmp_path, env=environment), "driver")

    assert found["level"] == level
    if level == "fail":
        assert "has CUDA 11.3, and the shim is made for 11.4 and newer" in found["message"]
        assert "branch 470" in found["fix"]


def test_a_module_and_libraries_of_two_drivers(tmp_path: Path) -> None:
    told = (
        "NVRM version: NVIDIA UNIX {}  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12\n"
    )
    put(tmp_path, "proc/driver/nvidia/version", told.format("x86_64 Kernel Module"))
    put(tmp_path, "usr/lib64/libcuda.so.550.54.14", "ELF")
    (tmp_path / "usr/lib64/libcuda.so.1").symlink_to("libcuda.so.550.54.14")

    (found,) = of(doctor(tmp_path, f"--host-root={tmp_path}"), "driver-match")

    assert found["level"] == "fail"
    assert "module 535.104.05, and the libraries on this node are of 550.54.14" in found["message"]
    assert "modprobe nvidia" in found["fix"]

    # The driver of a container next to what an install of before has left.
    put(tmp_path, "run/nvidia/driver/usr/lib64/libcuda.so.535.104.05", "ELF")
    (tmp_path / "run/nvidia/driver/usr/lib64/libcuda.so.1").symlink_to("libcuda.so.535.104.05")
    assert of(doctor(tmp_path, f"--host-root={tmp_path}"), "driver-match") == []

    open_module = told.format("Open Kernel Module for x86_64").replace("535.104.05", "550.54.14")
    put(tmp_path, "proc/driver/nvidia/version", open_module)
    assert of(doctor(tmp_path, f"--host-root={tmp_path}"), "driver-match") == []


# ---- SELinux ----------------------------------------------------------------------------------


def label(path: Path, kind: str) -> None:
    os.setxattr(path, "security.selinux", f"system_u:object_r:{kind}:s0\0".encode())


def test_labels_that_keep_containers_from_their_slice(node: SimulatedNode, tmp_path: Path) -> None:
    node.admit("train", vgpu_core=30, vgpu_memory=4)
    put(tmp_path, "sys/fs/selinux/enforce", "0")
    assert of(run_on(node, f"--host-root={tmp_path}"), "selinux") == []

    put(tmp_path, "sys/fs/selinux/enforce", "1")
    (found,) = of(run_on(node, f"--host-root={tmp_path}"), "selinux")
    assert found["level"] == "fail"
    assert "containers may not open" in found["message"]
    assert f"{node.base}/r/allocations/" in found["fix"] and "chcon -R" in found["fix"]

    slices = [*(node.base / "r/allocations").iterdir(), *(node.base / "s/lib").iterdir()]
    try:
        for path in (each for top in slices for each in top.iterdir()):
            label(path, "container_file_t")
    except PermissionError:
        pytest.skip("this user may not set labels")
    (found,) = of(run_on(node, f"--host-root={tmp_path}"), "selinux")
    assert found["level"] == "ok", found
    assert "5 files" in found["message"]

    # What clients of MPS connect to, and what of MPS no container has.
    put(node.base / "r/mps", "wanted", "{}")
    pipe = node.base / "r/mps/GPU-0/pipe"
    put(pipe, "control", "")
    label(pipe, "container_file_t")
    (found,) = of(run_on(node, f"--host-root={tmp_path}"), "selinux")
    assert f"may not open {pipe / 'control'} (none): " in found["message"]
    label(pipe / "control", "container_file_t")

    # Read-only for containers is enough for what they read, and not for what they write.
    label(slices[0] / "limits", "container_ro_file_t")
    label(slices[0] / "usage", "container_ro_file_t")
    (found,) = of(run_on(node, f"--host-root={tmp_path}"), "selinux")
    assert found["level"] == "fail"
    assert f"{slices[0] / 'usage'} (system_u:object_r:container_ro_file_t:s0)" in found["message"]
    assert "limits" not in found["message"]


# ---- the config of an agent that is down ------------------------------------------------------


def test_the_config_of_an_agent_that_is_down(node: SimulatedNode) -> None:
    config, kept = node.base / "config.yaml", node.base / "s/accepted-config.json"
    wait_until(kept.exists)
    node.stop_agent()

    (good,) = of(run_on(node), "config")
    assert good["message"] == f"{config} is good; the agent would start with it"

    config.write_text(CONFIG.replace("family:", "familly:"))
    (bad,) = of(run_on(node), "config")
    assert bad["level"] == "fail"
    assert "unknown key 'familly'" in bad["message"]
    assert f"would start with the config that was accepted before, from {kept}" in bad["message"]
    assert bad["fix"] == (
        f"did you mean 'family'?; check it with: vgpuctl config validate {config}"
    )

    whole = kept.read_text()
    kept.write_text(whole.replace("memoryUnit", "memoryUnix"))
    (worse,) = of(run_on(node, f"--config={config}"), "config")
    assert worse["level"] == "fail"
    assert "the config kept from before cannot be used" in worse["message"]
    assert "the agent does not start with it" in worse["message"]
    (damaged,) = of(run_on(node, f"--config={config}"), "kept-config")
    assert "its hash does not match" in damaged["message"]

    kept.unlink()
    (alone,) = of(run_on(node, f"--config={config}"), "config")
    assert f"{kept} has no earlier config" in alone["message"]
    (unknown,) = of(run_on(node), "config")
    assert (unknown["level"], "--config FILE" in unknown["fix"]) == ("warn", True)

    config.write_text(CONFIG)
    node.start_agent()
    wait_until(kept.exists)
    assert of(run_on(node), "kept-config") == []
    kept.write_text("{")
    (damaged,) = of(run_on(node), "kept-config")
    assert damaged["level"] == "warn"
    assert "restart the agent while the config is good" in damaged["fix"]


def test_a_config_that_is_not_to_be_seen_here(node: SimulatedNode) -> None:
    kept = node.base / "s/accepted-config.json"
    wait_until(kept.exists)
    node.stop_agent()
    (node.base / "config.yaml").rename(node.base / "elsewhere.yaml")

    (found,) = of(run_on(node), "config")
    assert found["level"] == "warn"
    assert "the present one cannot be seen here" in found["message"]
    assert "--config" in found["fix"]
    (found,) = of(run_on(node, f"--config={node.base / 'elsewhere.yaml'}"), "config")
    assert found["level"] == "ok"


def test_another_plugin_is_told_while_the_agent_is_down(node: SimulatedNode) -> None:
    node.stop_agent()
    checkpoint = node.base / "k/device-plugins/kubelet_internal_checkpoint"
    gpu = node.machine.devices[0].uuid
    text = {"Data": {"PodDeviceEntries": None, "RegisteredDevices": {"nvidia.com/gpu": [gpu]}}}
    checkpoint.write_text(json.dumps(text))

    (found,) = of(run_on(node), "other-plugins")
    assert found["level"] == "fail"
    assert f"nvidia.com/gpu has {gpu}" in found["message"]


def test_mig_devices_of_another_layout_are_told_while_the_agent_is_down(
    short_path: Path,
) -> None:
    config = CONFIG + "mig: [{profiles: {1g.5gb: 7}}]\n"
    with SimulatedNode(short_path, "a100-40g/mig=2g.10gb*3", config, []) as node:
        (up,) = wait_until(lambda: of(run_on(node), "mig"))
        wait_until((node.base / "s/accepted-config.json").exists, "the config is kept")
        node.stop_agent()
        (down,) = of(run_on(node), "mig")

    assert down["message"] == up["message"]
    assert "is not cut as the config says" in down["message"]
    assert f"vgpuctl mig apply {short_path}/config.yaml" in down["fix"]


# ---- what the dead left, and room -------------------------------------------------------------


def test_leftovers_of_the_dead(node: SimulatedNode) -> None:
    node.admit("train", vgpu_core=30, vgpu_memory=4)
    allocations = node.base / "r/allocations"
    wait_until(lambda: any((each / META).exists() for each in allocations.iterdir()))
    (mine,) = allocations.iterdir()
    (whole,) = of(run_on(node), "leftovers")
    assert whole["level"] == "ok"

    # A slice that nobody has, as after a crash.
    lost = allocations / "0badc0de0bad"
    shutil.copytree(mine, lost, ignore=shutil.ignore_patterns("ring"))
    meta = json.loads((lost / META).read_text())
    (lost / META).write_text(json.dumps(meta | {"allocation_id": lost.name}))
    assert of(run_on(node), "leftovers")[0]["level"] == "ok"  # it may have come just now
    meta |= {"allocation_id": lost.name, "created_at": time.time() - 3600}
    (lost / META).write_text(json.dumps(meta))
    (found,) = of(run_on(node), "leftovers")
    assert found["level"] == "warn"
    assert f"1 slice that no container has, as the agent says: {lost.name}" in found["message"]

    node.stop_agent()
    (found,) = of(run_on(node), "leftovers")
    assert "as the kubelet says" in found["message"] and lost.name in found["message"]
    assert mine.name not in found["message"]
    assert found["fix"] == "start the agent: it removes them"
    node.start_agent()
    wait_until(lambda: not lost.exists(), "the agent removes it, as doctor says")
    assert of(run_on(node), "leftovers")[0]["level"] == "ok"

    # One that was never finished.
    half = allocations / "half-made"
    half.mkdir()
    assert of(run_on(node), "leftovers")[0]["level"] == "ok"  # it may be under way
    os.utime(half, (1, 1))
    (found,) = of(run_on(node), "leftovers")
    assert (found["level"], found["fix"]) == ("warn", f"rm -r {half}")
    half.rmdir()


def test_the_slice_of_a_run_that_was_killed(node: SimulatedNode) -> None:
    environment = node.machine.environment(os.environ) | {"PYTHONPATH": CLIENT_PATH}
    run = [sys.executable, "-m", "vgpuctl", "run", f"--run-dir={node.base / 'r'}"]
    program = subprocess.Popen(
        [*run, "--memory=1GiB", "--", "sh", "-c", "echo ready; exec cat"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    expect(program, "ready")
    assert of(run_on(node), "leftovers")[0]["level"] == "ok"
    program.send_signal(signal.SIGKILL)
    program.communicate()

    (found,) = of(run_on(node), "leftovers")
    assert "1 slices of a vgpuctl run that was killed" in found["message"]
    command = found["fix"].partition(": ")[2].split()
    assert command[:2] == ["vgpuctl", "run"]
    subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, check=True, timeout=PATIENCE_S
    )
    assert of(run_on(node), "leftovers") == []


def test_a_state_directory_that_is_full(node: SimulatedNode) -> None:
    (node.base / "full").mkdir(exist_ok=True)
    probe = ["unshare", "-m", "mount", "-t", "tmpfs", "none", str(node.base / "full")]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")

    def found(options: str) -> Finding:
        (one,) = of(run_on(node, mounting=options, state_dir="full"), "state directory")
        return one

    full = found("size=1m")
    assert full["level"] == "fail"
    assert "so the agent cannot note a slice" in full["message"]
    assert found("size=16m")["level"] == "warn"
    assert found("size=80m")["level"] == "ok"
    assert "no inodes left" in found("size=80m,nr_inodes=2")["message"]
    assert "read-only" in found("size=80m,ro")["message"]


# ---- MPS --------------------------------------------------------------------------------------


def test_an_mps_daemon_of_somebody_else(node: SimulatedNode, tmp_path: Path) -> None:
    daemon = tmp_path / "nvidia-cuda-mps-control"
    shutil.copy(shutil.which("sleep") or "", daemon)
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": "/tmp/theirs"}
    process = subprocess.Popen([daemon, "60"], env=environment)

    def told() -> list[Finding]:
        """Daemons of other tests are strangers, too."""
        return [
            each for each in of(run_on(node), "mps") if f"process {process.pid}," in each["message"]
        ]

    try:
        (found,) = wait_until(told)
    finally:
        process.kill()
        process.wait()

    assert found["level"] == "warn"
    assert f"process {process.pid}, pipe directory /tmp/theirs" in found["message"]
    assert "echo quit | CUDA_MPS_PIPE_DIRECTORY=/tmp/theirs" in found["fix"]
    assert told() == []
