"""A daemon whose files are to be elsewhere, and who comes while it moves or is set up."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deviceplugin.mps import gpu_worker
from deviceplugin.mps.compute_mode import EXCLUSIVE_PROCESS
from deviceplugin.mps.daemon_home import DaemonHome
from deviceplugin.mps.gpu_worker import GpuWorker
from deviceplugin.mps.state_files import FAILED, READY, STARTING, GpuMps
from deviceplugin.store.mps_paths import pipe_directory
from support.waiting import PATIENCE_S, wait_until

UUID = "GPU-a"


class FakeProcess:
    pid = 7

    def __init__(self) -> None:
        self._fd = os.eventfd(0)

    def fileno(self) -> int:
        return self._fd

    def ended(self, within_s: float = 0.0) -> bool:
        return False


class FakeDaemon:
    """One that is there at once, with real directories."""

    started = stopped = 0

    def __init__(
        self,
        run_dir: Path,
        uuid: str,
        memory_bytes: int,
        tied: bool = False,
        is_given_up: Callable[[], bool] = lambda: False,
        root: str = "",
    ) -> None:
        self._home = DaemonHome(run_dir, uuid, root)
        self.process = FakeProcess()
        self.server: FakeProcess | None = None

    def adopt(self, pid: int) -> bool:
        return False

    def prepare(self, may_move: bool = False) -> None:
        self._home.make(may_move)

    def start(self) -> None:
        type(self).started += 1

    def stop(self) -> None:
        type(self).stopped += 1

    def why_silent(self) -> str:
        return ""

    def pipe_is_there(self) -> bool:
        return self._home.pipe.is_dir()

    def find_server(self) -> bool:
        return self.server is not None

    def start_server(self) -> None:
        self.server = FakeProcess()

    def settle(self) -> None: ...

    def server_status(self) -> str:
        return ""

    def changed_settings(self) -> str:
        return ""


class Boards:
    def problem(self, uuid: str) -> str | None:
        return None

    def __init__(self) -> None:
        self.modes, self.began_under = [0], list[int]()

    def processes(self, uuid: str) -> list[int]:
        return [99] if self.modes[-1] in self.began_under else []

    def memory_bytes(self, uuid: str) -> int:
        return 1 << 30

    def compute_mode(self, uuid: str) -> int:
        return self.modes[-1]

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        self.modes.append(mode)


class Node:
    """A worker, what it reports, and what happens at the moment of a report."""

    def __init__(self, run_dir: Path, before: GpuMps | None = None) -> None:
        self.run_dir, self.reports = run_dir, list[GpuMps | None]()
        self.at_report: Callable[[GpuMps | None], None] = lambda now: None
        self.boards = Boards()
        self.worker = GpuWorker(run_dir, UUID, self.boards, self._report, before)

    def _report(self, uuid: str, now: GpuMps | None) -> None:
        self.reports.append(now)
        self.at_report(now)

    def phase(self) -> str:
        last = self.reports[-1] if self.reports else None
        return last.phase if last else ""

    @property
    def home(self) -> Path:
        return pipe_directory(self.run_dir, UUID).parent


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> type[FakeDaemon]:
    class Daemon(FakeDaemon): ...

    monkeypatch.setattr(gpu_worker, "Daemon", Daemon)
    return Daemon


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "run")
    node.worker.wish(True, False)
    node.worker.start()
    wait_until(lambda: node.phase() == READY, "the daemon is there")
    yield node
    node.worker.end()
    node.worker.join(PATIENCE_S)


def test_no_container_is_let_start_while_the_daemon_moves(node: Node, tmp_path: Path) -> None:
    seen = list[bool]()
    node.at_report = lambda now: seen.append(node.home.is_symlink()) if node.reports else None
    before = len(node.reports)

    node.worker.wish(True, False, str(tmp_path / "root"))

    wait_until(lambda: node.home.is_symlink() and node.phase() == READY, "it has moved")
    phases = [each.phase if each else "" for each in node.reports[before:]]
    # What a container goes by says so before the first file has moved.
    assert (phases[0], seen[0]) == (STARTING, False)
    assert READY not in phases[:-1]


def test_a_container_that_comes_as_the_daemon_is_to_move_keeps_it(
    node: Node, daemon: type[FakeDaemon], tmp_path: Path
) -> None:
    root = str(tmp_path / "root")
    has_come = False

    def come(now: GpuMps | None) -> None:
        nonlocal has_come
        if not has_come and now is not None and now.phase == STARTING:
            has_come = True
            node.worker.wish(True, True, root)

    node.at_report = come
    node.worker.wish(True, False, root)
    wait_until(lambda: has_come and node.phase() == READY, "the daemon is there again")
    assert not node.home.is_symlink()
    assert (daemon.started, daemon.stopped) == (1, 0)

    node.worker.wish(True, False, root)
    wait_until(lambda: node.home.is_symlink() and node.phase() == READY, "it moves in the end")
    assert daemon.stopped == 1


def test_the_word_of_an_earlier_runner_lets_none_start_either(tmp_path: Path) -> None:
    DaemonHome(tmp_path / "run", UUID).make(may_move=True)
    node = Node(tmp_path / "run", GpuMps(READY, found_mode=0))
    seen = list[bool]()
    node.at_report = lambda now: seen.append(node.home.is_symlink())
    node.worker.wish(True, False, str(tmp_path / "root"))
    node.worker.start()
    wait_until(lambda: node.phase() == READY, "the daemon is there")
    node.worker.end()
    node.worker.join(PATIENCE_S)
    assert node.home.is_symlink()
    assert not seen[0]


def test_a_program_that_begins_before_there_is_a_daemon_is_waited_for(
    tmp_path: Path, daemon: type[FakeDaemon]
) -> None:
    """It has the GPU for itself, and each client of the daemon would be refused."""
    node = Node(tmp_path / "run")
    node.boards.began_under = [EXCLUSIVE_PROCESS]
    node.worker.wish(True, False)
    node.worker.start()
    wait_until(lambda: node.phase() == FAILED, "the GPU is not free")
    failed = node.reports[-1]
    assert failed is not None
    assert "is used by process 99 without MPS" in failed.reason

    node.boards.began_under.clear()
    node.worker.wake()
    wait_until(lambda: node.phase() == READY, "it is free")

    assert (daemon.started, daemon.stopped) == (1, 0)  # so that no other takes the GPU meanwhile
    node.worker.end()
    node.worker.join(PATIENCE_S)
    assert node.boards.modes == [0, EXCLUSIVE_PROCESS, 0]
