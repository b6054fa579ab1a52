"""Exercises of memory shared between processes: counted once, by whoever of them still holds it."""

import ctypes
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import byref, c_int, c_uint64, c_void_p
from typing import Any

from support.exercise.driver import MIB, Driver, exercise
from support.exercise.pool import FILE_DESCRIPTOR, properties

PIECE = 8 * MIB
HANDLE_BYTES = 64
ANSWER_SECONDS = 60
END = b"!"
LAZY_PEER_ACCESS = 1


class Handle(ctypes.Structure):
    """CUipcMemHandle, and as large CUmemPoolPtrExportData."""

    _fields_ = (("bytes", ctypes.c_char * HANDLE_BYTES),)


@contextmanager
def _exporter(
    driver: Driver, function: Callable[..., Any]
) -> Iterator[tuple[Handle, list[int], Any]]:
    """A second process that exports memory.

    Gives the handle and the descriptors that it sent, and what makes it end.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(ANSWER_SECONDS)
    with ours, theirs, ThreadPoolExecutor(1) as thread:
        done = thread.submit(driver.elsewhere, function, theirs.fileno(), fds=(theirs.fileno(),))

        def end() -> None:
            ours.send(END)
            done.result()
            driver.settle()

        try:
            sent, descriptors, _, _ = socket.recv_fds(ours, HANDLE_BYTES, 1)
            yield Handle.from_buffer_copy(sent), descriptors, end
        finally:
            ours.send(END)


def _send(place: int, handle: Handle, descriptors: list[int]) -> None:
    """What the second process sends; it returns once that one is told to end."""
    with socket.socket(fileno=place) as theirs:
        socket.send_fds(theirs, [bytes(handle)], descriptors)
        theirs.recv(len(END))


def _export_plain(driver: Driver, place: int) -> None:
    address, handle = c_uint64(), Handle()
    driver.open_context()
    driver.check("cuMemAlloc_v2", byref(address), PIECE)
    with driver.charged(0):
        driver.check("cuIpcGetMemHandle", byref(handle), address)
    _send(place, handle, [])


@exercise("cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle")
def plain_memory(driver: Driver) -> None:
    address = c_uint64()
    for symbol in ("cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2"):
        before = driver.used()
        with _exporter(driver, _export_plain) as (handle, _, end):
            with driver.charged(0):  # its exporter is charged
                driver.check(symbol, byref(address), handle, LAZY_PEER_ACCESS)
            end()
            assert driver.used() - before == PIECE  # now we are
            driver.check("cuIpcCloseMemHandle", address)
        assert driver.used() == before


def _export_from_pool(driver: Driver, place: int) -> None:
    pool, address, data, descriptor = c_void_p(), c_uint64(), Handle(), c_int()
    driver.open_context()
    driver.check("cuMemPoolCreate", byref(pool), byref(properties(FILE_DESCRIPTOR)))
    bytes = driver.sizes.of_pool(PIECE)
    driver.check("cuMemAllocFromPoolAsync", byref(address), bytes, pool, None)
    driver.check("cuStreamSynchronize", None)
    driver.check("cuMemPoolExportToShareableHandle", byref(descriptor), pool, FILE_DESCRIPTOR, 0)
    with driver.charged(0):
        driver.check("cuMemPoolExportPointer", byref(data), address)
    _send(place, data, [descriptor.value])


@exercise("cuMemPoolExportPointer", "cuMemPoolImportPointer")
def memory_of_a_pool(driver: Driver) -> None:
    pool, address = c_void_p(), c_uint64()
    before = driver.used()
    with _exporter(driver, _export_from_pool) as (data, (descriptor,), end):
        driver.check(
            "cuMemPoolImportFromShareableHandle", byref(pool), descriptor, FILE_DESCRIPTOR, 0
        )
        with driver.charged(0):
            driver.check("cuMemPoolImportPointer", byref(address), pool, byref(data))
        end()
        assert driver.used() - before == driver.sizes.of_pool(PIECE)
        driver.check("cuMemFree_v2", address)
        os.close(descriptor)
    assert driver.used() == before
    driver.check("cuMemPoolDestroy", pool)
