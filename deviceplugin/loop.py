"""The agent's one loop: duties that come round every so many seconds."""

import logging
from collections.abc import Callable, Sequence

from deviceplugin import runtime
from libvgpu.errors import VgpuError

from .log import LOGGER, event

#: What is due this soon is done now: one turn of the loop less.
_TOGETHER_S = 0.02


def run_duties(
    duties: Sequence[tuple[float, Callable[[], object]]],
    turned: Callable[[], None],
    stop: runtime.Event,
) -> None:
    """Does each duty every so many seconds; one that fails is logged and tried again.

    The same failure of a duty is logged once, until it has succeeded.

    Args:
        duties: period in seconds, and what to do.
        turned: called each time the loop comes round.
        stop: ends it.
    """
    due = [0.0] * len(duties)
    said = [""] * len(duties)
    while not stop.is_set():
        turned()
        now = runtime.monotonic()
        for number, (period_s, duty) in enumerate(duties):
            if now < due[number] - _TOGETHER_S:
                continue
            due[number] = now + period_s
            try:
                duty()
                said[number] = ""
            except Exception as error:  # the agent must outlive a fault in one of its duties
                if str(error) == said[number]:
                    continue
                said[number] = str(error)
                if isinstance(error, VgpuError):
                    event(logging.ERROR, error.message, hint=error.hint or "none")
                else:
                    LOGGER.exception("a task of the agent failed")
        stop.wait(max(0.0, min(due) - runtime.monotonic()))
