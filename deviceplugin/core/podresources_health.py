"""Whether the kubelet's podresources answers, told once when it falls silent and when it is back.

A kubelet that restarts does not answer for a moment, so only what lasts `SILENT_AFTER_S` counts.
Then the agent goes by the kubelet's checkpoint (`podresources_sync`). `answered` and `failed` are
called by one thread at a time; anybody may read.
"""

import logging
from collections.abc import Callable

from deviceplugin.log import event
from deviceplugin.model.notices import EventReason, node_notice

#: A kubelet is restarted within this, and reads what it had.
SILENT_AFTER_S = 10.0


class PodResourcesHealth:
    """Since when podresources has not answered, and why."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Supposes that it answers.

        Args:
            clock: seconds, monotonic.
        """
        self._clock = clock
        self._failing_since_s: float | None = None
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why units come back late or never, as a sentence; None while podresources answers."""
        return self._problem

    @property
    def is_failing(self) -> bool:
        """The last listing failed."""
        return self._failing_since_s is not None

    @property
    def is_silent(self) -> bool:
        """It has failed for so long that the kubelet's checkpoint is gone by."""
        return self._problem is not None

    def answered(self) -> None:
        """Notes a listing."""
        self._failing_since_s = None
        if self._problem is not None:
            self._problem = None
            text = "the kubelet's podresources answers again"
            event(
                logging.INFO,
                text,
                notice=node_notice(EventReason.POD_RESOURCES_AVAILABLE, text),
            )

    def failed(self, reason: str, record_problem: Callable[[], str | None]) -> None:
        """Notes that there is no listing.

        Args:
            reason: why, as a sentence.
            record_problem: says why the kubelet's checkpoint cannot be gone by, None where it can.
        """
        now_s = self._clock()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        if now_s - self._failing_since_s < SILENT_AFTER_S:
            return
        was_told = self._problem is not None
        unreadable = record_problem()
        self._problem = f"podresources does not answer: {reason}; " + (
            "units of pods that have ended come back later, by the kubelet's checkpoint"
            if unreadable is None
            else f"units of pods that have ended do not come back, since {unreadable}"
        )
        if not was_told:
            event(
                logging.WARNING,
                "podresources does not answer",
                notice=node_notice(EventReason.POD_RESOURCES_UNAVAILABLE, self._problem),
                reason=self._problem,
            )
