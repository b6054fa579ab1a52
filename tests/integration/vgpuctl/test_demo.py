"""The demo as a user runs it: it holds, and however it ends it leaves nothing behind.

Each run takes 10 to 30 seconds, most of it simulated kernels.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from libvgpu.artifacts import PACKAGE
from support.ended import run_to_end
from support.waiting import PATIENCE_S, wait_until
from vgpuctl.demo.children import Children, tool_environment
from vgpuctl.demo.container import can_isolate
from vgpuctl.demo.launch import Order
from vgpuctl.demo.rootfs import Bind
from vgpuctl.demo.workspace import Workspace, sweep

#: What the demo says of time holds on a machine that does nothing else.
SAYS_OF_TIME = re.compile(r": (compute share|seen by the process): ")
ENDS_WITHIN_S = 2 * PATIENCE_S  # however it ends, on a machine with other work
ORDINARY_USER = 1000
LEAST_CHECKS = 30
PODS = ("mps-half/inference", "vgpu-30/batch", "vgpu-70/training")
CHILDREN = ("node agent", "MPS daemons", *PODS)

pytestmark = pytest.mark.timeout(ENDS_WITHIN_S + 3 * PATIENCE_S)


class Demo:
    """A running ``vgpuctl demo`` whose temporary directory is ``base``."""

    def __init__(self, base: Path, checkout: Path = PACKAGE.parent) -> None:
        self.base = base
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vgpuctl", "demo"],
            env=os.environ | {"TMPDIR": str(base), "NO_COLOR": "1", "PYTHONPATH": str(checkout)},
            cwd=checkout,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, within_s: float = ENDS_WITHIN_S) -> tuple[int, str, str]:
        """Waits for the end; returns status, stdout and stderr."""
        output, talk = self.process.communicate(timeout=within_s)
        return self.process.returncode, output, talk

    def recorded(self) -> dict[str, int]:
        """Returns the process ids that it recorded, by name."""
        found = {}
        for file in self.base.glob("vgpu-demo-*/processes"):
            for line in file.read_text().splitlines():
                pid, _, name = line.split(" ", 2)
                found[name] = int(pid)
        return found

    def wait_for_child(self, name: str) -> int:
        wait_until(lambda: name in self.recorded() or self.process.poll() is not None)
        assert name in self.recorded(), self.process.communicate()
        return self.recorded()[name]

    def family(self) -> set[int]:
        """Returns every process whose command, environment or mounts name the workspace."""
        found = set()
        for process in Path("/proc").iterdir():
            if not process.name.isdecimal() or int(process.name) == os.getpid():
                continue
            try:
                files = ("cmdline", "environ", "mountinfo")
                text = b"".join((process / file).read_bytes() for file in files)
            except OSError:
                continue
            if str(self.base).encode() + b"/vgpu-demo-" in text:
                found.add(int(process.name))
        return found

    def mounts(self) -> list[str]:
        """Returns the mounts of any process that name the temporary directory."""
        found = []
        for file in Path("/proc").glob("[0-9]*/mountinfo"):
            try:
                lines = file.read_text().splitlines()
            except OSError:
                continue
            found += [line for line in lines if str(self.base) in line]
        return found


Start = Callable[..., Demo]


@pytest.fixture
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # Sockets lie below it, so its name must be short: pytest's own are not.
    made = Path("/tmp") / f"vgpu-e2e-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    made.mkdir(mode=0o777)
    made.chmod(0o777)
    yield made
    sweep(made)
    assert list(made.iterdir()) == [], "the demo left files"
    made.rmdir()


@pytest.fixture
def start(base: Path) -> Iterator[Start]:
    started: list[Demo] = []

    def begin(**options: Path) -> Demo:
        started.append(Demo(base, **options))
        return started[-1]

    yield begin
    for demo in started:
        if demo.process.poll() is None:
            demo.process.kill()
        demo.process.communicate()
        wait_until(partial(_has_ended, demo))


def _has_ended(demo: Demo) -> bool:
    return not demo.family()


def assert_nothing_left(demo: Demo) -> None:
    wait_until(partial(_has_ended, demo), "every process of the demo ends")
    assert list(demo.base.iterdir()) == []
    assert demo.mounts() == []


def assert_held(status: int, output: str, *, measuring: bool = False) -> None:
    """Holds the demo to all it says; to what it says of time only where that is ``measuring``."""
    failed = [line for line in output.splitlines() if line.startswith("  FAILED  ")]
    assert [line for line in failed if measuring or not SAYS_OF_TIME.search(line)] == [], output
    assert status == (1 if failed else 0), output
    assert (" checks hold" in output) and (failed or "demo passed" in output), output
    assert len(re.findall(r"^  ok      |^  FAILED  ", output, re.M)) >= LEAST_CHECKS, output


@pytest.mark.parametrize("measuring", [False, pytest.param(True, marks=pytest.mark.timing)])
def test_the_demo_holds_and_leaves_nothing(start: Start, measuring: bool) -> None:
    before = sorted(os.listdir("/etc"))

    demo = start()
    status, output, _ = demo.finish()

    assert_held(status, output, measuring=measuring)
    for name in PODS:
        assert name in output
    assert "then code 2, one again after a free" in output
    assert sorted(os.listdir("/etc")) == before
    assert_nothing_left(demo)


@pytest.mark.long
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, who alone can enter that checkout")
def test_the_demo_holds_from_a_checkout_only_root_can_enter(start: Start, tmp_path: Path) -> None:
    sealed = tmp_path / "checkout"
    for part in ("libvgpu", "deviceplugin", "vgpuctl", "deploy"):
        shutil.copytree(PACKAGE.parent / part, sealed / part)
    for path in [sealed, *sealed.rglob("*")]:
        path.chmod(path.stat().st_mode & 0o700)

    status, output, _ = start(checkout=sealed).finish()

    assert_held(status, output)


@pytest.mark.long
@pytest.mark.skipif(os.getuid() != 0, reason="the other tests run as an ordinary user already")
@pytest.mark.skipif(
    os.getuid() == 0 and not can_isolate(tool_environment()),
    reason="needs a mount namespace, so that another user reaches this Python and checkout",
)
def test_the_demo_holds_for_an_ordinary_user(base: Path) -> None:
    env = tool_environment({"PATH": "/usr/bin:/bin", "HOME": "/tmp", "NO_COLOR": "1"})
    trees = {os.path.realpath(sys.base_prefix), sys.prefix, str(PACKAGE.parent)}
    with Workspace(base) as workspace:
        order = Order(
            name="demo of an ordinary user",
            parent_pid=0,
            argv=(sys.executable, "-m", "vgpuctl", "demo"),
            env=env,
            mountpoint=str(workspace.path("root")),
            binds=tuple(Bind(tree, tree) for tree in sorted(trees) if tree != "/usr"),
            uid=ORDINARY_USER,
            gid=ORDINARY_USER,
        )
        children = Children(workspace)
        child = children.start(order, read_output=True)
        try:
            status = child.process.wait(ENDS_WITHIN_S)
            child.reader.join(PATIENCE_S)
            output = "".join(child.lines.get() for _ in range(child.lines.qsize()))
            said = child.log.read_text()
        finally:
            children.end_all()

    assert_held(status, output)
    assert "paths translated" in output
    assert f"starting it as user {ORDINARY_USER}" in said


@pytest.mark.parametrize(
    "name", [*CHILDREN[:3], *(pytest.param(name, marks=pytest.mark.long) for name in CHILDREN[3:])]
)
def test_a_killed_child_fails_the_demo_which_cleans_up(start: Start, name: str) -> None:
    demo = start()
    pid = demo.wait_for_child(name)

    os.kill(pid, signal.SIGKILL)
    status, output, _ = demo.finish()

    assert status == 1, output
    assert f"FAILED  {name} ended by SIGKILL" in output
    assert "demo FAILED" in output
    assert_nothing_left(demo)


@pytest.mark.long
def test_a_killed_mps_control_daemon_leaves_nothing(start: Start) -> None:
    demo = start()
    demo.wait_for_child("mps-half/inference")
    daemons = {
        pid
        for pid in demo.family()
        if b"nvidia-cuda-mps-control\0-f" in Path(f"/proc/{pid}/cmdline").read_bytes()
    }
    (control,) = (pid for pid in daemons if psutil.Process(pid).ppid() not in daemons)  # no server

    os.kill(control, signal.SIGKILL)
    demo.finish()

    assert_nothing_left(demo)


@pytest.mark.parametrize("reached", ["node agent", "vgpu-70/training"])
def test_a_killed_demo_takes_everything_with_it(start: Start, base: Path, reached: str) -> None:
    demo = start()
    demo.wait_for_child(reached)

    demo.process.kill()
    demo.process.communicate()

    wait_until(partial(_has_ended, demo), "every process of the demo ends")
    assert demo.mounts() == []
    assert len(sweep(base)) == 1  # as the next demo does first
    assert list(base.iterdir()) == []


def test_a_terminated_demo_cleans_up_with_the_shells_status(start: Start) -> None:
    demo = start()
    demo.wait_for_child("mps-half/inference")

    demo.process.terminate()
    status, _, _ = demo.finish()

    assert status == 128 + signal.SIGTERM
    assert_nothing_left(demo)


def test_a_directory_without_examples_is_refused_in_words(tmp_path: Path) -> None:
    result = run_to_end(
        [sys.executable, "-m", "vgpuctl", "demo", "--examples", str(tmp_path)],
        env=tool_environment(),
    )

    assert result.returncode == 2
    assert result.stderr.startswith(f"vgpuctl: {tmp_path} holds no mps-half/pod.yaml")
    assert result.stderr.count("\n") == 1
