"""Which XIDs count against a GPU, as the environment says in the words of NVIDIA's plugin. Pure.

``DP_DISABLE_HEALTHCHECKS`` and ``DP_ENABLE_HEALTHCHECKS`` are lists of XIDs, separated by commas;
``all`` and ``xids`` stand for every one. What is enabled counts whatever else is said, errors of
programs included; then what is disabled and those errors do not count; all others do.

``all`` disabled and nothing enabled turns the watch off as a whole: NVML is not asked how the GPUs
are either. With ``xids`` it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from libvgpu.sizes import whole_number

from .health import IGNORED_XIDS

DISABLE, ENABLE = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"
_EVERY = frozenset({"all", "xids"})


@dataclass(frozen=True, slots=True)
class CountedXids:
    """What the two variables say.

    Attributes:
        is_watched: the health of GPUs is followed at all.
    """

    enabled: frozenset[int] = frozenset()
    disabled: frozenset[int] = frozenset()
    enables_every: bool = False
    disables_every: bool = False
    is_watched: bool = True

    def counts(self, xid: int) -> bool:
        """Returns whether a critical error counts against its GPU."""
        if self.enables_every or xid in self.enabled:
            return True
        return not (self.disables_every or xid in self.disabled or xid in IGNORED_XIDS)


def counted_xids(environment: Mapping[str, str]) -> tuple[CountedXids, list[str]]:
    """Returns what counts, and a sentence for each word that is left out."""
    disabled, disabling_words, problems = _read(environment, DISABLE)
    enabled, enabling_words, more = _read(environment, ENABLE)
    found = CountedXids(
        enabled,
        disabled,
        bool(enabling_words),
        bool(disabling_words),
        is_watched="all" not in disabling_words or bool(enabled or enabling_words),
    )
    return found, problems + more


def _read(
    environment: Mapping[str, str], name: str
) -> tuple[frozenset[int], frozenset[str], list[str]]:
    """Returns the XIDs of a variable, its words for every XID, and what is wrong with it."""
    words = [word.strip() for word in environment.get(name, "").lower().split(",")]
    xids, every, problems = set(), set(), []
    for word in filter(None, words):
        if word in _EVERY:
            every.add(word)
        elif number := whole_number(word):
            xids.add(number)
        else:
            problems.append(
                f"{name} names {word!r}, which is not an XID and is ignored; allowed are all, "
                "xids, and numbers above 0 separated by commas"
            )
    return frozenset(xids), frozenset(every), problems
