"""A slice of `vgpuctl run` ends with its owner, and a dead owner's is swept by the next."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from libvgpu import ownership
from support.lines import next_line
from support.waiting import PATIENCE_S

HOLDER = """
import sys, time
from pathlib import Path
from libvgpu import ownership
with ownership.owned_directory(Path(sys.argv[1])) as (allocation_id, directory):
    directory.mkdir()
    (directory / "limits").write_text("half made")
    print(allocation_id, flush=True)
    time.sleep(60)
"""


def _start_holder(run_dir: Path) -> tuple[subprocess.Popen[str], str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run_dir)], stdout=subprocess.PIPE, text=True
    )
    return holder, next_line(holder)


def _files(run_dir: Path) -> list[str]:
    return sorted(str(p.relative_to(run_dir)) for p in run_dir.rglob("*") if not p.is_dir())


def test_directory_and_owner_file_are_gone_when_the_context_ends(tmp_path: Path) -> None:
    with ownership.owned_directory(tmp_path) as (allocation_id, directory):
        directory.mkdir()
        (directory / "usage").touch()
        assert not ownership.is_abandoned(tmp_path, allocation_id)

    assert not directory.exists()
    assert _files(tmp_path) == []


def test_they_are_gone_after_an_error_too(tmp_path: Path) -> None:
    try:
        with ownership.owned_directory(tmp_path) as (_, directory):
            directory.mkdir()
            raise RuntimeError("while the slice is made")
    except RuntimeError:
        pass

    assert _files(tmp_path) == []
    assert not directory.exists()


@pytest.mark.process
def test_a_living_owners_slice_is_left_alone(tmp_path: Path) -> None:
    holder, allocation_id = _start_holder(tmp_path)
    try:
        swept = ownership.sweep(tmp_path)

        assert swept == ()
        assert not ownership.is_abandoned(tmp_path, allocation_id)
        assert (tmp_path / "allocations" / allocation_id / "limits").exists()
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.process
def test_a_killed_owners_half_made_slice_is_swept(tmp_path: Path) -> None:
    holder, allocation_id = _start_holder(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert ownership.is_abandoned(tmp_path, allocation_id)

    swept = ownership.sweep(tmp_path)

    assert swept == (allocation_id,)
    assert _files(tmp_path) == []
    assert not (tmp_path / "allocations" / allocation_id).exists()


def test_sweeping_never_touches_the_node_agents_slices(tmp_path: Path) -> None:
    agents = tmp_path / "allocations" / "pod-1234"
    agents.mkdir(parents=True)
    (agents / "limits").touch()

    assert ownership.sweep(tmp_path) == ()
    assert (agents / "limits").exists()


def test_sweeping_a_directory_that_is_not_there_is_nothing(tmp_path: Path) -> None:
    assert ownership.sweep(tmp_path / "absent") == ()
    assert not (tmp_path / "absent").exists()


def test_an_owner_whose_new_file_was_swept_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a sweeper that takes the first owner file between its making and its locking
    real_flock = fcntl.flock
    stolen: list[str] = []

    def flock(descriptor: int, operation: int) -> None:
        if not stolen:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            path.unlink()
            stolen.append(path.name)
        real_flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)

    # WHEN a slice is made
    with ownership.owned_directory(tmp_path) as (allocation_id, _):
        # THEN it is owned under another name, and that lock holds
        assert stolen
        assert allocation_id not in stolen
        assert not ownership.is_abandoned(tmp_path, allocation_id)


@pytest.mark.process
def test_many_owners_and_sweepers_at_once_leave_nothing(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom libvgpu import ownership\n"
        "for _ in range(40):\n"
        "    ownership.sweep(Path(sys.argv[1]))\n"
        "    with ownership.owned_directory(Path(sys.argv[1])) as (_, directory):\n"
        "        directory.mkdir()\n"
        "        ownership.sweep(Path(sys.argv[1]))\n"
        "        assert directory.is_dir()\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]

    statuses = [worker.wait(timeout=PATIENCE_S) for worker in workers]

    assert statuses == [0, 0, 0, 0]
    assert _files(tmp_path) == []
