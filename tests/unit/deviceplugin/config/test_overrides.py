"""Flags of command line and environment over the file: each name, and who counts more."""

from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from deviceplugin import __main__ as command_line
from deviceplugin.config.loading import parse_config
from deviceplugin.config.overrides import FLAG_NAMES, FlagName, Kind, said_flags
from deviceplugin.config.plain_data import put_over
from deviceplugin.config.schema import allowed_keys
from deviceplugin.model.agent_config import SaidFlag
from deviceplugin.settings import AgentSettings
from libvgpu.errors import ConfigError, UsageError
from libvgpu.places import Places

SAMPLES: Mapping[Kind, tuple[str, Any]] = {
    Kind.TEXT: ("word", "word"),
    Kind.BOOLEAN: ("true", True),
    Kind.TEXTS: ("envvar,cdi-cri", ["envvar", "cdi-cri"]),
    Kind.NUMBERS: ("0,3", [0, 3]),
}
VARIABLES = [(flag, name) for flag in FLAG_NAMES for name in flag.variables]
OPTIONS = [(flag, name) for flag in FLAG_NAMES for name in flag.options]


@pytest.mark.parametrize(("flag", "name"), VARIABLES, ids=[name for _, name in VARIABLES])
def test_each_variable_reaches_its_key(flag: FlagName, name: str) -> None:
    text, value = SAMPLES[flag.kind]

    assert said_flags({}, {name: text}) == (SaidFlag(flag.key, value, name),)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[AgentSettings]:
    """What agents are started with; none runs, and this process keeps its signal handlers."""
    settings: list[AgentSettings] = []
    monkeypatch.setattr(command_line, "run", lambda given, *_: settings.append(given))
    monkeypatch.setattr(command_line, "NvmlInventory", object)
    monkeypatch.setattr(command_line, "stop_on_signals", lambda: None)
    monkeypatch.setattr("deviceplugin.log.set_up", lambda: None)
    monkeypatch.setattr(command_line, "return_freed_memory", lambda: None)
    return settings


@pytest.mark.parametrize(("flag", "name"), OPTIONS, ids=[name for _, name in OPTIONS])
def test_each_option_reaches_its_key(flag: FlagName, name: str, seen: list[AgentSettings]) -> None:
    text, value = SAMPLES[flag.kind]

    result = CliRunner().invoke(command_line.main, ["--config", "c.yaml", f"{name}={text}"], env={})

    assert result.exit_code == 0, result.output
    assert seen[0].said == (SaidFlag(flag.key, value, flag.options[0]),)


def test_a_boolean_option_may_stand_alone(seen: list[AgentSettings]) -> None:
    CliRunner().invoke(command_line.main, ["--pass-device-specs", "--config", "c.yaml"], env={})

    assert seen[0].said[0].value is True


@pytest.mark.parametrize("flag", FLAG_NAMES, ids=lambda flag: flag.key)
def test_each_key_is_one_of_the_file(flag: FlagName) -> None:
    *sections, last = flag.key.split(".")

    assert last in allowed_keys(list(sections))


def test_the_file_counts_least_and_the_command_line_most() -> None:
    text = "version: v1\nflags: {migStrategy: single}\n"

    def strategy(options: dict[str, list[str]], environment: dict[str, str]) -> str:
        return parse_config(text, "c", said_flags(options, environment)).whole.mig_strategy

    assert strategy({}, {}) == "single"
    assert strategy({}, {"MIG_STRATEGY": "mixed"}) == "mixed"
    assert strategy({"--mig-strategy": ["none"]}, {"MIG_STRATEGY": "mixed"}) == "none"
    assert strategy({}, {"MIG_STRATEGY": ""}) == "single"


def test_a_wrong_value_names_who_said_it() -> None:
    with pytest.raises(ConfigError, match=r"^MIG_STRATEGY: flags.migStrategy is 'all', allowed"):
        parse_config("version: v1\n", "c", said_flags({}, {"MIG_STRATEGY": "all"}))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("FAIL_ON_INIT_ERROR", "maybe", id="boolean"),
        pytest.param("IMEX_CHANNEL_IDS", "0,a", id="number"),
        pytest.param("IMEX_CHANNEL_IDS", "1" * 4301, id="more-digits-than-int-reads"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"^{name} is '{text}', allowed are"):
        said_flags({}, {name: text})


def test_a_file_that_is_wrong_itself_is_what_is_reported() -> None:
    said = said_flags({}, {"PASS_DEVICE_SPECS": "true"})

    assert put_over({"flags": 3}, Places("c"), said) == {"flags": 3}
    with pytest.raises(ConfigError, match="line 2: flags must be a mapping"):
        parse_config("version: v1\nflags: 3\n", "c", said)
