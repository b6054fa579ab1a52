"""The container stand-in: own root file system as root, translated paths otherwise."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.testing import ContainerManifest, PodManifest, RunOptions
from deviceplugin.testing.merge import MountOption
from libvgpu import region
from libvgpu.errors import VgpuError
from libvgpu.sim import PROFILES, Machine
from support.waiting import PATIENCE_S
from vgpuctl.demo.children import Child, Children, tool_environment
from vgpuctl.demo.container import Plan, can_isolate, plan, translate
from vgpuctl.demo.image import Image
from vgpuctl.demo.rootfs import Bind
from vgpuctl.demo.workspace import Workspace, sweep

needs_namespaces = pytest.mark.skipif(
    not can_isolate(tool_environment()), reason="needs root and CAP_SYS_ADMIN (mount namespaces)"
)
POD_USER = 1000
SYSTEM_PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))

# What the container says about itself.
PROBE = """
import json, os, signal
status = dict(l.split(":", 1) for l in open("/proc/self/status").read().splitlines())
def read(path):
    try:
        return open(path).read()
    except OSError:
        return None
def can_write(path):
    try:
        open(path, "r+b").close()
        return True
    except OSError:
        return False
def ring(path):
    try:
        return os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), b"r")
    except OSError as error:
        return error.strerror
print(json.dumps({
    "ids": [os.getuid(), os.getgid(), os.getgroups()],
    "no_new_privs": status["NoNewPrivs"].strip(),
    "bounding": int(status["CapBnd"], 16),
    "etc": sorted(os.listdir("/etc")),
    "preload": read("/etc/ld.so.preload"),
    "limits": read(os.environ["LIMITS"]),
    "limits_writable": can_write("/run/vgpu/limits"),
    "usage_writable": can_write("/run/vgpu/usage"),
    "rang": ring("/run/vgpu/ring"),
    "root": sorted(os.listdir("/")),
    "home_of_root": os.path.exists("/root/.profile"),
    "env": dict(os.environ),
}), flush=True)
signal.pause()
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path) as made:
        yield made


@pytest.fixture
def children(workspace: Workspace) -> Iterator[Children]:
    made = Children(workspace)
    yield made
    made.end_all()


@pytest.fixture
def answer(workspace: Workspace) -> RunOptions:
    """What an agent would answer, its files under a directory that only we can enter."""
    slice_directory = workspace.path("slice")
    for name, text, mode in (("limits", "the limits", 0o444), ("usage", "…" * 9, 0o666)):
        (slice_directory / name).write_text(text)
        (slice_directory / name).chmod(mode)
    region.make_ring(slice_directory)
    (slice_directory / "preload").write_text("/run/vgpu/lib/1/libnothing.so\n")
    (slice_directory / "lib").mkdir()
    shutil.copy("/bin/true", slice_directory / "lib" / "libnothing.so")  # never loaded: not ELF .so
    mounts = (
        MountOption("/run/vgpu/limits", str(slice_directory / "limits"), True),
        MountOption("/run/vgpu/usage", str(slice_directory / "usage"), False),
        MountOption("/run/vgpu/ring", str(slice_directory / "ring"), False),
        MountOption("/etc/ld.so.preload", str(slice_directory / "preload"), True),
    )
    return RunOptions(
        envs={"NVIDIA_VISIBLE_DEVICES": "GPU-1", "FROM": "plugin", "LIMITS": "/run/vgpu/limits"},
        mounts=mounts,
        devices=(),
        annotations={},
        cdi_devices=(),
        conflicts=(),
    )


def image(workspace: Workspace, *extra: Bind) -> Image:
    app = workspace.path("app")
    (app / "probe.py").write_text(PROBE)
    (app / "probe.py").chmod(0o644)
    app.chmod(0o755)
    prefix = os.path.realpath(sys.base_prefix)
    python = () if prefix.startswith("/usr") else (Bind(prefix, prefix),)
    path = f"{os.path.dirname(SYSTEM_PYTHON)}:/usr/bin:/bin"
    return Image((Bind(str(app), "/app"), *extra), python, {"PATH": path})


def manifest(user: int | None = POD_USER, **env: str) -> tuple[PodManifest, ContainerManifest]:
    container = ContainerManifest(
        "c", command=(SYSTEM_PYTHON, "/app/probe.py"), env=env, run_as_user=user
    )
    return PodManifest("p", (container,)), container


def start(
    children: Children,
    workspace: Workspace,
    answer: RunOptions,
    mountpoint: Path | None,
    user: int | None = POD_USER,
    **env: str,
) -> tuple[Plan, Child, dict[str, Any]]:
    pod, container = manifest(user, **env)
    machine = workspace.path("machine")
    made = plan(pod, container, answer, image(workspace), machine, mountpoint)
    child = children.start(made.order, read_output=True)
    try:
        return made, child, json.loads(child.lines.get(timeout=PATIENCE_S))
    except Exception:
        pytest.fail(f"the container said nothing: {child.last_words()}")


def etc_snapshot() -> dict[str, tuple[int, int]]:
    found = {}
    for name in sorted(os.listdir("/etc")):
        status = os.lstat(f"/etc/{name}")
        found[name] = (status.st_ino, status.st_mtime_ns)
    return found


@needs_namespaces
def test_a_pods_user_runs_and_rings_from_a_tree_only_root_can_enter(
    children: Children, workspace: Workspace, answer: RunOptions
) -> None:
    assert workspace.directory.stat().st_mode & 0o077 == 0
    before, mountpoint = etc_snapshot(), workspace.path("root")
    host = next(m.host_path for m in answer.mounts if m.container_path == "/run/vgpu/ring")
    listener = os.open(host, os.O_RDONLY | os.O_NONBLOCK)

    _, child, inside = start(children, workspace, answer, mountpoint)

    assert (inside["rang"], os.read(listener, 16)) == (1, b"r")
    os.close(listener)
    assert inside["ids"] == [POD_USER, POD_USER, []]
    assert inside["preload"] == "/run/vgpu/lib/1/libnothing.so\n"
    assert inside["limits"] == "the limits"
    assert inside["usage_writable"] is True
    assert inside["limits_writable"] is False
    assert inside["no_new_privs"] == "1"
    assert inside["home_of_root"] is False
    assert set(inside["etc"]) >= {"ld.so.preload", "passwd", "group"}
    assert "shadow" not in inside["etc"]
    assert etc_snapshot() == before
    # Its mounts are its own, and vanish with it.
    assert str(mountpoint) not in Path("/proc/self/mountinfo").read_text()
    child.process.kill()
    child.process.wait()
    assert list(mountpoint.iterdir()) == []


@needs_namespaces
def test_root_in_a_container_cannot_write_limits_or_mount(
    children: Children, workspace: Workspace, answer: RunOptions
) -> None:
    _, _, inside = start(children, workspace, answer, workspace.path("root"), user=None)

    cap_sys_admin = 1 << 21
    assert inside["ids"][0] == 0
    assert inside["limits_writable"] is False
    assert inside["bounding"] & cap_sys_admin == 0


def test_a_pods_own_environment_wins_over_the_plugins(
    workspace: Workspace, answer: RunOptions
) -> None:
    pod, container = manifest(FROM="pod")

    made = plan(pod, container, answer, image(workspace), workspace.directory, None)

    assert made.order.env["FROM"] == "pod"
    assert made.order.env["VGPU_SIM_VISIBLE"] == "GPU-1"


LIST = "/var/run/nvidia-container-devices"
FORMS: dict[str, tuple[dict[str, object], list[int] | None]] = {
    "a variable": ({"envs": {"NVIDIA_VISIBLE_DEVICES": "1"}}, [1]),
    "several": ({"envs": {"NVIDIA_VISIBLE_DEVICES": "1,0"}}, [1, 0]),
    "all": ({"envs": {"NVIDIA_VISIBLE_DEVICES": "all"}}, None),
    "none": ({"envs": {"NVIDIA_VISIBLE_DEVICES": "void"}}, []),
    "mounts": (
        {"envs": {"NVIDIA_VISIBLE_DEVICES": LIST},
         "mounts": (MountOption(f"{LIST}/1", "/dev/null", False),)}, [1],
    ),
    "cdi": ({"cdi_devices": ("nvidia.com/gpu=1",)}, [1]),
    "an annotation": (
        {"annotations": {"nvidia.cdi.k8s.io/vgpu_x": "nvidia.com/gpu=1,nvidia.com/gpu=0"}}, [1, 0],
    ),
    "both of cdi": (
        {"envs": {"NVIDIA_VISIBLE_DEVICES": "all"}, "cdi_devices": ("nvidia.com/gpu=1",),
         "annotations": {"cdi.k8s.io/vgpu_x": "nvidia.com/gpu=1"}}, [1],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "expected"), FORMS.values(), ids=FORMS.keys())
def test_gpus_are_made_visible_in_every_form_of_an_answer(
    workspace: Workspace, answer: RunOptions, parts: dict[str, Any], expected: list[int] | None
) -> None:
    machine = Machine.create([PROFILES["t4"]] * 2, workspace.directory / "machine")
    told = replace(answer, **{"envs": {}, "mounts": (), **parts})

    made = plan(*manifest(), told, image(workspace), machine.directory, None)

    uuids = None if expected is None else ",".join(machine.devices[i].uuid for i in expected)
    assert made.order.env.get("VGPU_SIM_VISIBLE") == uuids


def test_a_gpu_that_is_not_there_and_devices_that_are_none_are_named(
    workspace: Workspace, answer: RunOptions
) -> None:
    machine = Machine.create([PROFILES["t4"]], workspace.directory / "machine")
    pod, container = manifest()
    beyond = replace(answer, cdi_devices=("nvidia.com/gpu=1",))
    other = replace(answer, cdi_devices=("nvidia.com/gds=all",))

    with pytest.raises(VgpuError, match="GPU 1 is unknown: this node has 1"):
        plan(pod, container, beyond, image(workspace), machine.directory, None)
    made = plan(pod, container, other, image(workspace), machine.directory, None)

    assert "CDI device nvidia.com/gds=all left out (no CDI files here)" in made.notes


def test_without_namespaces_container_paths_become_host_paths(
    children: Children, workspace: Workspace, answer: RunOptions
) -> None:
    made, _, inside = start(children, workspace, with_preload(answer, workspace), None, user=None)

    slice_directory = workspace.directory / "slice"
    assert made.order.env["LIMITS"] == str(slice_directory / "limits")
    assert made.order.env["VGPU_DIR"] == str(slice_directory)
    assert made.order.env["LD_PRELOAD"] == str(slice_directory / "lib" / "libnothing.so")
    assert made.order.argv[1] == str(workspace.directory / "app" / "probe.py")
    assert inside["limits"] == "the limits"
    assert "paths translated (no mount namespace)" in made.notes


def with_preload(answer: RunOptions, workspace: Workspace) -> RunOptions:
    library = str(workspace.directory / "slice" / "lib" / "libnothing.so")
    mount = MountOption("/run/vgpu/lib/1/libnothing.so", library, True)
    return RunOptions(answer.envs, (*answer.mounts, mount), (), {}, (), ())


def test_a_user_that_cannot_be_taken_is_said(workspace: Workspace, answer: RunOptions) -> None:
    pod, container = manifest(user=os.getuid() + 1)

    made = plan(pod, container, answer, image(workspace), workspace.directory, None)

    assert f"runs as user {os.getuid()}, not {os.getuid() + 1}" in made.notes


def test_a_missing_host_path_of_the_answer_is_refused(
    workspace: Workspace, answer: RunOptions
) -> None:
    os.unlink(answer.mounts[0].host_path)
    pod, container = manifest()

    with pytest.raises(VgpuError, match=r"the agent mounts .*limits: not there"):
        plan(pod, container, answer, image(workspace), workspace.directory, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/run/vgpu/mps", "/host/mps"),
        ("/run/vgpu/mps/control", "/host/mps/control"),
        ("/run/vgpu/mps:/app", "/host/mps:/host/app"),
        ("/run/vgpu/mps2", "/run/vgpu/mps2"),
        ("/home/app", "/home/app"),
        ("a=/app,b=/app/x", "a=/host/app,b=/host/app/x"),
        ("nothing", "nothing"),
    ],
)
def test_only_whole_path_components_are_translated(text: str, expected: str) -> None:
    hosts = {"/run/vgpu/mps": "/host/mps", "/app": "/host/app"}

    assert translate(text, hosts) == expected


def test_the_sweep_kills_what_is_recorded_but_never_a_reused_pid(tmp_path: Path) -> None:
    stray, other = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    try:
        dead = Workspace(tmp_path)
        dead.record("stray", stray.pid)
        with open(dead.directory / "processes", "a") as file:
            file.write(f"{other.pid} 1 other\n")  # same number, another start: another process
        os.close(dead._lock)  # as the kernel does when its demo dies

        sweep(tmp_path)

        assert stray.wait(PATIENCE_S) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (stray, other):
            process.kill()
            process.wait()
