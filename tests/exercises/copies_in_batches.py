"""Exercises of copies in batches: one that copies inside a GPU is a launch, and waits."""

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64
from typing import Any

from support.exercise.driver import Driver, exercise
from support.exercise.memory import Memory
from support.exercise.share import SLICE as SLICE
from support.exercise.share import Share

MEASURES = True
PARTS, PART_BYTES = 4, 16
CONTENT = bytes(range(1, PARTS * PART_BYTES + 1))
IN_STREAM_ORDER, POINTER = 1, 1


class Attributes(ctypes.Structure):
    """CUmemcpyAttributes: the order of access, hints of places, flags."""

    _fields_ = (("order", c_int), ("hints", c_int * 4), ("flags", c_uint))


class Operand(ctypes.Structure):
    """CUmemcpy3DOperand of a pointer."""

    _fields_ = (
        ("type", c_int),
        ("address", c_uint64),
        ("row_length", c_size_t),
        ("layer_height", c_size_t),
        ("hint", c_int * 2),
        ("pad", c_uint64 * 0),
    )


class Box(ctypes.Structure):
    """CUDA_MEMCPY3D_BATCH_OP between pointers."""

    _fields_ = (
        ("source", Operand),
        ("target", Operand),
        ("extent", c_size_t * 3),
        ("order", c_int),
        ("flags", c_uint),
    )


def _rows(targets: list[int], sources: list[int]) -> tuple[Any, ...]:
    """The arguments of a batch as far as the attributes."""
    count = len(targets)
    places = (c_uint64 * count)(*targets), (c_uint64 * count)(*sources)
    sizes = (c_size_t * count)(*[PART_BYTES] * count)
    return (*places, sizes, count, byref(Attributes(IN_STREAM_ORDER)), (c_size_t * 1)(0), 1)


def _boxes(targets: list[int], sources: list[int]) -> Any:
    pairs = zip(targets, sources, strict=True)
    return (Box * len(targets))(
        *[
            Box(
                Operand(POINTER, source),
                Operand(POINTER, target),
                (c_size_t * 3)(PART_BYTES, 1, 1),
                IN_STREAM_ORDER,
            )
            for target, source in pairs
        ]
    )


class Parts:
    """Memory in parts: one with content, one without, one of the host's; and the share."""

    def __init__(self, driver: Driver) -> None:
        self.share, self.memory = Share(driver), Memory(driver)
        self.target = self.memory.plain(b"\0" * len(CONTENT))
        self.source = self.memory.plain(CONTENT)
        self._host = ctypes.create_string_buffer(CONTENT, len(CONTENT))
        self.host = ctypes.addressof(self._host)

    def of(self, start: int) -> list[int]:
        return [start + PART_BYTES * part for part in range(PARTS)]

    def copied(self, symbol: str, *arguments: Any) -> None:
        self.share.held(symbol, *arguments)
        assert self.memory.read(self.target, len(CONTENT)) == CONTENT, symbol

    def close(self) -> None:
        self.memory.close()
        self.share.close()


@exercise("cuMemcpyBatchAsync", "cuMemcpyBatchAsync_ptsz")
def batches(driver: Driver) -> None:
    parts, failed = Parts(driver), c_size_t()
    rows = _rows(parts.of(parts.target), parts.of(parts.source))
    parts.copied("cuMemcpyBatchAsync", *rows, byref(failed), parts.share.spin.stream)
    parts.copied("cuMemcpyBatchAsync_ptsz", *rows, byref(failed), None)
    of_host = _rows(parts.of(parts.target), parts.of(parts.host))
    parts.share.passes("cuMemcpyBatchAsync", *of_host, byref(failed), parts.share.spin.stream)
    parts.close()


@exercise("cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync_v2_ptsz")
def newer_batches(driver: Driver) -> None:
    parts = Parts(driver)
    mixed = [parts.host, *parts.of(parts.source)[1:]]
    rows = _rows(parts.of(parts.target), mixed)
    parts.copied("cuMemcpyBatchAsync_v2", *rows, parts.share.spin.stream)
    parts.copied("cuMemcpyBatchAsync_v2_ptsz", *rows, None)
    parts.close()


@exercise("cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync_ptsz")
def batches_of_boxes(driver: Driver) -> None:
    parts, failed = Parts(driver), c_size_t()
    boxes = _boxes(parts.of(parts.target), parts.of(parts.source))
    parts.copied("cuMemcpy3DBatchAsync", PARTS, boxes, byref(failed), 0, parts.share.spin.stream)
    parts.copied("cuMemcpy3DBatchAsync_ptsz", PARTS, boxes, byref(failed), 0, None)
    of_host = _boxes(parts.of(parts.target), parts.of(parts.host))
    parts.share.passes(
        "cuMemcpy3DBatchAsync", PARTS, of_host, byref(failed), 0, parts.share.spin.stream
    )
    parts.close()


@exercise("cuMemcpy3DBatchAsync_v2", "cuMemcpy3DBatchAsync_v2_ptsz")
def newer_batches_of_boxes(driver: Driver) -> None:
    parts = Parts(driver)
    boxes = _boxes(parts.of(parts.target), parts.of(parts.source))
    parts.copied("cuMemcpy3DBatchAsync_v2", PARTS, boxes, 0, parts.share.spin.stream)
    parts.copied("cuMemcpy3DBatchAsync_v2_ptsz", PARTS, boxes, 0, None)
    parts.close()
