"""What does not go into a support bundle, and how names are replaced. Pure.

A command line may hold a password, so of each only the program's name is kept. With names replaced,
each namespace, pod, container and node that is known becomes ``anon-`` and the beginning of its
SHA-256: the same in every bundle, so that two can be compared. Who guesses a name can therefore
test the guess; it is meant against reading along, not against an attacker.
"""

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from deviceplugin.pages.events import KeptEvent
from libvgpu.allocation_dirs import AllocationMeta

_SHOWN_DIGITS = 12
#: Neither letter, digit, ``_``, ``-`` nor a dot within a name may stand next to one.
_BEFORE, _AFTER = r"(?<![A-Za-z0-9_-])(?<![A-Za-z0-9]\.)", r"(?![A-Za-z0-9_-])(?!\.[A-Za-z0-9])"
_LEFT_OUT = "(arguments are left out)"
#: Of the config: what the values below these keys name.
_NAMING_KEYS = re.compile(
    r"^(?:limits|quotas)\[\d+\](?:\.match)?\.(?:namespace|container|podLabels\..+)$"
)


def without_arguments(value: Any) -> Any:
    """Returns a value without what stands behind the programs of its command lines."""
    if isinstance(value, Mapping):
        return {
            key: _program(inner)
            if key == "command" and isinstance(inner, list)
            else without_arguments(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_arguments(inner) for inner in value]
    return value


def _program(command: list[Any]) -> list[str]:
    if not command:
        return []
    name = os.path.basename(str(command[0]))
    return [name, _LEFT_OUT] if len(command) > 1 else [name]


def names_of_tenants(
    metas: Iterable[AllocationMeta],
    owners: Iterable[str],
    events: Iterable[KeptEvent],
    config: Mapping[str, Any],
) -> set[str]:
    """Returns the names of namespaces, pods and containers that are known here.

    Args:
        owners: NAMESPACE/POD/CONTAINER.
        config: values by key, as ``/v1/config`` has them.
    """
    found = {name for meta in metas for name in (meta.namespace, meta.pod, meta.container)}
    for subject in (*owners, *(event.subject for event in events)):
        if "/" in subject:
            found.update(subject.split("/"))
    found.update(
        str(value) for key, value in config.items() if _NAMING_KEYS.match(key) and value != "*"
    )
    return found - {""}


class Names:
    """Replaces names."""

    def __init__(self, names: Collection[str]) -> None:
        """Takes the names to replace; with none of them a text stays as it is."""
        longest_first = sorted(names, key=lambda name: (-len(name), name))
        self._pattern = re.compile(
            f"{_BEFORE}(?:{'|'.join(map(re.escape, longest_first))}){_AFTER}"
        )
        self._is_used = bool(names)

    def replaced(self, text: str) -> str:
        """Returns a text without the names."""
        return self._pattern.sub(lambda match: stable(match[0]), text) if self._is_used else text

    def in_values(self, value: Any) -> Any:
        """Returns a value whose texts are without them; keys stay, since programs read them."""
        if isinstance(value, str):
            return self.replaced(value)
        if isinstance(value, Mapping):
            return {key: self.in_values(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.in_values(inner) for inner in value]
        return value


def stable(name: str) -> str:
    """Returns what stands for a name."""
    return f"anon-{hashlib.sha256(name.encode()).hexdigest()[:_SHOWN_DIGITS]}"
