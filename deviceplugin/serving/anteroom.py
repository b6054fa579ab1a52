"""Where connections of a `CallServer` wait until they have made their handshake.

All in the accepting thread, which waits for none of them: so whoever connects and says nothing, or
stops half-way, costs a socket and no thread, and TLS begins only for who has said all of its hello.
Without TLS a connection waits for its first byte.
"""

import contextlib
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .call_places import Places, source_of
from .certificate import Certificate
from .crowds import Place

#: Accepted in a row, before those that wait have a turn.
_IN_A_ROW = 64
#: Once for what comes, since what has come of a hello is left where it is until all of it has.
_READABLE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
#: A TLS record of a handshake; how long the head of a record is, whose last two bytes say how long
#: the rest is.
_HANDSHAKE, _HEAD_BYTES = 22, 5
_MOST_BYTES = _HEAD_BYTES + (1 << 14)


@dataclass(eq=False, slots=True)
class Visitor:
    """A connection that waits, and by when it must be through."""

    connection: socket.socket
    number: int
    address: object
    end_s: float
    place: Place = field(init=False)

    def cut(self) -> None:
        """Ends the connection, whoever is using it; they see it and close it."""
        with contextlib.suppress(OSError):
            # Not the TLS socket's own, which its thread may be using.
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)


class Anteroom:
    """Of one thread."""

    def __init__(
        self,
        listening: socket.socket,
        certificate: Certificate | None,
        places: Places,
        wait_s: float,
        clock: Callable[[], float],
    ) -> None:
        """Is empty.

        Args:
            certificate: None for HTTP without TLS.
            wait_s: in which a handshake must be made.
        """
        self._listening, self._certificate, self._places = listening, certificate, places
        self._wait_s, self._clock = wait_s, clock
        listening.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(listening, select.EPOLLIN)
        self._waiting: dict[int, Visitor] = {}  # the one that came first comes first

    def ready(self, timeout_s: float) -> Iterator[Visitor]:
        """Yields who is through, after waiting for a while at most."""
        for number, events in self._poll.poll(timeout_s):
            if number == self._listening.fileno():
                self._accept()
            elif number in self._waiting and self._is_through(self._waiting[number], events):
                yield self._leave(number)
        now_s = self._clock()
        while self._waiting and (first := next(iter(self._waiting.values()))).end_s <= now_s:
            self._drop(first)

    def close(self) -> None:
        """Ends all that wait."""
        for each in list(self._waiting.values()):
            self._drop(each)
        self._poll.close()

    def _accept(self) -> None:
        for _ in range(_IN_A_ROW):
            try:
                connection, address = self._listening.accept()
            except OSError:  # nobody more, or gone again
                return
            end_s = self._clock() + self._wait_s
            visitor = Visitor(connection, connection.fileno(), address, end_s)
            place = self._places.enter(source_of(address), visitor.cut)
            if place is None:
                connection.close()
                continue
            visitor.place = place
            connection.setblocking(False)
            self._waiting[visitor.number] = visitor
            self._poll.register(connection, _READABLE)

    def _is_through(self, visitor: Visitor, events: int) -> bool:
        try:
            if not isinstance(visitor.connection, ssl.SSLSocket):
                said = visitor.connection.recv(_MOST_BYTES, socket.MSG_PEEK)
                if not said:
                    raise ConnectionResetError
                if self._certificate is None:
                    return True
                if len(said) < _hello_bytes(said):
                    if events & select.EPOLLRDHUP:
                        raise ConnectionResetError
                    return False
                visitor.connection = self._certificate.context().wrap_socket(
                    visitor.connection, server_side=True, do_handshake_on_connect=False
                )
            visitor.connection.do_handshake()
        except (ssl.SSLWantReadError, BlockingIOError):
            self._poll.modify(visitor.connection, _READABLE)
            return False
        except ssl.SSLWantWriteError:
            self._poll.modify(visitor.connection, select.EPOLLOUT)
            return False
        except (OSError, ValueError):  # it is gone again, was cut, or shows no certificate
            self._drop(visitor)
            return False
        if self._certificate is not None and self._certificate.knows_clients:
            self._places.know(visitor.place)
        return True

    def _drop(self, visitor: Visitor) -> None:
        self._places.leave(visitor.place)
        del self._waiting[visitor.number]
        with contextlib.suppress(OSError):
            # Or the client, which has said more than was read, would see a reset and no reason.
            socket.socket.shutdown(visitor.connection, socket.SHUT_WR)
        visitor.connection.close()

    def _leave(self, number: int) -> Visitor:
        self._poll.unregister(number)
        return self._waiting.pop(number)


def _hello_bytes(said: bytes) -> int:
    """Returns how much a client must have said before TLS costs anything for it."""
    if said[0] != _HANDSHAKE:
        return 0  # nothing that TLS takes, which says so
    return (
        _HEAD_BYTES + int.from_bytes(said[3:5], "big") if len(said) >= _HEAD_BYTES else _HEAD_BYTES
    )
