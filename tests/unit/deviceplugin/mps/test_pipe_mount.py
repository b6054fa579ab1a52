"""Which pipe directory gets a file system of its own, and what is said where it cannot be."""

import ctypes
import errno
import os
from pathlib import Path

import pytest

from deviceplugin.mps import pipe_mount


class Libc:
    """Notes what it is to mount and unmount."""

    def __init__(self, refusal: int = 0) -> None:
        self.refusal = refusal
        self.asked: list[tuple[str, bytes]] = []

    def mount(self, source: bytes, target: bytes, *rest: object) -> int:
        return self._ask("mount", target)

    def umount2(self, target: bytes, flags: int) -> int:
        return self._ask("unmount", target)

    def _ask(self, what: str, target: bytes) -> int:
        self.asked.append((what, target))
        ctypes.set_errno(self.refusal)
        return -1 if self.refusal else 0


@pytest.fixture
def libc(monkeypatch: pytest.MonkeyPatch) -> Libc:
    made = Libc()
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: made)
    return made


def mounted(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: path in paths)


def test_only_below_a_run_directory_that_is_mounted(
    libc: Libc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    mounted(monkeypatch)
    pipe_mount.mount(pipe, tmp_path)
    pipe_mount.unmount(pipe)
    mounted(monkeypatch, tmp_path, pipe)
    pipe_mount.mount(pipe, tmp_path)
    assert libc.asked == []

    pipe_mount.unmount(pipe)
    mounted(monkeypatch, tmp_path)
    pipe_mount.mount(pipe, tmp_path)
    assert libc.asked == [("unmount", os.fsencode(pipe)), ("mount", os.fsencode(pipe))]


def test_a_refusal_to_mount_is_told_and_one_to_unmount_is_an_error(
    libc: Libc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pipe, libc.refusal = tmp_path / "pipe", errno.EPERM
    mounted(monkeypatch, tmp_path)
    pipe_mount.mount(pipe, tmp_path)
    assert "has no file system of its own" in caplog.text

    mounted(monkeypatch, tmp_path, pipe)
    with pytest.raises(PermissionError):
        pipe_mount.unmount(pipe)
