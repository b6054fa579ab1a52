"""Makes the environment of a checkout, or adds to it.

``python3 deploy/dev/set_up.py VENV EXTRA...``: EXTRA are the optional dependencies in
pyproject.toml that a target of the Makefile needs. While packages are downloaded, the C files that
need none are compiled. Packages are installed by uv, which takes seconds where pip takes half a
minute; where uv cannot be had, or fails, by pip. An environment that an interrupted run left half
made is completed. The standard library is all that this needs, since it comes before everything
else.
"""

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
#: What builds the project; it has to be there before the project is installed.
BUILD_PACKAGES = ("setuptools>=77", "cffi>=1.17")
#: The targets of libvgpu/_build.py that a C compiler alone can build.
C_TARGETS = ("shim", "libcuda", "libnvidia_ml")
# An editable install of mode "compat" is a line of a .pth file. The finder of the default mode
# takes half of the time in which a Python starts, and tests start thousands.
EDITABLE = ("--no-build-isolation", "--config-settings", "editable_mode=compat", "-e")

_QUIET_SECONDS = 15.0  # without a terminal, a step that takes longer says that it goes on


class SetUpError(Exception):
    """It cannot be set up; says why and what helps."""


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
        print(f"{begin}set-up: {self._what} {verb} {took_s:.1f} s", end=end, file=sys.stderr,
              flush=True)  # fmt: skip


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Runs a command.

    Raises:
        SetUpError: it failed; has the end of what it said.
    """
    try:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **(environment or {})}, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    except OSError as error:
        raise SetUpError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise SetUpError("\n".join(done.stdout.strip().splitlines()[-20:]))


def answers(command: Sequence[str]) -> bool:
    """Returns whether a command can be run and succeeds."""
    try:
        run(command)
    except SetUpError:
        return False
    return True


def make_environment(venv: Path) -> Path:
    """Returns the Python of the environment, which is made where it is missing or does not run."""
    python = venv / "bin/python"
    if answers([str(python), "-c", "import sys; assert sys.prefix != sys.base_prefix"]):
        return python
    with Step(f"a new environment in {_short(venv)}"):
        try:
            run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(venv)])
        except SetUpError as error:
            raise SetUpError(
                f"{sys.executable} -m venv failed: {error}\n"
                "hint: sudo apt-get install python3-venv; or name another Python: "
                "make PYTHON=python3.12"
            ) from None
    return python


def pip_of(python: Path) -> list[str]:
    """Returns the command of a pip that installs into the environment.

    That of the Python that runs this is taken where it has one; else the environment gets its own.
    """
    outer = [sys.executable, "-m", "pip", "--python", str(python)]
    if not answers([str(python), "-m", "pip", "--version"]):
        if answers([*outer, "--version"]):
            return outer
        with Step("pip for the environment"):
            run([str(python), "-m", "ensurepip", "--default-pip"])
    return [str(python), "-m", "pip"]


def find_uv(python: Path) -> list[str] | None:
    """Returns the command of uv, which is installed if it is missing; None if it cannot be had."""
    own = python.with_name("uv")
    for program in (str(own), shutil.which("uv")):
        if program and answers([program, "--version"]):
            return [program, "pip", "install", "--python", str(python)]
    try:
        with Step("uv, which installs packages quickly,"):
            run([*pip_of(python), "install", "--quiet", "--disable-pip-version-check", "uv"])
    except SetUpError:
        return None
    return [str(own), "pip", "install", "--python", str(python)]


def uv_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns what tells uv what pip was told of package indexes and certificates.

    Args:
        settings: of pip, as ``pip config`` names them (``global.index-url``).
    """
    told: dict[str, str] = {}
    names = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
        "no-index": "UV_NO_INDEX",
        "trusted-host": "UV_INSECURE_HOST",
        "cert": "SSL_CERT_FILE",
    }
    for section in ("global.", "install.", ":env:."):  # the later ones count more
        for name, variable in names.items():
            if section + name in settings:
                told[variable] = settings[section + name]
    # Certificates of the machine, as pip has them.
    told.setdefault("UV_NATIVE_TLS", "1")
    return {name: value for name, value in told.items() if name not in os.environ}


def pip_settings(python: Path) -> dict[str, str]:
    """Returns pip's settings, of its files and its variables."""
    done = subprocess.run(
        [*pip_of(python), "config", "list"], capture_output=True, text=True, check=False
    )
    settings = {}
    for line in done.stdout.splitlines():
        name, is_one, value = line.partition("=")
        if is_one:
            settings[name] = " ".join(value.strip("'\"").replace("\\n", " ").split())
    return settings


def install(python: Path, extras: Sequence[str], log: Callable[[str], None]) -> None:
    """Installs what builds the project, what the extras need, and the project as editable.

    Raises:
        SetUpError: neither uv nor pip can.
    """
    project = [*EDITABLE, f".[{','.join(extras)}]"]
    uv = find_uv(python)
    if uv is not None:
        environment = uv_environment(pip_settings(python))
        try:
            with Step("packages that build the project"):
                run([*uv, *BUILD_PACKAGES], environment)
            with Step(f"the project with {', '.join(extras)}"):
                run([*uv, *project], environment)
            return
        except SetUpError as error:
            log(f"uv failed, so pip takes its place: {error}")
    pip = [*pip_of(python), "install", "--quiet", "--disable-pip-version-check"]
    try:
        with Step("packages that build the project (pip)"):
            run([*pip, *BUILD_PACKAGES])
        with Step(f"the project with {', '.join(extras)} (pip)"):
            run([*pip, *project])
    except SetUpError as error:
        raise SetUpError(
            f"packages cannot be installed: {error}\n"
            "hint: is the network there, and the right index set (pip config list)? Is the disk "
            "full (df -h)?"
        ) from None


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
            run(command, uv_environment(pip_settings(python)))
            return
        except SetUpError:
            pass
    pip = pip_of(python)
    if arguments[0] == "--python":
        pip, arguments = [*pip[:3], *arguments[:2]], arguments[2:]
    run([*pip, "install", "--quiet", "--disable-pip-version-check", *arguments])


def _short(path: Path) -> str:
    return os.path.relpath(path, ROOT) if path.is_absolute() else str(path)


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
    python = make_environment(options.venv.absolute())
    if options.clients:
        make_clients(python, *(path.absolute() for path in options.clients))
    if options.headers:
        unpack_headers(python, *(path.absolute() for path in options.headers))
    if not options.extras:
        return
    compiling = subprocess.Popen(
        [sys.executable, "-m", "libvgpu._build", *C_TARGETS], cwd=ROOT,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        install(python, options.extras, lambda text: print(f"set-up: {text}", file=sys.stderr))
        said = compiling.communicate()[0].strip()
    except BaseException:
        compiling.terminate()
        compiling.wait()
        raise
    if compiling.returncode != 0:
        raise SetUpError(said)
    if said:
        print(f"set-up: {said}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (SetUpError, OSError) as problem:
        sys.exit(f"set-up: {problem}\nThe same command goes on from here.")
    except KeyboardInterrupt:
        sys.exit(130)
