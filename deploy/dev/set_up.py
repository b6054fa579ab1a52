"""Makes the environment of a checkout, or adds to it.

``python3 deploy/dev/set_up.py VENV EXTRA...``: EXTRA are the optional dependencies in
pyproject.toml that a target of the Makefile needs. While packages are downloaded, the C files that
need none are compiled. Packages are installed by uv, which takes seconds where pip takes half a
minute; where uv cannot be had, or fails, by pip. Neither has to be there before: the package index
has both. The standard library is all that this needs, since it comes before everything else.

What fails is said in one sentence, with what helps. An environment in which an installation was
interrupted is made again, since no installer says which packages it left half written.
"""

import argparse
import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from package_index import PackageIndexError, fetch_wheel, pip_settings, setting

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build"
#: What the commands that failed have said, whole.
LOG = BUILD / "set-up.log"
#: What builds the project; it has to be there before the project is installed.
BUILD_PACKAGES = ("setuptools>=77", "cffi>=1.17")
#: The targets of libvgpu/_build.py that a C compiler alone can build.
C_TARGETS = ("shim", "libcuda", "libnvidia_ml")
# An editable install of mode "compat" is a line of a .pth file. The finder of the default mode
# takes half of the time in which a Python starts, and tests start thousands.
EDITABLE = ("--no-build-isolation", "--config-settings", "editable_mode=compat", "-e")
#: How the settings of pip are called by uv.
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
#: Lies in an environment as long as an installer works on it.
UNFINISHED = ".unfinished"

#: What is said where there is no room, in any language; the second number is that of a quota.
DISK_FULL = re.compile(r"(?i)\b(errno|os error) (28|122)\b|no space left|disk quota exceeded")
ROOM = "1 GB"

_QUIET_SECONDS = 15.0  # without a terminal, a step that takes longer says that it goes on
_SHOWN_CHARACTERS = 300  # of what a failed command said


class SetUpError(Exception):
    """It cannot be set up; says why and what helps."""


class DiskFullError(SetUpError):
    """Nothing that is installed in another way fits either."""


class Step:
    """Says what is being done and how long it took; nothing is silent for a minute."""

    def __init__(self, what: str) -> None:
        self._what, self._began_s, self._over = what, time.monotonic(), threading.Event()
        self._is_live = sys.stderr.isatty()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> "Step":
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._say("failed after" if kind else "took", "\n")

    def _tick(self) -> None:
        if self._is_live:
            self._say("takes", "")
        while not self._over.wait(1.0 if self._is_live else _QUIET_SECONDS):
            self._say("takes", "" if self._is_live else "\n")

    def _say(self, verb: str, end: str) -> None:
        took_s = time.monotonic() - self._began_s
        begin = "\r" if self._is_live else ""
        print(
            f"{begin}set-up: {self._what} {verb} {took_s:.1f} s",
            end=end,
            file=sys.stderr,
            flush=True,
        )


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Runs a command.

    Raises:
        DiskFullError: it found no room.
        SetUpError: it failed otherwise; has the line that says why.
    """
    # A user may have pip install below HOME. An environment must not.
    variables = {**os.environ, "PIP_USER": "0", **(environment or {})}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=variables, check=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            pass_fds=_held,
        )  # fmt: skip
    except OSError as error:
        raise SetUpError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        _keep(f"$ {' '.join(command)}\n{done.stdout}\n")
        raise failure(done.stdout, f"{command[0]} {_ended(done.returncode)}")


def _ended(status: int) -> str:
    if status >= 0:
        return f"ended with {status}"
    by_whom = " (where memory runs out, the kernel does that)" if -status == signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-status).name}{by_whom}"


def failure(said: str, otherwise: str) -> SetUpError:
    """Returns why a command failed that said this."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    full = next((line for line in lines if DISK_FULL.search(line)), None)
    if full is None:
        return SetUpError(reason_in(lines) or otherwise)
    return DiskFullError(
        f"a disk is full ({_cut(full)}); the environment and what is built need {ROOM}, see: "
        # A place to look at.
        f"df -h {ROOT} ~/.cache {os.environ.get('TMPDIR', '/tmp')}"  # noqa: S108
    )


def reason_in(lines: Sequence[str]) -> str:
    """Returns the line that says why a command failed: an error, and what it goes back to."""
    errors = [line for line in lines if "error:" in line.lower()]
    causes = [line for line in lines if line.lower().startswith(("cause:", "caused by:"))]
    return _cut("; ".join([*errors[:1], *(errors[1:] or causes)[-1:]] or lines[-1:]))


def _cut(reason: str) -> str:
    """Returns the end of what is too long to read: a command stands before its failure."""
    return reason if len(reason) <= _SHOWN_CHARACTERS else f"… {reason[-_SHOWN_CHARACTERS:]}"


def failed_on(error: OSError) -> SetUpError:
    """Returns what is said of a file that cannot be read or written."""
    what = f"{error.filename or ROOT}: {error.strerror}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return SetUpError(
            f"{what}; clone into a folder that is yours, or take this one over: "
            f"sudo chown -R $USER {ROOT}"
        )
    return failure(f"{what} (errno {error.errno})", what)


def answers(command: Sequence[str]) -> bool:
    """Returns whether a command can be run and succeeds."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def make_environment(venv: Path) -> tuple[Path, set[str]]:
    """Makes the environment where it is missing, does not run, or was left half installed.

    Returns:
        Its Python, and the extras of an environment that this one takes the place of.
    """
    python, former = venv / "bin/python", set[str]()
    is_environment = (
        "import os, site, sys; assert sys.prefix != sys.base_prefix; "
        "os.stat(site.getsitepackages()[0])"  # a Python of another version looks elsewhere
    )
    if not (venv / UNFINISHED).exists() and answers([str(python), "-c", is_environment]):
        return python, former
    if venv.exists():
        former = {each.name[1:] for each in venv.glob(".[a-z]*") if each.name != UNFINISHED}
    with Step(f"a new environment in {_short(venv)}"):
        try:
            run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(venv)])
        except DiskFullError:
            raise
        except SetUpError as error:
            raise SetUpError(
                f"{sys.executable} cannot make an environment ({error}): "
                "sudo apt-get install python3-venv, or name another one: make demo PYTHON=…"
            ) from None
    return python, former & set(_project()["optional-dependencies"])


def _project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return table["project"]


def pip_of(python: Path) -> list[str]:
    """Returns the command of a pip that installs into the environment.

    That of the Python that runs this is taken where it has one; else the environment gets its own,
    from Python's own copy or from the package index.

    Raises:
        SetUpError: neither Python nor an index has one.
    """
    own = [str(python), "-m", "pip"]
    outer = [sys.executable, "-m", "pip", "--python", str(python)]
    for command in (own, outer):
        if answers([*command, "--version"]):
            return command
    with Step("pip for the environment"):
        if not answers([str(python), "-m", "ensurepip", "--default-pip"]):
            try:
                wheel = fetch_wheel("pip", python.parent, pip_settings())
            except PackageIndexError as error:
                raise SetUpError(str(error)) from error
            run([str(python), f"{wheel}/pip", "install", "--no-index", str(wheel)])
            wheel.unlink()
    return own


def find_uv(python: Path) -> list[str] | None:
    """Returns the command of uv, which is fetched if it is missing; None if it cannot be had."""
    own = python.with_name("uv")
    for program in (str(own), shutil.which("uv")):
        if program and answers([program, "--version"]):
            return [program, "pip", "install", "--python", str(python)]
    try:
        with Step("uv, which installs packages quickly,"):
            wheel = fetch_wheel("uv", python.parent, pip_settings())
            with zipfile.ZipFile(wheel) as archive:
                (member,) = (each for each in archive.namelist() if each.endswith("/scripts/uv"))
                own.write_bytes(archive.read(member))
            own.chmod(0o755)
            wheel.unlink()
    except (PackageIndexError, ValueError, zipfile.BadZipFile) as error:
        say(f"{error}; pip takes the place of uv")
        return None
    return [str(own), "pip", "install", "--python", str(python)]


def uv_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns what tells uv what pip was told of package indexes and certificates.

    Args:
        settings: of pip, as ``pip config`` names them (``global.index-url``).
    """
    told = {variable: setting(settings, name) for name, variable in UV_NAMES.items()}
    # Certificates of the machine, as pip has them; an older uv knows the second name.
    told["UV_SYSTEM_CERTS"] = told["UV_NATIVE_TLS"] = "1"
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME") or "/nowhere")
    if not os.access(home, os.W_OK):
        told["UV_CACHE_DIR"] = str(BUILD / "uv-cache")
    return {name: value for name, value in told.items() if value and name not in os.environ}


def install(python: Path, extras: Sequence[str], compiled: Callable[[], None]) -> None:
    """Installs what builds the project, what the extras need, and the project as editable.

    Args:
        python: of the environment.
        extras: names of optional dependencies.
        compiled: waits for the C files, which the project's own step needs.

    Raises:
        SetUpError: neither uv nor pip can, or the C files do not compile.
    """
    uv, what = find_uv(python), f"packages for {', '.join(extras)}"
    needed = [*BUILD_PACKAGES, "-r", "pyproject.toml", *(f"--extra={each}" for each in extras)]
    environment, uv_error = uv_environment(pip_settings()), None
    if uv is not None:
        try:
            with Step(what):
                run([*uv, *needed], environment)
        except DiskFullError:
            raise
        except SetUpError as error:
            say(f"uv failed, so pip takes its place: {error}")
            uv, uv_error = None, error
    if uv is None:
        try:
            uv = [*pip_of(python), "install", "--quiet", "--disable-pip-version-check"]
            with Step(f"{what} (pip)"):
                run([*uv, *BUILD_PACKAGES, *dependencies(extras)])
        except DiskFullError:
            raise
        except SetUpError as error:
            raise SetUpError(
                f"packages cannot be installed ({uv_error or error}); check the network, and "
                f"index-url in pip.conf or PIP_INDEX_URL (details: {_short(LOG)})"
            ) from None
    with Step("C files"):
        compiled()
    with Step("the project itself"):
        run([*uv, "--no-deps", *EDITABLE, "."], environment)


def dependencies(extras: Sequence[str]) -> list[str]:
    """Returns the packages that the project and its extras need."""
    project = _project()
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(package for each in extras for package in optional[each])]


def make_clients(python: Path, folder: Path, requirements: Path) -> None:
    """Makes an environment of its own for clients: one holds the bindings of one CUDA version."""
    with Step(f"clients of another CUDA in {_short(folder)}"):
        run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)])
        add_packages(python, ["--python", str(folder / "bin/python"), "-r", str(requirements)])


def unpack_headers(python: Path, folder: Path, requirements: Path) -> None:
    """Unpacks each wheel of a list into a folder of its version."""
    lines = requirements.read_text().split("\n")
    wheels = [line for line in lines if line and not line.startswith("#")]
    with Step(f"headers of {len(wheels)} versions of CUDA in {_short(folder)}"):
        shutil.rmtree(folder, ignore_errors=True)
        for wheel in wheels:
            target = folder / wheel.partition("==")[2]
            add_packages(python, ["--no-deps", "--target", str(target), wheel])


def add_packages(python: Path, arguments: Sequence[str]) -> None:
    """Installs packages into another place, by uv or by pip; both know these arguments."""
    uv = find_uv(python)
    if uv is not None:
        command = [*uv[: uv.index("--python")], *arguments]
        try:
            run(command, uv_environment(pip_settings()))
            return
        except DiskFullError:
            raise
        except SetUpError:
            pass
    pip = pip_of(python)
    if arguments[0] == "--python":
        pip, arguments = [*pip[:3], *arguments[:2]], arguments[2:]
    run([*pip, "install", "--quiet", "--disable-pip-version-check", *arguments])


def say(text: str) -> None:
    """Says something that is not a step."""
    print(f"set-up: {text}", file=sys.stderr, flush=True)


def _keep(text: str) -> None:
    try:
        with open(LOG, "a", encoding="utf-8", errors="replace") as log:
            log.write(text)
    except OSError:
        pass  # the disk is full; the sentence is said all the same


def _short(path: Path) -> str:
    return os.path.relpath(path, ROOT) if path.is_absolute() else str(path)


_held: list[int] = []  # the lock, which commands hold on to as well


@contextmanager
def alone() -> Iterator[None]:
    """Lets no other set-up of this checkout run, nor what one that was killed left running.

    Raises:
        SetUpError: the checkout cannot be written.
    """
    try:
        BUILD.mkdir(exist_ok=True)
        lock = open(BUILD / ".set-up.lock", "w")  # noqa: SIM115 - closed below
    except OSError as error:
        raise failed_on(error) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with Step("waiting for another set-up of this checkout"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        _held[:] = [lock.fileno()]
        try:
            yield
        finally:
            _held.clear()


def set_up(venv: Path, extras: Sequence[str]) -> Path:
    """Makes the environment and installs extras; C compiles meanwhile. Returns its Python."""
    compiling = subprocess.Popen(
        [sys.executable, "-m", "libvgpu._build", *C_TARGETS],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=_held,
    )

    def compiled() -> None:
        said = compiling.communicate()[0].strip()
        if compiling.returncode != 0:
            _keep(f"{said}\n")
            raise failure(said, f"the compilation of the C files {_ended(compiling.returncode)}")
        if said:
            say(said)

    try:
        python, former = make_environment(venv)
        if former:
            extras = list(dict.fromkeys([*extras, "agent", *sorted(former)]))
        (venv / UNFINISHED).touch()
        try:
            install(python, extras, compiled)
        except DiskFullError:
            raise
        except SetUpError:
            (venv / UNFINISHED).unlink()  # installers fail before they write, and clean up
            raise
    finally:
        if compiling.poll() is None:
            compiling.terminate()
            compiling.wait()
    for name in former:
        (venv / f".{name}").touch()
    (venv / UNFINISHED).unlink()
    return python


def main(arguments: Sequence[str]) -> None:
    """Does what the command line says.

    Raises:
        SetUpError: it could not be done.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venv", type=Path)
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--clients", nargs=2, type=Path, metavar=("FOLDER", "FILE"))
    parser.add_argument("--headers", nargs=2, type=Path, metavar=("FOLDER", "FILE"))
    options = parser.parse_args(arguments)
    venv = options.venv.absolute()
    with alone():
        if options.extras:
            set_up(venv, options.extras)
        if options.clients:
            make_clients(venv / "bin/python", *(path.absolute() for path in options.clients))
        if options.headers:
            unpack_headers(venv / "bin/python", *(path.absolute() for path in options.headers))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (SetUpError, OSError) as problem:
        why = failed_on(problem) if isinstance(problem, OSError) else problem
        sys.exit(f"set-up: {why}\nThe same command goes on from here.")
    except KeyboardInterrupt:
        sys.exit("set-up: interrupted\nThe same command goes on from here.")
