"""Compiles C files and links them: each file once, as many at once as there are processors.

An object is made again where its source, a header that it includes, or the command changed. The
compiler itself says which headers those are (``-MMD``). A file changed if its size or time is not
what it was: a time may be earlier too, since clocks are set back and archives keep old times.
Objects lie in a folder that is named by the hash of compiler and flags, so builds with other flags
never meet. What the compiler said is kept next to the object, so `make lint` judges warnings
without compiling again. An object or a library appears under its name only when it is whole: a
build that was interrupted goes on where it was.

The standard library alone is needed, since a machine with a GPU may have no packages. Whoever calls
this holds a lock on the folder.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .errors import VgpuError

#: Of one file: two seconds are usual on a slow machine.
_COMPILE_TIMEOUT_SECONDS = 120
_SHOWN_EVERY_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler, how it is called, and where its objects lie.

    Attributes:
        command: the program and what is said to it in any case.
        root: paths of sources are relative to it, and the compiler runs there.
        objects: below it each set of flags has a folder.
    """

    command: tuple[str, ...]
    root: Path
    objects: Path

    def folder(self, flags: Sequence[str]) -> Path:
        """Returns where the objects of a set of flags lie."""
        text = "\0".join([*self.command, *flags])
        return self.objects / hashlib.sha256(text.encode()).hexdigest()[:16]


def find_compiler() -> list[str]:
    """Returns the command of the machine's C compiler: ``$CC``, ``cc`` or ``gcc``.

    Raises:
        VgpuError: there is none.
    """
    chosen = shlex.split(os.environ.get("CC", ""))
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise VgpuError(f"CC is {chosen[0]!r}, which is not on PATH")
        return chosen
    for name in ("cc", "gcc"):
        if shutil.which(name) is not None:
            return [name]
    raise VgpuError("no C compiler (cc or gcc) on PATH", hint="apt install gcc libc6-dev")


def compile_all(compiler: Compiler, files: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """Returns the object of each file; those that are not up to date are compiled.

    Args:
        compiler: which one.
        files: the flags of each source, whose path is relative to the compiler's root.

    Raises:
        VgpuError: a file does not compile; all that the compiler said is in the message.
    """
    objects, stale = {}, []
    for source, flags in files.items():
        folder = compiler.folder(flags)
        objects[source] = folder / f"{source.replace('/', '-').removeprefix('libvgpu-')}.o"
        if not _is_current(compiler, objects[source]):
            folder.mkdir(parents=True, exist_ok=True)
            stale.append(source)
    progress = _Progress(len(stale))
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def one(source: str) -> None:
            _compile(compiler, source, files[source], objects[source])
            progress.one_more()

        try:
            list(pool.map(one, stale))
        except VgpuError:
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            progress.end()
    return objects


def said_of(objects: Mapping[str, Path]) -> str:
    """Returns what the compiler said when it made these objects: its warnings."""
    return "".join(path.with_suffix(".said").read_text() for path in objects.values())


def link(compiler: Compiler, output: Path, objects: Sequence[Path], flags: Sequence[str]) -> None:
    """Links a shared library, where an object is newer than it or the command changed.

    Args:
        compiler: which one.
        output: replaced as a whole, so that a process that has mapped the former one keeps it.
        objects: in the order of the command.
        flags: behind the objects.

    Raises:
        VgpuError: it fails, or the library cannot be written.
    """
    command = [*compiler.command, "-shared", *map(str, objects), *flags]
    digest = hashlib.sha256("\0".join(command).encode()).hexdigest()
    note = compiler.objects / f"{hashlib.sha256(str(output).encode()).hexdigest()[:16]}.link"
    made_of = [_look(path) for path in objects]
    try:
        if note.read_text() == "\n".join([digest, *made_of, _look(output)]):
            return
    except OSError:
        pass  # it was never made
    new = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _run(compiler, [*command, "-o", str(new)])
        new.replace(output)
        note.write_text("\n".join([digest, *made_of, _look(output)]))
    except OSError as error:
        raise VgpuError(f"{output} cannot be written: {error.strerror}") from error
    finally:
        new.unlink(missing_ok=True)


def _look(path: Path) -> str:
    """Returns what tells whether a file is still the same."""
    status = path.stat()
    return f"{status.st_mtime_ns} {status.st_size}"


def _is_current(compiler: Compiler, target: Path) -> bool:
    """Returns whether all that an object was made of is what it was."""
    try:
        lines = target.with_suffix(".of").read_text().splitlines()
        return target.exists() and all(
            _look(compiler.root / name) == look
            for look, _, name in (line.partition(": ") for line in lines)
        )
    except OSError:
        return False  # something is missing


def _compile(compiler: Compiler, source: str, flags: Sequence[str], target: Path) -> None:
    new, names, made_of = (target.with_suffix(suffix) for suffix in (".new", ".d", ".of"))
    new.touch()
    began_ns = new.stat().st_mtime_ns  # files' times come from a clock that may be behind
    said = _run(
        compiler,
        [*compiler.command, *flags, "-MMD", "-MF", str(names), "-c", source, "-o", str(new)],
    )
    if said:
        print(said, end="", file=sys.stderr, flush=True)
    target.with_suffix(".said").write_text(said)
    new.replace(target)
    _, _, prerequisites = names.read_text().partition(": ")
    lines = []
    for name in prerequisites.replace("\\\n", " ").split():
        look = _look(compiler.root / name)
        # What is edited while it is compiled is compiled again.
        was_edited = began_ns <= int(look.split()[0]) <= time.time_ns()
        lines.append(f"{'edited' if was_edited else look}: {name}\n")
    made_of.write_text("".join(lines))


def _run(compiler: Compiler, command: Sequence[str]) -> str:
    """Runs a compiler and returns what it said.

    Raises:
        VgpuError: it failed, or did not end.
    """
    try:
        done = subprocess.run(
            command,
            cwd=compiler.root,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILE_TIMEOUT_SECONDS,
            check=False,
            env={**os.environ, "TMPDIR": str(compiler.objects)},  # /tmp may be full
        )
    except subprocess.TimeoutExpired:
        raise VgpuError(
            f"{shlex.join(command)} did not end in {_COMPILE_TIMEOUT_SECONDS} s"
        ) from None
    except OSError as error:
        raise VgpuError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise VgpuError(f"{shlex.join(command)} failed: {done.stderr.strip()}")
    return done.stderr


class _Progress:
    """Says on stderr how many files are compiled; a terminal sees the number grow."""

    def __init__(self, count: int) -> None:
        self._count, self._done = count, 0
        self._began_s = self._shown_s = time.monotonic()
        self._is_live = sys.stderr.isatty()

    def one_more(self) -> None:
        """Counts a file. Threads may count at once: the number is for people."""
        self._done += 1
        now_s = time.monotonic()
        if self._is_live and now_s - self._shown_s >= _SHOWN_EVERY_SECONDS:
            self._shown_s = now_s
            print(
                f"\rcompiled {self._done} of {self._count} C files",
                end="",
                file=sys.stderr,
                flush=True,
            )

    def end(self) -> None:
        """Says how many there were and how long they took."""
        if self._count:
            took_s = time.monotonic() - self._began_s
            begin = "\r" if self._is_live else ""
            print(
                f"{begin}compiled {self._done} of {self._count} C files in {took_s:.1f} s",
                file=sys.stderr,
                flush=True,
            )
