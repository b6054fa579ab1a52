"""A page of JSON that is made again only when it has become old.

Who asks for it all the time thus costs no more than one who asks twice a second. Callers come in
the server's threads and meet at a lock: one makes the page, the others wait for it.
"""

from collections.abc import Callable

from werkzeug.wrappers import Request, Response

from deviceplugin import runtime

_JSON = "application/json"
OLD_AFTER_S = 0.5


class RememberedPage:
    """One page."""

    def __init__(
        self, make: Callable[[], bytes], clock: Callable[[], float] = runtime.monotonic
    ) -> None:
        """Makes nothing yet.

        Args:
            make: returns the content; what it raises is raised to who asks.
            clock: seconds, from any start.
        """
        self._make, self._clock = make, clock
        self._lock = runtime.lock()
        self._content, self._made_at_s = b"", float("-inf")

    def page(self, request: Request) -> Response:
        """Answers a request."""
        with self._lock:
            if self._clock() - self._made_at_s >= OLD_AFTER_S:
                self._content = self._make()
                self._made_at_s = self._clock()
            return Response(self._content, content_type=_JSON)
