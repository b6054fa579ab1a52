"""Exercises of copies of boxes: inside one GPU they wait for the share, with the host not."""

import ctypes
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from support.exercise.driver import Driver, exercise
from support.exercise.memory import Memory
from support.exercise.share import SLICE as SLICE
from support.exercise.share import Share

MEASURES = True
HOST, DEVICE, ARRAY = 1, 2, 3
WIDTH, HEIGHT, DEPTH = 16, 4, 2
CONTENT = bytes(range(1, WIDTH * HEIGHT * DEPTH + 1))
STREAM = None


def _side(side: str, size: Any, address: Any, *, is_deep: bool) -> list[tuple[str, Any]]:
    deep = (("z", size), ("lod", size)) if is_deep else ()
    memory = (("type", c_uint), ("host", c_void_p), ("device", address), ("array", c_void_p))
    context = (("context", c_void_p),) if is_deep else ()
    rows = (("rows", size),) if is_deep else ()
    fields = (("x", size), ("y", size), *deep, *memory, *context, ("pitch", size), *rows)
    return [(f"{side}_{name}", kind) for name, kind in fields]


def _form(size: Any, address: Any, *, is_deep: bool) -> type[ctypes.Structure]:
    class Box(ctypes.Structure):
        """CUDA_MEMCPY2D, CUDA_MEMCPY3D_PEER, or their first versions."""

        _fields_ = [
            *_side("source", size, address, is_deep=is_deep),
            *_side("target", size, address, is_deep=is_deep),
            ("width", size),
            ("height", size),
            *([("depth", size)] if is_deep else []),
        ]

    return Box


FLAT = _form(c_size_t, c_uint64, is_deep=False)
DEEP = _form(c_size_t, c_uint64, is_deep=True)


class Boxes:
    """Memory with content, empty memory, and the share."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.share, self.memory = driver, Share(driver), Memory(driver)
        self.source = self.memory.plain(CONTENT)
        self.target = self.memory.plain(b"\0" * len(CONTENT))

    def box(self, form: Any) -> Any:
        made = form(width=WIDTH, height=HEIGHT)
        made.source_type = made.target_type = DEVICE
        made.source_device, made.target_device = self.source, self.target
        if form is DEEP:
            made.depth = DEPTH
        return made

    def copied(self, symbol: str, box: Any) -> None:
        stream = (STREAM,) if "Async" in symbol else ()
        bytes = WIDTH * HEIGHT * getattr(box, "depth", 1)
        self.share.held(symbol, byref(box), *stream)
        assert self.memory.read(self.target, bytes) == CONTENT[:bytes], symbol

    def close(self) -> None:
        self.memory.close()
        self.share.close()


def _twins(symbol: str) -> tuple[str, str]:
    return symbol, f"{symbol}_ptsz" if "Async" in symbol else f"{symbol}_ptds"


ROWS = (
    *_twins("cuMemcpy2D_v2"),
    *_twins("cuMemcpy2DUnaligned_v2"),
    *_twins("cuMemcpy2DAsync_v2"),
)
DEEP_BOXES = (*_twins("cuMemcpy3D_v2"), *_twins("cuMemcpy3DAsync_v2"))
BETWEEN_CONTEXTS = (*_twins("cuMemcpy3DPeer"), *_twins("cuMemcpy3DPeerAsync"))
OLD = ("cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy2DAsync", "cuMemcpy3D", "cuMemcpy3DAsync")


@exercise(*ROWS)
def copies_of_rows(driver: Driver) -> None:
    boxes = Boxes(driver)
    for twin in ROWS:
        boxes.copied(twin, boxes.box(FLAT))
    boxes.close()


@exercise(*DEEP_BOXES)
def copies_of_deep_boxes(driver: Driver) -> None:
    boxes = Boxes(driver)
    for twin in DEEP_BOXES:
        boxes.copied(twin, boxes.box(DEEP))
    boxes.close()


@exercise(*BETWEEN_CONTEXTS)
def copies_of_boxes_between_contexts(driver: Driver) -> None:
    boxes, context = Boxes(driver), c_void_p()
    driver.check("cuCtxGetCurrent", byref(context))
    box = boxes.box(DEEP)
    box.source_context = box.target_context = context
    for twin in BETWEEN_CONTEXTS:
        boxes.copied(twin, box)
    boxes.close()


@exercise("cuMemcpy2D_v2", "cuMemcpy3DAsync_v2")
def transfers_of_boxes(driver: Driver) -> None:
    boxes = Boxes(driver)
    host = ctypes.create_string_buffer(len(CONTENT))
    flat, deep = boxes.box(FLAT), boxes.box(DEEP)
    for box in (flat, deep):
        box.target_type, box.target_host = HOST, ctypes.addressof(host)
    boxes.share.passes("cuMemcpy2D_v2", byref(flat))
    boxes.share.passes("cuMemcpy3DAsync_v2", byref(deep), STREAM)
    boxes.close()


@exercise(*OLD)
def old_copies_of_boxes(driver: Driver) -> None:
    memory = Memory(driver)
    arrays = [memory.array(WIDTH, HEIGHT) for _ in range(2)]
    for symbol in OLD:
        is_deep = "3D" in symbol
        old = _form(c_uint, c_uint, is_deep=is_deep)(width=WIDTH, height=HEIGHT)
        old.source_type = old.target_type = ARRAY
        old.source_array, old.target_array = arrays
        if is_deep:
            old.depth = 1
        driver.outdated(symbol, byref(old), *((STREAM,) if "Async" in symbol else ()))
    memory.close()
