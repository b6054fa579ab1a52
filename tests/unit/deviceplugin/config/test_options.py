"""Every option of agent and MPS runner that says where the config is, and its variable."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deviceplugin import __main__ as agent_program
from deviceplugin.config.chosen import Fallback, Selection
from deviceplugin.mps import runner as runner_program

VARIABLES = (
    "CONFIG_FILE",
    "CONFIG_FILE_SRCDIR",
    "NODE_LABEL",
    "DEFAULT_CONFIG",
    "FALLBACK_STRATEGIES",
    "VGPU_STATE_DIR",
    "NODE_NAME",
)
CONFIG = "--config=/etc/vgpu"


class Caught:
    """What a program would have run with."""

    def __init__(self) -> None:
        self.arguments: tuple[Any, ...] = ()

    def run(self, *arguments: Any) -> None:
        self.arguments = arguments

    @property
    def settings(self) -> Any:
        return self.arguments[0]


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> Caught:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    caught = Caught()
    for program in (agent_program, runner_program):
        monkeypatch.setattr(program, "run", caught.run)
        monkeypatch.setattr(program, "stop_on_signals", lambda: None)
        monkeypatch.setattr(program.log, "set_up", lambda: None)
    monkeypatch.setattr(agent_program, "return_freed_memory", lambda: None)
    return caught


def call(*options: str, command: Any = agent_program.main, **variables: str) -> Result:
    return CliRunner().invoke(command, options, env=variables)


@pytest.mark.parametrize(
    ("options", "variables", "selection"),
    [
        (
            (),
            {},
            Selection("nvidia.com/device-plugin.config", "", (Fallback.NAMED, Fallback.SINGLE)),
        ),
        (("--node-label=a/b",), {}, Selection(node_label="a/b")),
        ((), {"NODE_LABEL": "a/b"}, Selection(node_label="a/b")),
        (("--node-label=c/d",), {"NODE_LABEL": "a/b"}, Selection(node_label="c/d")),
        (("--default-config=x",), {}, Selection(default="x")),
        ((), {"DEFAULT_CONFIG": "x"}, Selection(default="x")),
        (("--default-config=y",), {"DEFAULT_CONFIG": "x"}, Selection(default="y")),
        (("--fallback-strategies=empty",), {}, Selection(fallbacks=(Fallback.EMPTY,))),
        (("--fallback-strategies=",), {}, Selection(fallbacks=())),
        (
            (),
            {"FALLBACK_STRATEGIES": "single,empty"},
            Selection(fallbacks=(Fallback.SINGLE, Fallback.EMPTY)),
        ),
        (
            ("--fallback-strategies=named",),
            {"FALLBACK_STRATEGIES": "single,empty"},
            Selection(fallbacks=(Fallback.NAMED,)),
        ),
    ],
)
def test_options_come_before_variables_and_these_before_defaults(
    caught: Caught, options: tuple[str, ...], variables: dict[str, str], selection: Selection
) -> None:
    result = call(CONFIG, *options, **variables)

    assert result.exit_code == 0, result.output
    assert caught.settings.selection == selection


@pytest.mark.parametrize("program", [agent_program, runner_program])
@pytest.mark.parametrize(
    ("options", "variables", "path"),
    [
        (("--config=/a",), {}, "/a"),
        ((), {"CONFIG_FILE": "/b"}, "/b"),
        ((), {"CONFIG_FILE_SRCDIR": "/c"}, "/c"),
        ((), {"CONFIG_FILE": "/b", "CONFIG_FILE_SRCDIR": "/c"}, "/c"),
        (("--config=/a",), {"CONFIG_FILE": "/b", "CONFIG_FILE_SRCDIR": "/c"}, "/a"),
    ],
)
def test_the_config_is_a_file_or_a_directory_by_nvidias_variables(
    caught: Caught,
    program: Any,
    options: tuple[str, ...],
    variables: dict[str, str],
    path: str,
) -> None:
    result = call(*options, command=program.main, **variables)

    assert result.exit_code == 0, result.output
    first = caught.arguments[0]
    assert (first if isinstance(first, Path) else first.config) == Path(path)


def test_the_state_directory_is_the_same_for_agent_and_runner(caught: Caught) -> None:
    def seen(*options: str, **variables: str) -> tuple[Path, Path]:
        assert call(CONFIG, *options, **variables).exit_code == 0
        of_agent = caught.settings.state_dir
        assert call(CONFIG, *options, command=runner_program.main, **variables).exit_code == 0
        return of_agent, caught.arguments[-3]

    assert seen() == (Path("/var/lib/vgpu"),) * 2
    assert seen(VGPU_STATE_DIR="/s") == (Path("/s"),) * 2
    assert seen("--state-dir=/t", VGPU_STATE_DIR="/s") == (Path("/t"),) * 2


def test_wrong_ones_end_it_with_status_2_and_what_is_allowed(caught: Caught) -> None:
    nothing = call()
    unknown = call(CONFIG, "--fallback-strategies=named,other")
    nameless = call(CONFIG, "--node-label=")

    assert (nothing.exit_code, unknown.exit_code, nameless.exit_code) == (2, 2, 2)
    assert "Missing option '--config'" in nothing.output
    assert "'other' is unknown, allowed are: named, single, empty" in unknown.output
    assert "--node-label is empty" in nameless.output
    assert not caught.arguments
