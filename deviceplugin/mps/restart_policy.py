"""How long to wait before an MPS daemon or server that ended is started again. Pure.

The first restart comes at once. One that ends again within `CALM_S` of the last end waits
`FIRST_PAUSE_S`, then each time twice as long, up to `LONGEST_PAUSE_S`: root in a container can end
MPS as often as it likes, and every restart costs the other clients their work. After `CALM_S`
without an end the count begins again. Moments come from the caller, who serialises the calls.
"""

FIRST_PAUSE_S, LONGEST_PAUSE_S, CALM_S = 1.0, 30.0, 120.0


class RestartPolicy:
    """The pauses of one GPU's MPS."""

    def __init__(self) -> None:
        """Nothing has ended yet."""
        self._pause_s = 0.0
        self._ended_at_s: float | None = None

    def ended(self, now_s: float) -> float:
        """Notes an end and returns the pause before the restart, in seconds.

        Args:
            now_s: the moment of the end, of a monotonic clock.
        """
        if self._ended_at_s is None or now_s - self._ended_at_s > CALM_S:
            self._pause_s = 0.0
        self._ended_at_s = now_s
        pause_s = self._pause_s
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2 or FIRST_PAUSE_S)
        return pause_s
