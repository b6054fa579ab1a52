"""Whether the kubelet listens to the devices of a resource, and when to register it again.

A kubelet that took a registration opens a stream and keeps it. One that ends the stream has
forgotten the resource, or calls all its units unhealthy, until it is registered again; one that
never opens it has lost the registration. Each try comes later than the one before, until a stream
has stayed open for a while. Pure: moments come from the caller.
"""

from dataclasses import dataclass

#: A kubelet opens the stream right behind the registration; a busy one takes a second or two.
OPENS_WITHIN_S = 10.0
#: How long after the end of a stream its resource is registered again, at first.
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_MOST_TRIES = 10  # that count: the longest wait is reached before
#: A stream that was open for so long was in order.
_STEADY_S = 30.0


@dataclass
class Listening:
    """One resource that the kubelet has taken.

    Attributes:
        since_s: when it was last registered, or its stream was opened or ended.
        opened: how many streams it ever had, at the registration and later at each look.
        is_open: there is a stream.
        was_open: there was one since it was registered first.
        tries: registrations since a stream stayed open.
    """

    since_s: float
    opened: int = 0
    is_open: bool = False
    was_open: bool = False
    tries: int = 0
    _first_s: float = 0.0

    def __post_init__(self) -> None:
        """Notes when it was registered first."""
        self._first_s = self.since_s

    def note(self, is_open: bool, opened: int, now_s: float) -> None:
        """Notes whether there is a stream now, and how many there ever were."""
        if is_open and self.is_open and now_s - self.since_s >= _STEADY_S:
            self.tries = 0
        came = opened != self.opened  # and may have gone since the last look
        if is_open != self.is_open or came:
            self.is_open, self.since_s, self.opened = is_open, now_s, opened
            self.was_open = self.was_open or is_open or came

    def note_registration(self, now_s: float) -> None:
        """Notes that it was registered again."""
        self.since_s = now_s
        self.tries = min(self.tries + 1, _MOST_TRIES)

    def is_due(self, now_s: float) -> bool:
        """Returns whether it is to be registered again."""
        if self.is_open:
            return False
        first_s = _FIRST_WAIT_S if self.was_open else OPENS_WITHIN_S
        wait_s = min(_LONGEST_WAIT_S, first_s * float(1 << self.tries))
        return now_s - self.since_s >= wait_s

    def is_missing(self, now_s: float) -> bool:
        """Returns whether a stream should be open and is not."""
        return not self.is_open and (self.was_open or now_s - self._first_s >= OPENS_WITHIN_S)
