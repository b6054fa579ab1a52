"""Exercises of fills of device memory: they wait for the share, and fill."""

from support.exercise.driver import Driver, exercise
from support.exercise.memory import Memory
from support.exercise.share import SLICE as SLICE
from support.exercise.share import Share

MEASURES = True
WIDTH, PITCH, HEIGHT = 16, 32, 2
BITS = (8, 16, 32)
VALUE = 0x5A5A5A5A
STREAM = (None,)
ROWS = tuple(
    f"cuMemsetD{bits}{form}" for bits in BITS for form in ("_v2", "_v2_ptds", "Async", "Async_ptsz")
)
BOXES = tuple(symbol.replace("cuMemset", "cuMemsetD2") for symbol in ROWS)


def _stream(symbol: str) -> tuple[None, ...]:
    return STREAM if "Async" in symbol else ()


def _count(symbol: str) -> int:
    """How many values are a row."""
    return next(WIDTH * 8 // bits for bits in BITS if f"D{bits}" in symbol)


@exercise(*ROWS)
def fills(driver: Driver) -> None:
    share, memory = Share(driver), Memory(driver)
    address = memory.plain(b"\0" * PITCH)
    for symbol in ROWS:
        share.held(symbol, address, VALUE, _count(symbol), *_stream(symbol))
        assert memory.read(address, PITCH) == b"\x5a" * WIDTH + b"\0" * (PITCH - WIDTH), symbol
    memory.close()
    share.close()


@exercise(*BOXES)
def fills_of_rows(driver: Driver) -> None:
    share, memory = Share(driver), Memory(driver)
    address = memory.plain(b"\0" * PITCH * HEIGHT)
    row = b"\x5a" * WIDTH + b"\0" * (PITCH - WIDTH)
    for symbol in BOXES:
        share.held(symbol, address, PITCH, VALUE, _count(symbol), HEIGHT, *_stream(symbol))
        assert memory.read(address, PITCH * HEIGHT) == row * HEIGHT, symbol
    memory.close()
    share.close()
