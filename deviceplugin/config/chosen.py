"""Which of several named configs a node uses: the one that its label names, else a fallback.

The rules are those of the config manager of NVIDIA's device plugin, so that a ConfigMap written for
it chooses the same here: a label that is set must name a config that is there; a label that is not
set, or empty, leaves it to the default config, and without one to the fallbacks in their order.
Pure; nothing here keeps state.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from libvgpu.errors import ConfigError, UsageError

NODE_LABEL = "nvidia.com/device-plugin.config"
#: The config that `Fallback.NAMED` looks for.
NAMED = "default"


class Fallback(StrEnum):
    """What to use where neither the label nor the default names a config."""

    NAMED = "named"
    SINGLE = "single"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Selection:
    """How a node finds its config in a directory of them.

    Attributes:
        node_label: key of the Node's label whose value is a config's name.
        default: the config of nodes without that label; empty for none.
        fallbacks: tried in this order where there is no default.
    """

    node_label: str = NODE_LABEL
    default: str = ""
    fallbacks: tuple[Fallback, ...] = (Fallback.NAMED, Fallback.SINGLE)


@dataclass(frozen=True, slots=True)
class Choice:
    """The config that is to be used.

    Attributes:
        name: of the config; None for one that says nothing at all.
        by: what chose it, for messages.
    """

    name: str | None
    by: str


def parse_fallbacks(text: str) -> tuple[Fallback, ...]:
    """Returns the fallbacks of a list with commas between them; an empty text is none.

    Raises:
        UsageError: one of them is unknown.
    """
    found = []
    for word in (each.strip() for each in text.split(",")):
        if not word:
            continue
        try:
            found.append(Fallback(word))
        except ValueError:
            raise UsageError(
                f"fallback strategy {word!r} is unknown, allowed are: {', '.join(Fallback)}"
            ) from None
    return tuple(found)


def choose(names: Collection[str], label: str, selection: Selection, place: str) -> Choice:
    """Returns which of several configs a node uses.

    Args:
        names: of the configs that are there.
        label: value of the node's label; empty where it is not set.
        place: where the configs are, for messages.

    Raises:
        ConfigError: none is there, the named one is not, or no fallback finds one.
    """
    if not names:
        raise ConfigError(f"{place} has no config; it must have one file for each named config")
    there = ", ".join(sorted(names))
    if label:
        if label not in names:
            raise ConfigError(
                f"label {selection.node_label}={label} of the node names a config that {place} "
                f"does not have; it has: {there}"
            )
        return Choice(label, f"label {selection.node_label}")
    if selection.default:
        if selection.default not in names:
            raise ConfigError(
                f"the default config {selection.default!r} is not in {place}; it has: {there}"
            )
        return Choice(selection.default, "default config")
    for fallback in selection.fallbacks:
        if fallback is Fallback.NAMED and NAMED in names:
            return Choice(NAMED, f"fallback {fallback}")
        if fallback is Fallback.SINGLE and len(names) == 1:
            return Choice(next(iter(names)), f"fallback {fallback}")
        if fallback is Fallback.EMPTY:
            return Choice(None, f"fallback {fallback}")
    tried = ", ".join(selection.fallbacks) or "none"
    raise ConfigError(
        f"no config of {place} is chosen: the node has no label {selection.node_label}, no default "
        f"config is set, and the fallbacks ({tried}) find none; it has: {there}"
    )
