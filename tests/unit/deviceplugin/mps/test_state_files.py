"""What agent and runner tell each other arrives whatever containers and kills do."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.mps import state_files
from deviceplugin.mps.state_files import (
    GpuMps,
    MpsState,
    Wanted,
    read_state,
    read_wanted,
    state_path,
    write_state,
    write_wanted,
)

GPUS = {f"GPU-{n:036}": GpuMps("ready", "for a reason", daemon=n, server=n) for n in range(16)}


def fill(descriptor: int) -> None:
    while True:
        os.write(descriptor, bytes(4096))


@pytest.fixture
def full() -> Iterator[Path]:
    """A small file system in which both files are, before a container fills it."""
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", name]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
        try:
            run_dir = Path(name)
            write_wanted(run_dir, Wanted("first", {}))
            write_state(run_dir, MpsState("first"))
            with open(run_dir / "usage", "wb") as file, pytest.raises(OSError, match="No space"):
                fill(file.fileno())
            yield run_dir
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


@pytest.mark.root
@pytest.mark.process
def test_a_full_file_system_keeps_nobody_from_writing(full: Path) -> None:
    for number in range(5):
        wanted = Wanted(str(number), dict.fromkeys(GPUS, True))
        state = MpsState(str(number), "", GPUS)
        write_wanted(full, wanted)
        write_state(full, state)
        assert (read_wanted(full), read_state(full)) == (wanted, state)


@pytest.mark.parametrize(("call", "after"), [("link", 0), ("replace", 0), ("replace", 1)])
def test_a_writer_that_is_killed_leaves_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, after: int
) -> None:
    for token in ("a", "b"):
        write_state(tmp_path, MpsState(token))
    with monkeypatch.context() as killed:
        target, calls = (Path if call == "replace" else os), []
        real = getattr(target, call)

        def some(*args: object) -> object:
            calls.append(args)
            if len(calls) > after:
                raise KeyboardInterrupt
            return real(*args)

        killed.setattr(target, call, some)
        with pytest.raises(KeyboardInterrupt):
            write_state(tmp_path, MpsState("c"))

    found = read_state(tmp_path)
    assert found is not None
    assert found.token in ("b", "c")
    for token in ("d", "e", "f"):
        write_state(tmp_path, MpsState(token, "", GPUS))
        assert read_state(tmp_path) == MpsState(token, "", GPUS)
    assert len(list(state_path(tmp_path).parent.iterdir())) == 2


def test_what_somebody_still_reads_is_not_written_over(tmp_path: Path) -> None:
    write_state(tmp_path, MpsState("a"))
    with open(state_path(tmp_path), "rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        for token in ("b", "c", "d"):
            write_state(tmp_path, MpsState(token))

        assert b'"a"' in reader.read()
    assert read_state(tmp_path) == MpsState("d")


def test_a_reader_that_meets_the_writer_reads_the_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(tmp_path, MpsState("a"))
    path = state_path(tmp_path)
    opened: list[int] = []

    def meet(where: Path, mode: str) -> object:
        file = open(where, mode)  # noqa: SIM115 - the caller closes it
        if not opened:  # since it was opened it has become the draft
            opened.append(os.open(where, os.O_RDONLY))
            where.rename(path.with_name("state.next"))
            fcntl.flock(opened[0], fcntl.LOCK_EX)
            (path.with_name("new")).write_text('{"token": "b"}')
            path.with_name("new").rename(path)
        return file

    monkeypatch.setattr(state_files, "open", meet, raising=False)
    try:
        assert read_state(tmp_path) == MpsState("b")
    finally:
        os.close(opened[0])
