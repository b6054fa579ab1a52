"""Which of several named configs a node uses, as the config manager of NVIDIA's plugin decides."""

import itertools

import pytest

from deviceplugin.config.chosen import Fallback, Selection, choose, parse_fallbacks
from libvgpu.errors import ConfigError, UsageError

NAMED, SINGLE, EMPTY = Fallback.NAMED, Fallback.SINGLE, Fallback.EMPTY
LABEL = "label nvidia.com/device-plugin.config"


@pytest.mark.parametrize(
    ("names", "label", "default", "fallbacks", "chosen", "by"),
    [
        # The label comes before everything else.
        (("default", "a100"), "a100", "", (NAMED,), "a100", LABEL),
        (("default", "a100"), "a100", "default", (NAMED,), "a100", LABEL),
        (("default", "a100"), "a100", "missing", (), "a100", LABEL),
        # Then the default, whatever the fallbacks would find.
        (("default", "a100"), "", "a100", (NAMED, SINGLE, EMPTY), "a100", "default config"),
        # Then the fallbacks, in the order that was given.
        (("default", "a100"), "", "", (NAMED, SINGLE), "default", "fallback named"),
        (("a100",), "", "", (NAMED, SINGLE), "a100", "fallback single"),
        (("default",), "", "", (SINGLE, NAMED), "default", "fallback single"),
        (("default",), "", "", (NAMED, SINGLE), "default", "fallback named"),
        (("a", "b"), "", "", (NAMED, SINGLE, EMPTY), None, "fallback empty"),
        (("default", "b"), "", "", (EMPTY, NAMED), None, "fallback empty"),
    ],
)
def test_the_first_that_names_a_config_chooses_it(
    names: tuple[str, ...],
    label: str,
    default: str,
    fallbacks: tuple[Fallback, ...],
    chosen: str | None,
    by: str,
) -> None:
    choice = choose(names, label, Selection(default=default, fallbacks=fallbacks), "/etc/vgpu")

    assert (choice.name, choice.by) == (chosen, by)


@pytest.mark.parametrize(
    ("names", "label", "default", "fallbacks", "said"),
    [
        (("a", "b"), "c", "a", (NAMED, SINGLE, EMPTY), "=c of the node names a config that"),
        (("a", "b"), "c", "", (EMPTY,), "does not have; it has: a, b"),
        (("a", "b"), "", "c", (NAMED, SINGLE, EMPTY), "default config 'c' is not in /etc/vgpu"),
        (("a", "b"), "", "", (NAMED, SINGLE), "the fallbacks (named, single) find none"),
        (("default",), "", "", (), "the fallbacks (none) find none; it has: default"),
        ((), "", "", (EMPTY,), "/etc/vgpu has no config"),
        ((), "a", "", (), "/etc/vgpu has no config"),
    ],
)
def test_what_names_no_config_is_refused_with_those_that_are_there(
    names: tuple[str, ...], label: str, default: str, fallbacks: tuple[Fallback, ...], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        choose(names, label, Selection(default=default, fallbacks=fallbacks), "/etc/vgpu")

    assert said in caught.value.message


def test_another_label_may_choose() -> None:
    choice = choose(("a", "b"), "b", Selection(node_label="example.com/gpus"), "/etc/vgpu")

    assert (choice.name, choice.by) == ("b", "label example.com/gpus")


def test_fallbacks_are_a_list_with_commas() -> None:
    for count in range(4):
        for some in itertools.permutations(Fallback, count):
            assert parse_fallbacks(",".join(some)) == some
    assert parse_fallbacks(" empty , named,") == (EMPTY, NAMED)
    with pytest.raises(UsageError, match="'nothing' is unknown, allowed are: named, single, empty"):
        parse_fallbacks("named,nothing")
