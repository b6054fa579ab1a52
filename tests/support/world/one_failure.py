"""The I/O calls of a program, counted, of which one may be made to fail once.

A first life lists the calls; each further one has another of them fail, as the system would: with
the file's name where the call was given one, without it where the call has a descriptor alone. A
call is known by what it does and where. Its number would not do, since lives differ by what their
process has read or thrown away before. Whoever stands in for something else than a file (NVML, the
API server, gRPC) asks `meet` itself.

Python tries a call again that a signal interrupted. EINTR here is what a file system of its own
program may answer.
"""

import builtins
import errno
import fcntl
import io
import mmap
import os
import re
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from support import ROOT

ERRORS = (errno.ENOSPC, errno.EIO, errno.EINTR, errno.EAGAIN, errno.EMFILE)
#: Of `os`, by what the first argument is; `close` gives the descriptor back whatever it says.
_BY_PATH = (
    "chmod", "link", "listdir", "mkdir", "mkfifo", "open", "remove", "rename", "replace", "rmdir",
    "scandir", "symlink", "unlink",
)  # fmt: skip
_WITH_TARGET = ("link", "rename", "replace", "symlink")
_BY_DESCRIPTOR = (
    "dup", "fchmod", "fdatasync", "fsync", "ftruncate", "posix_fallocate", "pread", "pwrite",
    "read", "write",
)  # fmt: skip
_ROOT = f"{ROOT}/"
_OURS = tuple(f"{ROOT}/{package}/" for package in ("deviceplugin", "libvgpu", "vgpuctl"))
_OF_SOCKETS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (socket.socket, ("__init__", "connect")),
    (ssl.SSLSocket, ("do_handshake", "send", "recv")),
)
_NOT_ONES_OWN = ("/proc/", "/sys/", "/dev/null")
#: Names that are others in each life.
_RANDOM = re.compile(r"[0-9a-f]{8,}|(?<=/tmp)[a-z0-9_]{8}$|(?<=^descriptor )\d+")


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    Attributes:
        what: its name.
        where: the path of its file below the program's directories, with ``*`` for random names, or
            the peer that was called.
        code: the line of ours that it comes from.
        path: as the program knows it.
        target: of a rename or a link.
    """

    what: str
    where: str
    code: str
    path: str = field(compare=False)
    target: str = field(default="", compare=False)

    def is_named_by(self, text: str) -> bool:
        """Returns whether a message says where: by the file, or the directory that it is for."""
        names = (self.path, os.path.dirname(self.path), self.target)
        return any(each in text for each in names if each)


class OneFailure:
    """Counts the calls; patches stay for as long as `patch` has them.

    Attributes:
        calls: those that were met since `arm`.
        failed: the one that failed, None where none did.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, base: Path, counts: Callable[[], bool] = lambda: True
    ) -> None:
        """Counts nothing before `arm`.

        Args:
            base: where the program's directories are.
            counts: whether the caller is who is tried.
        """
        self._base = f"{base}/"
        self.calls: list[Call] = []
        self.failed: Call | None = None
        self._counts, self._is_armed = counts, False
        self._thread = threading.get_ident()
        self._fail_at: Call | None = None
        self._error = 0
        for name in _BY_PATH + _BY_DESCRIPTOR:
            patch.setattr(os, name, partial(self._call, name, getattr(os, name)))
        opens = partial(self._open, io.open)
        for module in (builtins, io):
            patch.setattr(module, "open", opens)
        patch.setattr(mmap, "mmap", partial(self._call, "mmap", mmap.mmap))
        for kind, names in _OF_SOCKETS:
            for name in names:
                patch.setattr(kind, name, self._of_a_socket(name, getattr(kind, name)))
        for name in ("fcntl", "flock"):
            patch.setattr(fcntl, name, partial(self._call, name, getattr(fcntl, name)))

    def arm(self, fail_at: Call | None = None, error: int = errno.EIO) -> None:
        """Counts from now on; the first call like that one fails."""
        self.calls, self.failed = [], None
        self._fail_at, self._error, self._is_armed = fail_at, error, True

    def disarm(self) -> None:
        """Counts no more."""
        self._is_armed = False

    def meet(self, what: str, where: object, named: bool = True, target: object = "") -> None:
        """A call is about to be made.

        Args:
            named: an error of it names the file.

        Raises:
            OSError: it fails.
        """
        if not self._is_armed or threading.get_ident() != self._thread or not self._counts():
            return
        path = _path(where)
        if path.startswith(_NOT_ONES_OWN):
            return
        short = _RANDOM.sub("*", path.removeprefix(self._base))
        self.calls.append(Call(what, short, _our_line(), path, str(target)))
        if self.failed is None and self.calls[-1] == self._fail_at:
            self.failed = self.calls[-1]
            said = os.strerror(self._error)
            raise OSError(self._error, said, where) if named else OSError(self._error, said)

    def _call(self, what: str, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        where = given[0] if given else "."
        is_path = isinstance(where, str | bytes | os.PathLike)
        target = given[1] if what in _WITH_TARGET else ""
        if is_path or what != "open":
            self.meet(what, where, is_path, target)
        return call(*given, **named)

    def _of_a_socket(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(its: socket.socket, *given: Any, **named: Any) -> Any:
            self.meet(what, given[0] if what == "connect" else "socket", named=False)
            return call(its, *given, **named)

        return called

    def _open(self, call: Callable[..., Any], file: Any, *given: Any, **named: Any) -> Any:
        if not isinstance(file, int):
            self.meet("open", file)
        opened = call(file, *given, **named)
        return _File(self, opened, file) if self._is_armed and self._counts() else opened


class _File:
    """A file of Python's own, whose reads and writes are calls, too."""

    def __init__(self, failure: OneFailure, file: Any, where: object) -> None:
        self._failure, self._file, self._where = failure, file, where

    def read(self, *most: int) -> Any:
        self._failure.meet("read", self._where, named=False)
        return self._file.read(*most)

    def write(self, content: Any) -> Any:
        self._failure.meet("write", self._where, named=False)
        return self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __iter__(self) -> Any:
        return iter(self._file)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()


def _path(where: object) -> str:
    if isinstance(where, socket.socket) or hasattr(where, "fileno"):
        where = where.fileno()
    if isinstance(where, int):
        try:
            return _readlink(f"/proc/self/fd/{where}")
        except OSError:
            return f"descriptor {where}"
    return os.fsdecode(where) if isinstance(where, str | bytes | os.PathLike) else str(where)


def _our_line() -> str:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_OURS):
            return f"{path[len(_ROOT) :]}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


_readlink = os.readlink


def places(calls: list[Call]) -> list[Call]:
    """Returns the calls, each once that is made again and again."""
    return list(dict.fromkeys(calls))
