"""What was found out of nodes, as kube-scheduler is told it and as metrics count it. Pure."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from deviceplugin.scheduler.search.plans import Refusal

from .calls import Judgement
from .verdicts import Verdict


class Finding(StrEnum):
    """What a node is for a pod, as metrics tell it."""

    FITS = "fits"
    NO_ROOM = "no-room"
    IMPOSSIBLE = "impossible"
    NO_INVENTORY = "no-inventory"
    QUOTA = "quota"


def judged(
    names: Sequence[str],
    found: Mapping[str, Verdict],
    over: Callable[[str], str | None],
) -> tuple[Judgement, dict[Finding, int]]:
    """Returns what is told of nodes, and how many were found what.

    Args:
        found: by node; nodes that are not known are not among them.
        over: says why a node that fits would go beyond a quota, None where it would not.
    """
    fitting: list[str] = []
    refused: dict[str, str] = {}
    impossible: dict[str, str] = {}
    unknown = beyond = 0
    for name in names:
        answer = found.get(name)
        if answer is None:
            unknown += 1
            impossible[name] = no_inventory(name)
        elif isinstance(answer, Refusal):
            (refused if answer.resolvable else impossible)[name] = answer.reason
        elif (reason := over(name)) is not None:
            # Whoever is ended for it may be of another namespace, so nobody is.
            beyond += 1
            impossible[name] = reason
        else:
            fitting.append(name)
    counts = {
        Finding.FITS: len(fitting),
        Finding.NO_ROOM: len(refused),
        Finding.IMPOSSIBLE: len(impossible) - unknown - beyond,
        Finding.NO_INVENTORY: unknown,
        Finding.QUOTA: beyond,
    }
    findings = {finding: number for finding, number in counts.items() if number}
    return Judgement(fitting, refused, impossible), findings


def no_inventory(name: str) -> str:
    """Returns the reason why nothing goes to a node that is not known."""
    return (
        f"no inventory of this node: {name[:100]} has no node agent that publishes one, or it "
        "has not started yet"
    )
