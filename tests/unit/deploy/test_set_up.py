"""What setting up asks of its tools, and what it says where they fail."""

import errno
import fcntl
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support import ROOT


@pytest.fixture
def set_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The program, which is no module of a package; its log and lock lie elsewhere."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy/dev"))
    spec = importlib.util.spec_from_file_location("set_up", ROOT / "deploy/dev/set_up.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "BUILD", tmp_path / "build")
    monkeypatch.setattr(module, "LOG", tmp_path / "set-up.log")
    yield module
    del sys.modules["package_index"]


@pytest.fixture
def commands(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is run, of programs that are named here; ``bad`` and ``full`` fail."""
    ran: list[str] = []

    def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        ran.append(" ".join(command))
        if command[0] in ("bad", "full"):
            raise {"bad": set_up.SetUpError, "full": set_up.DiskFullError}[command[0]]("no route")

    monkeypatch.setattr(set_up, "run", run)
    return ran


def install(set_up: ModuleType, monkeypatch: Any, uv: list[str] | None, pip: str) -> None:
    monkeypatch.setattr(set_up, "find_uv", lambda python: uv)
    monkeypatch.setattr(set_up, "pip_of", lambda python: [pip])
    set_up.install(Path("python"), ["agent", "demo"], lambda: None)


def test_pip_takes_the_place_of_a_uv_that_fails(
    set_up: ModuleType,
    commands: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(set_up, monkeypatch, ["bad"], "pip")

    assert "uv failed, so pip takes its place: no route" in capsys.readouterr().err
    assert [command.split()[0] for command in commands] == ["bad", "pip", "pip"]
    assert "grpcio" in commands[1] and "cuda-bindings" in commands[1]
    assert "pytest" not in commands[1]
    assert commands[-1].endswith("--no-deps " + " ".join(set_up.EDITABLE) + " .")


def test_pip_is_not_asked_where_uv_does_it_or_finds_no_room(
    set_up: ModuleType, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(set_up, monkeypatch, ["uv"], "pip")
    assert [command.split()[0] for command in commands] == ["uv", "uv"]
    assert commands[0].endswith("-r pyproject.toml --extra=agent --extra=demo")

    with pytest.raises(set_up.DiskFullError):
        install(set_up, monkeypatch, ["full"], "pip")
    assert len(commands) == 3


@pytest.mark.usefixtures("commands")
@pytest.mark.parametrize("uv", [None, ["bad"]])
def test_what_helps_is_said_where_neither_can(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch, uv: list[str] | None
) -> None:
    with pytest.raises(set_up.SetUpError, match=r"\(no route\); check the network, and index-url"):
        install(set_up, monkeypatch, uv, "bad")


def test_uv_asks_the_indexes_that_pip_was_told(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("UV_")]:
        monkeypatch.delenv(name)
    settings = {
        "global.index-url": "https://old/simple",
        ":env:.index-url": "https://new/simple",
        "global.extra-index-url": "https://more/simple",
        "global.timeout": "5",
    }
    told = set_up.uv_environment(settings)
    assert told["UV_DEFAULT_INDEX"] == "https://new/simple"
    assert told["UV_INDEX"] == "https://more/simple"
    assert "UV_CACHE_DIR" not in told
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own/simple")  # uv's own settings come first
    assert "UV_DEFAULT_INDEX" not in set_up.uv_environment(settings)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/no/such/home")
    assert set_up.uv_environment(settings)["UV_CACHE_DIR"] == str(set_up.BUILD / "uv-cache")


@pytest.mark.process
def test_an_environment_that_does_not_run_or_is_unfinished_is_made_again(
    set_up: ModuleType, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    python, _ = set_up.make_environment(venv)
    for name in ("kept", ".demo", ".lint", ".other"):
        (venv / name).touch()
    assert set_up.make_environment(venv) == (python, set())
    assert (venv / "kept").exists()

    (venv / set_up.UNFINISHED).touch()
    assert set_up.make_environment(venv) == (python, {"demo", "lint"})
    assert not (venv / "kept").exists()

    packages = next(venv.glob("lib/python3*/site-packages"))
    packages.rename(venv / "lib/of-another-version")
    set_up.make_environment(venv)
    assert packages.exists()

    python.unlink()
    python.symlink_to("/nowhere/python3")
    set_up.make_environment(venv)
    assert set_up.answers([str(python), "-c", "pass"])


@pytest.mark.process
def test_a_python_that_makes_no_environment_is_named_with_what_helps(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_up.sys, "executable", "/bin/false")
    with pytest.raises(set_up.SetUpError, match=r"^/bin/false .*apt-get install python3-venv.*ON="):
        set_up.make_environment(tmp_path / "venv")


def test_another_set_up_of_the_checkout_is_waited_for(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def flock(lock: Any, how: int) -> None:
        asked.append(how)
        if how & fcntl.LOCK_NB:
            raise BlockingIOError

    with (
        set_up.alone(),
        open(set_up.BUILD / ".set-up.lock") as lock,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(set_up.fcntl, "flock", flock)
    with set_up.alone():
        assert asked == [fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX]
    assert "waiting for another set-up of this checkout" in capsys.readouterr().err


def test_a_step_says_how_long_it_took_or_that_it_failed(
    set_up: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with set_up.Step("this"):
        pass
    with pytest.raises(ZeroDivisionError), set_up.Step("that"):
        _ = 1 / 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("set-up: this took ")
    assert second.startswith("set-up: that failed after ")


UV_SAID = """Downloading grpcio
error: Request failed after 3 retries
  cause: Failed to fetch: http://index/grpcio/
  cause: status 503
"""


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (UV_SAID, "^error: Request failed after 3 retries; cause: status 503$"),
        ("a.c:1:10: fatal error: stdio.h: No such file\ncompilation stopped", "stdio.h: No such"),
        ("WARNING: x\nERROR: first\nbetween\nERROR: last\n", "^ERROR: first; ERROR: last$"),
        ("one\ntwo\n", "^two$"),
        ("", "^false ended with 1$"),
        ("x" * 900 + "the end", "^… x+the end$"),
        ("OSError: [Errno 28] Kein Platz", r"^a disk is full \(.*Kein Platz\).*df -h "),
        ("Disk quota exceeded (os error 122)\nerror: y", "^a disk is full"),
    ],
)
def test_one_line_says_why_a_command_failed(set_up: ModuleType, said: str, sentence: str) -> None:
    with pytest.raises(set_up.SetUpError, match=sentence):
        raise set_up.failure(said, "false ended with 1")


@pytest.mark.process
def test_all_that_a_failed_command_said_is_kept(set_up: ModuleType) -> None:
    with pytest.raises(set_up.SetUpError, match="no space left"):
        set_up.run([sys.executable, "-c", "print('first'); raise SystemExit('no space left')"])
    assert "first\n" in set_up.LOG.read_text()


@pytest.mark.process
def test_a_command_that_was_killed_is_called_so(set_up: ModuleType) -> None:
    with pytest.raises(set_up.SetUpError, match=r"^sh was ended by SIGKILL \(where memory runs"):
        set_up.run(["sh", "-c", "kill -9 $$"])


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EROFS, r"/x: Read-only file system; clone into .* sudo chown -R \$USER "),
        (errno.ENOSPC, r"a disk is full \(/x: No space"),
        (errno.ENOENT, "^/x: No such file"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_with_what_helps(
    set_up: ModuleType, number: int, sentence: str
) -> None:
    with pytest.raises(set_up.SetUpError, match=sentence):
        raise set_up.failed_on(OSError(number, os.strerror(number), "/x"))
