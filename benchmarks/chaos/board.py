"""What programs say of their slices (``native/chaos_client.h``)."""

import mmap
import struct
from pathlib import Path

_SEATS = 256
_BOARD_BYTES = 64
_SEAT = struct.Struct("=IIQQQI36s")
_WRONG = (
    "",
    "is shown {seen} bytes of memory and not {wanted}",
    "was refused {wanted} bytes that its slice has room for",
    "was granted {seen} bytes, its limit is {wanted}",
    "finds {seen} in its memory and wrote {wanted}",
)


class Board:
    """One board, which all programs map."""

    def __init__(self, path: Path) -> None:
        """Makes it."""
        self.path = path
        path.write_bytes(bytes(_BOARD_BYTES + _SEATS * _SEAT.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._free = list(range(_SEATS))
        self._pauses = 0

    def take_seat(self) -> int:
        """Returns a seat without anything on it."""
        seat = self._free.pop(0)
        at = _BOARD_BYTES + seat * _SEAT.size
        self._map[at : at + _SEAT.size] = bytes(_SEAT.size)
        return seat

    def leave(self, seat: int) -> None:
        """Takes a seat back."""
        self._free.append(seat)

    def pause(self) -> None:
        """Has everybody stand still."""
        self._pauses += 1
        self._map[:4] = self._pauses.to_bytes(4, "little")

    def go_on(self) -> None:
        """Has everybody work again."""
        self._map[:4] = bytes(4)

    def stands(self, seat: int) -> bool:
        """Returns whether a program stands still."""
        return int(self._read(seat)[0]) == self._pauses

    def loops(self, seat: int) -> int:
        """Returns how often a program has gone through its work."""
        return int(self._read(seat)[2])

    def wrong(self, seat: int) -> str:
        """Returns what a program found to be wrong, or an empty text."""
        _, wrong, _, wanted, seen, _, _ = self._read(seat)
        return _WRONG[wrong].format(wanted=wanted, seen=seen)

    def error(self, seat: int) -> str:
        """Returns which call answered what."""
        *_, code, call = self._read(seat)
        return f"{call.rstrip(bytes(1)).decode()} answered {code}"

    def _read(self, seat: int) -> tuple[int, int, int, int, int, int, bytes]:
        return _SEAT.unpack_from(self._map, _BOARD_BYTES + seat * _SEAT.size)
