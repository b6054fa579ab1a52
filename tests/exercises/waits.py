"""Exercises of waits and transfers: they end the open measurement and the budget of launches."""

import ctypes
import time
from ctypes import byref, c_uint, c_uint64, c_void_p
from typing import Any

from support.exercise.driver import Driver, exercise
from support.exercise.kernel import Spin
from support.exercise.memory import Memory

SLICE = {"core_percent": 50}
MEASURES = True
KERNEL_NS = 20_000
LONG_NS = 5_000_000
NOT_READY = 600
WAIT_VALUE_32 = 1  # CU_STREAM_MEM_OP_WAIT_VALUE_32
NOTHING = ctypes.cast(ctypes.CDLL(None).getpid, c_void_p)  # a function that does nothing
WARM_UP_LAUNCHES = 20
TRIES = 20
IDLE_SECONDS = 0.005  # the share has room for prepaid launches again
LAUNCHES = 3


def ends_budgets(
    driver: Driver, spin: Spin, symbol: str, *arguments: Any, may_refuse: bool = False
) -> None:
    """Calls it, until it has ended a budget.

    Args:
        may_refuse: not every driver does it, and what it answers is its own business.
    """
    for _ in range(TRIES):  # nothing is prepaid while the share is used up
        time.sleep(IDLE_SECONDS)
        before = driver.own().launches
        for _ in range(LAUNCHES):
            spin.launch()
        noted = driver.own().launches - before
        code = driver.call(symbol, *arguments)
        assert code == 0 or may_refuse, f"{symbol} gave {code}"
        assert driver.own().launches - before == LAUNCHES
        if noted < LAUNCHES:  # prepaid ones are noted when their budget ends
            return
    raise AssertionError(f"{symbol}: no launch was ever prepaid")


@exercise(
    "cuStreamSynchronize",
    "cuStreamSynchronize_ptsz",
    "cuEventSynchronize",
    "cuCtxSynchronize",
    "cuMemcpyDtoH_v2",
    "cuMemcpyDtoH_v2_ptds",
)
def waits(driver: Driver) -> None:
    spin, event, address = Spin(driver, KERNEL_NS), c_void_p(), c_uint64()
    host = ctypes.create_string_buffer(64)
    driver.check("cuEventCreate", byref(event), 0)
    driver.check("cuMemAlloc_v2", byref(address), len(host))
    for _ in range(WARM_UP_LAUNCHES):  # until its GPU time is known
        spin.launch()
        spin.wait()
    ends_budgets(driver, spin, "cuStreamSynchronize", spin.stream)
    ends_budgets(driver, spin, "cuStreamSynchronize_ptsz", spin.stream)
    ends_budgets(driver, spin, "cuEventSynchronize", event)
    ends_budgets(driver, spin, "cuCtxSynchronize")
    ends_budgets(driver, spin, "cuMemcpyDtoH_v2", host, address, len(host))
    ends_budgets(driver, spin, "cuMemcpyDtoH_v2_ptds", host, address, len(host))
    driver.check("cuMemFree_v2", address)
    driver.check("cuEventDestroy_v2", event)
    spin.close()


@exercise("cuCtxSynchronize_v2")
def wait_for_a_context(driver: Driver) -> None:
    spin = Spin(driver, KERNEL_NS)
    for _ in range(WARM_UP_LAUNCHES):
        spin.launch()
        spin.wait()
    ends_budgets(driver, spin, "cuCtxSynchronize_v2", None)
    spin.close()


def _rows(*names: str) -> tuple[str, ...]:
    """The newest form of functions, and its twin."""
    return tuple(
        f"{name}{form}"
        for name in names
        for form in ("_v2", "_v2_ptsz" if name.endswith("Async") else "_v2_ptds")
    )


OF_MEMORY = _rows("cuMemcpyHtoD", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync")
OLD_OF_ARRAYS = ("cuMemcpyHtoA", "cuMemcpyHtoAAsync", "cuMemcpyAtoH", "cuMemcpyAtoHAsync")
OF_ARRAYS = _rows(*OLD_OF_ARRAYS)


@exercise(*OF_MEMORY, *OF_ARRAYS)
def transfers(driver: Driver) -> None:
    """Each ends a measurement, and moves the bytes."""
    spin, memory = Spin(driver, KERNEL_NS), Memory(driver)
    content = bytes(range(64))
    host = ctypes.create_string_buffer(content, len(content))
    size = len(content)
    plain, array = memory.plain(content), memory.array(size)
    for _ in range(WARM_UP_LAUNCHES):
        spin.launch()
        spin.wait()
    for symbol in OF_MEMORY + OF_ARRAYS:
        is_upload = "Hto" in symbol
        place = (array, 0) if symbol in OF_ARRAYS else (plain,)
        stream = (None,) if "Async" in symbol else ()
        host.raw = content if is_upload else bytes(size)
        ends_budgets(
            driver, spin, symbol, *((*place, host) if is_upload else (host, *place)), size, *stream
        )
        if is_upload and symbol in OF_MEMORY:
            assert memory.read(plain, size) == content, symbol
            driver.check(symbol, *place, host, size, *stream)  # reading empties it
        assert host.raw == content, symbol
    memory.close()
    spin.close()


@exercise(*OLD_OF_ARRAYS)
def old_transfers(driver: Driver) -> None:
    memory = Memory(driver)
    host, array = ctypes.create_string_buffer(64), memory.array(64)
    for symbol in OLD_OF_ARRAYS:
        sides = (array, 0, host) if "Hto" in symbol else (host, array, 0)
        driver.outdated(symbol, *sides, 64, *((None,) if "Async" in symbol else ()))
    memory.close()


ASKS = ("cuStreamQuery", "cuStreamQuery_ptsz", "cuEventQuery")


@exercise(*ASKS)
def asks(driver: Driver) -> None:
    """They answer as the driver does, however often: not yet, or done on a slow machine."""
    spin, event = Spin(driver, LONG_NS), c_void_p()
    driver.check("cuEventCreate", byref(event), 0)
    spin.blocks = 8  # another kind than the short one
    spin.launch()
    driver.check("cuEventRecord", event, spin.stream)
    for symbol in ASKS:
        for _ in range(LAUNCHES):
            code = driver.call(symbol, event if symbol == "cuEventQuery" else spin.stream)
            assert code in (0, NOT_READY), f"{symbol} gave {code}"
    spin.wait()
    for symbol in ASKS:
        driver.check(symbol, event if symbol == "cuEventQuery" else spin.stream)
    driver.check("cuEventDestroy_v2", event)
    spin.close()


class WordWait(ctypes.Structure):
    """CUstreamBatchMemOpParams that wait for a word."""

    _fields_ = (
        ("operation", c_uint),
        ("address", c_uint64),
        ("value", c_uint64),
        ("flags", c_uint),
        ("rest", c_uint64 * 2),
    )


def _both(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}{twin}" for name in names for twin in ("", "_ptsz"))


HOST_FUNCTIONS = _both("cuLaunchHostFunc", "cuStreamAddCallback")
#: The first forms had to be switched on in the kernel module.
OLD_WORD_WAITS = _both("cuStreamWaitValue32", "cuStreamWaitValue64", "cuStreamBatchMemOp")
WORD_WAITS = _both("cuStreamWaitValue32_v2", "cuStreamWaitValue64_v2", "cuStreamBatchMemOp_v2")
SEMAPHORES = _both("cuWaitExternalSemaphoresAsync")
NEW_HOST_FUNCTIONS = _both("cuLaunchHostFunc_v2")


def _warm(driver: Driver) -> Spin:
    spin = Spin(driver, KERNEL_NS)
    for _ in range(WARM_UP_LAUNCHES):
        spin.launch()
        spin.wait()
    return spin


@exercise(*HOST_FUNCTIONS, *SEMAPHORES)
def stream_waits(driver: Driver) -> None:
    """What a stream waits for is not measured with what is launched behind it."""
    spin = _warm(driver)
    for symbol in HOST_FUNCTIONS:
        flags = (0,) if "Callback" in symbol else ()
        ends_budgets(driver, spin, symbol, spin.stream, NOTHING, None, *flags)
    for symbol in SEMAPHORES:
        ends_budgets(driver, spin, symbol, None, None, 0, spin.stream, may_refuse=True)
    spin.close()


@exercise(*NEW_HOST_FUNCTIONS)
def new_host_functions(driver: Driver) -> None:
    spin = _warm(driver)
    for symbol in NEW_HOST_FUNCTIONS:
        ends_budgets(driver, spin, symbol, spin.stream, NOTHING, None, 0)
    spin.close()


@exercise(*OLD_WORD_WAITS)
def old_word_waits(driver: Driver) -> None:
    _word_waits(driver, OLD_WORD_WAITS, may_refuse=True)


@exercise(*WORD_WAITS)
def word_waits(driver: Driver) -> None:
    _word_waits(driver, WORD_WAITS, may_refuse=False)


def _word_waits(driver: Driver, symbols: tuple[str, ...], may_refuse: bool) -> None:
    spin, memory = _warm(driver), Memory(driver)
    word = memory.plain(bytes(8))
    wait = WordWait(WAIT_VALUE_32, word, 0, 0)  # for 0 or more
    for symbol in symbols:
        what = (1, byref(wait)) if "Batch" in symbol else (word, 0)
        ends_budgets(driver, spin, symbol, spin.stream, *what, 0, may_refuse=may_refuse)
    spin.wait()
    memory.close()
    spin.close()
