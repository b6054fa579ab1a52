"""Exercises of memory shared between processes: counted once, by whoever of them still holds it."""

import ctypes
import os
import select
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import byref, c_int, c_uint64, c_void_p
from typing import Any

from support.exercise import MIB, Driver, exercise
from support.exercise_pool import FILE_DESCRIPTOR, properties

PIECE = 8 * MIB
HANDLE_BYTES = 64
ANSWER_SECONDS = 60
LAZY_PEER_ACCESS = 1


class Handle(ctypes.Structure):
    """CUipcMemHandle, and as large CUmemPoolPtrExportData."""

    _fields_ = (("bytes", ctypes.c_char * HANDLE_BYTES),)


@contextmanager
def _exporter(driver: Driver, function: Callable[..., Any]) -> Iterator[tuple[bytes, Any]]:
    """A second process that exports ``PIECE``; gives what it sent, and what makes it end."""
    (heard, say), (listen, tell) = os.pipe(), os.pipe()
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(driver.elsewhere, function, say, listen, fds=(say, listen))

        def end() -> None:
            os.write(tell, b"!")
            done.result()
            driver.settle()

        try:
            assert select.select([heard], [], [], ANSWER_SECONDS)[0], "nothing was exported"
            yield os.read(heard, 4096), end
        finally:
            os.write(tell, b"!")
    for descriptor in (heard, say, listen, tell):
        os.close(descriptor)


def _export_plain(driver: Driver, say: int, listen: int) -> None:
    address, handle = c_uint64(), Handle()
    driver.open_context()
    driver.check("cuMemAlloc_v2", byref(address), PIECE)
    with driver.charged(0):
        driver.check("cuIpcGetMemHandle", byref(handle), address)
    os.write(say, bytes(handle))
    os.read(listen, 1)


@exercise("cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle")
def plain_memory(driver: Driver) -> None:
    address = c_uint64()
    for symbol in ("cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2"):
        before = driver.used()
        with _exporter(driver, _export_plain) as (sent, end):
            handle = Handle.from_buffer_copy(sent)
            with driver.charged(0):  # its exporter is charged
                driver.check(symbol, byref(address), handle, LAZY_PEER_ACCESS)
            end()
            assert driver.used() - before == PIECE  # now we are
            driver.check("cuIpcCloseMemHandle", address)
        assert driver.used() == before


def _export_from_pool(driver: Driver, say: int, listen: int) -> None:
    pool, address, data, descriptor = c_void_p(), c_uint64(), Handle(), c_int()
    driver.open_context()
    driver.check("cuMemPoolCreate", byref(pool), byref(properties(FILE_DESCRIPTOR)))
    driver.check("cuMemAllocFromPoolAsync", byref(address), PIECE, pool, None)
    driver.check("cuStreamSynchronize", None)
    driver.check("cuMemPoolExportToShareableHandle", byref(descriptor), pool, FILE_DESCRIPTOR, 0)
    with driver.charged(0):
        driver.check("cuMemPoolExportPointer", byref(data), address)
    os.write(say, bytes(data) + f"/proc/{os.getpid()}/fd/{descriptor.value}".encode())
    os.read(listen, 1)


@exercise("cuMemPoolExportPointer", "cuMemPoolImportPointer")
def memory_of_a_pool(driver: Driver) -> None:
    pool, address = c_void_p(), c_uint64()
    before = driver.used()
    with _exporter(driver, _export_from_pool) as (sent, end):
        data = Handle.from_buffer_copy(sent)
        descriptor = os.open(sent[HANDLE_BYTES:], os.O_RDWR)
        driver.check(
            "cuMemPoolImportFromShareableHandle", byref(pool), descriptor, FILE_DESCRIPTOR, 0
        )
        with driver.charged(0):
            driver.check("cuMemPoolImportPointer", byref(address), pool, byref(data))
        end()
        assert driver.used() - before == PIECE
        driver.check("cuMemFree_v2", address)
        os.close(descriptor)
    assert driver.used() == before
    driver.check("cuMemPoolDestroy", pool)
