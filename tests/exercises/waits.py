"""Exercises of waits and transfers: they end the open measurement and the budget of launches."""

import ctypes
import time
from ctypes import byref, c_uint64, c_void_p
from typing import Any

from support.exercise.driver import Driver, exercise
from support.exercise.kernel import Spin
from support.exercise.memory import Memory

SLICE = {"core_percent": 50}
MEASURES = True
KERNEL_NS = 20_000
LONG_NS = 5_000_000
NOT_READY = 600
WARM_UP_LAUNCHES = 20
TRIES = 20
IDLE_SECONDS = 0.005  # the share has room for prepaid launches again
LAUNCHES = 3


def ends_budgets(driver: Driver, spin: Spin, symbol: str, *arguments: Any) -> None:
    for _ in range(TRIES):  # nothing is prepaid while the share is used up
        time.sleep(IDLE_SECONDS)
        before = driver.own().launches
        for _ in range(LAUNCHES):
            spin.launch()
        noted = driver.own().launches - before
        driver.check(symbol, *arguments)
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
    """They answer as the driver does, however often."""
    spin, event = Spin(driver, LONG_NS), c_void_p()
    driver.check("cuEventCreate", byref(event), 0)
    spin.blocks = 8  # another kind than the short one
    spin.launch()
    driver.check("cuEventRecord", event, spin.stream)
    for symbol in ASKS:
        for _ in range(LAUNCHES):
            code = driver.call(symbol, event if symbol == "cuEventQuery" else spin.stream)
            assert code == NOT_READY, f"{symbol} gave {code}"
    spin.wait()
    for symbol in ASKS:
        driver.check(symbol, event if symbol == "cuEventQuery" else spin.stream)
    driver.check("cuEventDestroy_v2", event)
    spin.close()
