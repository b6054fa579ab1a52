"""Exercises of copies in a row: inside one GPU they wait for the share, with the host they do not.

The copies of arrays are of one row, too."""

import ctypes
from ctypes import c_void_p
from typing import Any

from support.exercise.driver import Driver, exercise
from support.exercise.memory import Memory
from support.exercise.share import SLICE as SLICE
from support.exercise.share import Share

MEASURES = True
BYTES = 64
CONTENT = bytes(range(1, BYTES + 1))
STREAM = None


class Pieces:
    """A piece of memory with content, an empty one, and the share that copies wait for."""

    def __init__(self, driver: Driver) -> None:
        self.share, self.memory = Share(driver), Memory(driver)
        self.target, self.source = self.memory.plain(b"\0" * BYTES), self.memory.plain(CONTENT)

    def copied(self, symbol: str, *arguments: Any) -> None:
        self.share.held(symbol, *arguments)
        assert self.memory.read(self.target, BYTES) == CONTENT, symbol

    def close(self) -> None:
        self.memory.close()
        self.share.close()


@exercise("cuMemcpy", "cuMemcpy_ptds", "cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2_ptds",
          "cuMemcpyAsync", "cuMemcpyAsync_ptsz", "cuMemcpyDtoDAsync_v2",
          "cuMemcpyDtoDAsync_v2_ptsz")  # fmt: skip
def copies(driver: Driver) -> None:
    pieces = Pieces(driver)
    for symbol in ("cuMemcpy", "cuMemcpyDtoD_v2"):
        for twin in (symbol, f"{symbol}_ptds"):
            pieces.copied(twin, pieces.target, pieces.source, BYTES)
    for symbol in ("cuMemcpyAsync", "cuMemcpyDtoDAsync_v2"):
        for twin in (symbol, f"{symbol}_ptsz"):
            pieces.copied(twin, pieces.target, pieces.source, BYTES, STREAM)
    pieces.close()


@exercise("cuMemcpy", "cuMemcpyAsync")
def transfers(driver: Driver) -> None:
    """The host's memory takes part: pageable, pinned, or called the device's."""
    pieces, pinned = Pieces(driver), c_void_p()
    pageable = ctypes.create_string_buffer(CONTENT, BYTES)
    driver.check("cuMemAllocHost_v2", ctypes.byref(pinned), BYTES)
    for host in (ctypes.addressof(pageable), pinned.value or 0):
        pieces.share.passes("cuMemcpy", pieces.target, host, BYTES)
        pieces.share.passes("cuMemcpy", host, pieces.source, BYTES)
        pieces.share.passes("cuMemcpyAsync", host, pieces.source, BYTES, STREAM)
    driver.check("cuMemFreeHost", pinned)
    pieces.close()


@exercise("cuMemcpyPeer", "cuMemcpyPeer_ptds", "cuMemcpyPeerAsync", "cuMemcpyPeerAsync_ptsz")
def copies_between_contexts(driver: Driver) -> None:
    pieces, context = Pieces(driver), c_void_p()
    driver.check("cuCtxGetCurrent", ctypes.byref(context))
    arguments = (pieces.target, context, pieces.source, context, BYTES)
    for twin in ("cuMemcpyPeer", "cuMemcpyPeer_ptds"):
        pieces.copied(twin, *arguments)
    for twin in ("cuMemcpyPeerAsync", "cuMemcpyPeerAsync_ptsz"):
        pieces.copied(twin, *arguments, STREAM)
    pieces.close()


@exercise("cuMemcpyDtoA_v2", "cuMemcpyDtoA_v2_ptds", "cuMemcpyAtoA", "cuMemcpyAtoA_v2",
          "cuMemcpyAtoA_v2_ptds", "cuMemcpyAtoD_v2", "cuMemcpyAtoD_v2_ptds")  # fmt: skip
def copies_of_arrays(driver: Driver) -> None:
    pieces = Pieces(driver)
    one, other = pieces.memory.array(BYTES), pieces.memory.array(BYTES)
    driver.check("cuMemcpyHtoA_v2", other, 0, b"\0" * BYTES, BYTES)
    for twin in ("cuMemcpyDtoA_v2", "cuMemcpyDtoA_v2_ptds"):
        pieces.share.held(twin, one, 0, pieces.source, BYTES)
    driver.outdated("cuMemcpyAtoA", other, 0, one, 0, BYTES)
    for part, twin in enumerate(("cuMemcpyAtoA_v2", "cuMemcpyAtoA_v2_ptds")):
        start, end = part * BYTES // 2, (part + 1) * BYTES // 2
        pieces.share.held(twin, other, start, one, start, end - start)
    for twin in ("cuMemcpyAtoD_v2", "cuMemcpyAtoD_v2_ptds"):
        pieces.copied(twin, pieces.target, other, 0, BYTES)
    pieces.close()
