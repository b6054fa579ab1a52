"""An environment is made by uv or by pip, and an interrupted run is completed."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support import ROOT


@pytest.fixture
def set_up() -> ModuleType:
    """The program, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("set_up", ROOT / "deploy/dev/set_up.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def commands(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is run, of programs that are named here; ``bad`` fails."""
    ran: list[str] = []

    def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        ran.append(" ".join(command))
        if command[0] == "bad":
            raise set_up.SetUpError("no route to host")

    monkeypatch.setattr(set_up, "run", run)
    monkeypatch.setattr(set_up, "pip_settings", lambda python: {})
    return ran


def install(set_up: ModuleType, monkeypatch: Any, uv: list[str] | None, pip: str) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(set_up, "find_uv", lambda python: uv)
    monkeypatch.setattr(set_up, "pip_of", lambda python: [pip])
    set_up.install(Path("python"), ["agent", "demo"], said.append)
    return said


def test_pip_takes_the_place_of_a_uv_that_fails(
    set_up: ModuleType, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert install(set_up, monkeypatch, ["bad"], "pip") == [
        "uv failed, so pip takes its place: no route to host"
    ]
    assert [command.split()[0] for command in commands] == ["bad", "pip", "pip"]
    assert commands[-1].endswith("-e .[agent,demo]")


def test_pip_is_not_asked_where_uv_does_it(
    set_up: ModuleType, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert install(set_up, monkeypatch, ["uv"], "pip") == []
    assert [command.split()[0] for command in commands] == ["uv", "uv"]


@pytest.mark.usefixtures("commands")
def test_what_helps_is_said_where_neither_can(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(set_up.SetUpError, match=r"(?s)no route to host.*pip config list"):
        install(set_up, monkeypatch, None, "bad")


def test_uv_asks_the_indexes_that_pip_was_told(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("UV_DEFAULT_INDEX", "UV_NATIVE_TLS"):
        monkeypatch.delenv(name, raising=False)
    settings = {
        "global.index-url": "https://old/simple",
        ":env:.index-url": "https://new/simple",
        "global.extra-index-url": "https://more/simple",
        "global.timeout": "5",
    }
    told = set_up.uv_environment(settings)
    assert told == {
        "UV_DEFAULT_INDEX": "https://new/simple",
        "UV_INDEX": "https://more/simple",
        "UV_NATIVE_TLS": "1",
    }
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own/simple")  # uv's own settings come first
    assert "UV_DEFAULT_INDEX" not in set_up.uv_environment(settings)


@pytest.mark.process
def test_an_environment_that_does_not_run_is_made_again(set_up: ModuleType, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    python = set_up.make_environment(venv)
    (venv / "kept").touch()
    assert set_up.make_environment(venv) == python
    assert (venv / "kept").exists()
    python.unlink()
    python.symlink_to("/nowhere/python3")  # another Python was there, or the disk was full
    set_up.make_environment(venv)
    assert set_up.answers([str(python), "-c", "pass"])


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


@pytest.mark.process
def test_what_a_command_said_last_is_why_it_failed(set_up: ModuleType) -> None:
    program = "import sys; print('\\n'.join(map(str, range(99)))); sys.exit('no space left')"
    with pytest.raises(set_up.SetUpError, match=r"^80\n(?s:.*)\n98$|no space left"):
        set_up.run([sys.executable, "-c", program])
