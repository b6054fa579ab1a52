"""The MPS runner and the agent's keeper, with a control tool of the test's own."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from deviceplugin import mps_control
from deviceplugin.mps import lock_path, runner_alive
from deviceplugin.mps_keeper import MpsKeeper
from deviceplugin.slices import pipe_directory
from libvgpu.errors import MpsError

UUID = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
WAIT_S = 15.0
CONFIG = "version: v1\nsharing:\n  fractional:\n  - {family: mps, devices: [0]}\n"
# A daemon is a process that keeps its id in the pipe directory; commands look for it there.
TOOL = """\
#!/bin/sh
here="$CUDA_MPS_PIPE_DIRECTORY/pid"
if [ "$1" = -f ]; then
    [ "$CUDA_VISIBLE_DEVICES" = GPU-aaaaaaaa-0000-0000-0000-000000000000 ] || exit 3
    echo $$ > "$here"; exec sleep 300
fi
read command
kill -0 "$(cat "$here" 2>/dev/null)" 2>/dev/null || { echo no daemon >&2; exit 1; }
case "$command" in
    get_default_active_thread_percentage) echo 100.0;;
    quit) kill "$(cat "$here")";;
esac
"""
# The runner's own command line, with GPUs that need no NVML.
RUNNER = f"""\
from deviceplugin import mps
from deviceplugin.inventory import Gpu
class Given:
    def gpus(self): return (Gpu(0, "{UUID}", "test", 16 << 30),)
mps.NvmlInventory = Given
mps.main()
"""


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / mps_control.TOOL).write_text(TOOL)
    (tools / mps_control.TOOL).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "runner.py").write_text(RUNNER)
    return tmp_path / "run"


Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def start(run_dir: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def runner() -> subprocess.Popen[str]:
        base = run_dir.parent
        process = subprocess.Popen(
            [sys.executable, str(base / "runner.py"), "--config", str(base / "config.yaml"),
             "--run-dir", str(run_dir)],
            stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        started.append(process)
        return process

    yield runner
    for process in started:
        process.kill()
        process.communicate(timeout=WAIT_S)


def daemon_pid(run_dir: Path) -> int:
    mps_control.wait_ready(run_dir, UUID, WAIT_S)
    return int((pipe_directory(run_dir, UUID) / "pid").read_text())


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.05)


def test_a_daemon_answers_in_its_pipe_directory_until_the_runner_is_told_to_end(
    run_dir: Path, start: Start
) -> None:
    runner = start()
    pid = daemon_pid(run_dir)
    assert runner_alive(run_dir)

    runner.send_signal(signal.SIGTERM)

    assert runner.wait(WAIT_S) == 0
    wait_gone(pid)
    assert not mps_control.is_ready(run_dir, UUID)
    assert not runner_alive(run_dir)


def test_a_killed_runner_leaves_no_daemon(run_dir: Path, start: Start) -> None:
    runner = start()
    pid = daemon_pid(run_dir)

    runner.kill()

    wait_gone(pid)


def test_a_daemon_that_dies_is_started_again(run_dir: Path, start: Start) -> None:
    start()
    first = daemon_pid(run_dir)
    time.sleep(1.1)  # restarts are a second apart

    os.kill(first, signal.SIGKILL)

    deadline = time.monotonic() + WAIT_S
    while daemon_pid(run_dir) == first:
        assert time.monotonic() < deadline, "no new daemon answers"
        time.sleep(0.05)


def test_a_second_runner_says_that_there_is_one(run_dir: Path, start: Start) -> None:
    start()
    daemon_pid(run_dir)

    second = start()

    assert second.wait(WAIT_S) == 1
    assert second.stderr is not None
    assert "another process runs the MPS daemons" in second.stderr.read()


def test_without_the_tool_the_runner_says_so(
    run_dir: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    runner = start()

    assert runner.wait(WAIT_S) == 1
    assert runner.stderr is not None
    assert "nvidia-cuda-mps-control is not in PATH" in runner.stderr.read()


def test_the_keeper_adopts_a_runner_and_otherwise_waits_or_starts_one(
    run_dir: Path, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    keeper = MpsKeeper(run_dir.parent / "config.yaml", run_dir, (UUID,), spawn=False)
    keeper.look()
    with pytest.raises(MpsError, match="is not ready after 0 s"):
        mps_control.wait_ready(run_dir, UUID, 0.0)

    start()
    keeper.wait(UUID)
    keeper.look()

    assert [r.message for r in caplog.records] == [
        "waiting for the MPS daemons of another process",
        "MPS daemons adopted",
    ]


def test_a_started_runner_is_detached_and_has_a_log(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = run_dir.parent / "argv"
    python = run_dir.parent / "python"
    python.write_text(f'#!/bin/sh\necho "$@" > {recorded}; ps -o sid= -p $$ >> {recorded}\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    keeper = MpsKeeper(run_dir.parent / "config.yaml", run_dir, (UUID,), spawn=True)

    keeper.look()

    assert keeper._child is not None
    assert keeper._child.wait(WAIT_S) == 0
    arguments, session = recorded.read_text().splitlines()
    assert arguments.split()[:2] == ["-m", "deviceplugin.mps"]
    assert int(session) == keeper._child.pid != os.getsid(0)
    assert lock_path(run_dir).with_name("runner.log").exists()
