"""What the throttle's figures mean, as a sentence. Pure."""

from dataclasses import dataclass

from libvgpu.limits import WHOLE_CORE_PERCENT, ComputeMode, Family
from libvgpu.sharing_mode import Mode

#: Held less than this is nothing that a program notices.
_NOTICED_PERCENT = 1.0
#: A share this close to its cap uses all of it.
_NEAR_PERCENT = 1.0


@dataclass(frozen=True, slots=True)
class Throttle:
    """How a slice's compute is held on one GPU.

    Attributes:
        core_percent: its share; 0 is left-overs only.
        share_percent: of the GPU's time lately; None where nothing is measured.
        held_percent: of the time lately; of several launches at once it sums up.
        mode: how the GPU is shared now; None where nobody arbitrates.
    """

    family: Family
    compute: ComputeMode
    core_percent: int
    share_percent: float | None
    held_percent: float
    mode: Mode | None


def verdict(found: Throttle) -> str:  # noqa: PLR0911 - a sentence for each verdict
    """Returns whether its cap binds, and if not, why it is as fast as it is."""
    cap = f"its cap of {found.core_percent}"
    if found.family is Family.MPS:
        return (
            f"MPS holds it to {found.core_percent} % of the GPU's threads; nothing is held back "
            "in time"
        )
    if found.compute is ComputeMode.OFF or (
        found.core_percent == WHOLE_CORE_PERCENT and found.mode in (None, Mode.NONE, Mode.FREE)
    ):
        return "not capped: it may use all of the GPU's time"
    if not found.core_percent and found.mode is Mode.FREE:
        return "not capped now: nobody else uses the GPU, so all of its time is left over"
    held = min(100.0, found.held_percent)
    if held >= _NOTICED_PERCENT and found.mode is Mode.WINDOWS:
        return (
            f"held {held:.0f} % of the time: together the containers want more than the GPU, so "
            f"they take turns, and {_share_of(found)}"
        )
    if held >= _NOTICED_PERCENT and found.core_percent == 0:
        return f"held {held:.0f} % of the time: it asked for no core, so it has what others leave"
    if held >= _NOTICED_PERCENT:
        return f"held {held:.0f} % of the time by {cap}"
    if found.share_percent is None:
        return "never held lately: it has launched nothing"
    if not found.core_percent:
        return "not held lately: it has what others leave over, and they left enough"
    if found.core_percent <= found.share_percent + _NEAR_PERCENT:
        return f"not held lately, although it uses its share of {found.core_percent}"
    return "never held lately: the program does not use its share"


def _share_of(found: Throttle) -> str:
    return f"its share is {found.core_percent}" if found.core_percent else "it comes last"
