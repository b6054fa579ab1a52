"""Whether a cap binds, as a sentence."""

import pytest

from libvgpu.limits import ComputeMode, Family
from libvgpu.sharing_mode import Mode
from vgpuctl.describe.verdict import Throttle, verdict

STRICT, OFF = ComputeMode.STRICT, ComputeMode.OFF


def throttle(
    core: int,
    share: float | None,
    held: float,
    mode: Mode | None = Mode.FREE,
    compute: ComputeMode = STRICT,
    family: Family = Family.VGPU,
) -> Throttle:
    return Throttle(family, compute, core, share, held, mode)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (throttle(50, 49.9, 31.4), "held 31 % of the time by its cap of 50"),
        (throttle(50, 49.9, 310), "held 100 % of the time by its cap of 50"),
        (throttle(50, 20.0, 0.0), "never held lately: the program does not use its share"),
        (throttle(50, 49.5, 0.5), "not held lately, although it uses its share of 50"),
        (throttle(50, None, 0.0), "never held lately: it has launched nothing"),
        (throttle(100, 90.0, 0.0), "not capped: it may use all of the GPU's time"),
        (throttle(50, 90.0, 0.0, compute=OFF), "not capped: it may use all of the GPU's time"),
        (throttle(30, 29.0, 60, Mode.WINDOWS), "they take turns, and its share is 30"),
        (throttle(0, 5.0, 60, Mode.WINDOWS), "they take turns, and it comes last"),
        (throttle(0, 5.0, 60, Mode.SHARED), "so it has what others leave"),
        (throttle(0, 5.0, 0, Mode.SHARED), "what others leave over, and they left enough"),
        (throttle(0, 99.0, 60), "nobody else uses the GPU, so all of its time is left over"),
        (throttle(25, None, 0, None, OFF, Family.MPS), "MPS holds it to 25 %"),
    ],
)
def test_the_figures_are_said_in_a_sentence(found: Throttle, said: str) -> None:
    assert said in verdict(found)
