"""Every value of a config, and where it comes from."""

from typing import Any

from deviceplugin.config.effective import effective
from deviceplugin.config.loading import parse_config
from deviceplugin.config.overrides import said_flags

TEXT = """\
version: v1
flags:
  migStrategy: none
sharing:
  fractional:
    - family: vgpu
      devices: [0, 1]
limits:
  - match: {namespace: team-a}
    core: 30
"""


def values(text: str = TEXT, **environment: str) -> dict[str, tuple[Any, str]]:
    config = parse_config(text, "config", said_flags({}, environment))
    return {each.key: (each.value, each.origin) for each in effective(config)}


def test_what_the_file_says_names_its_line() -> None:
    found = values()
    assert found["flags.migStrategy"] == ("none", "line 3")
    assert found["sharing.fractional[0].family"] == ("vgpu", "line 6")
    assert found["sharing.fractional[0].devices"] == ([0, 1], "line 7")
    assert found["limits[0].match.namespace"] == ("team-a", "line 9")
    assert found["limits[0].core"] == (30, "line 10")


def test_what_nobody_says_has_its_default() -> None:
    found = values()
    assert found["sharing.fractional[0].memoryUnit"] == ("1Gi", "default")
    assert found["resourceDomain"] == ("nvidia.com", "default")
    assert found["flags.plugin.deviceListStrategy"] == ("envvar", "default")
    assert found["mig"] == ([], "default")


def test_a_variable_counts_more_than_the_file_and_says_so() -> None:
    assert values(MIG_STRATEGY="mixed")["flags.migStrategy"] == ("mixed", "MIG_STRATEGY")
