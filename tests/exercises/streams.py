"""Exercises of the end of a stream: what is measured or captured on it ends with it."""

from ctypes import byref, c_void_p

from exercises.waits import KERNEL_NS, WARM_UP_LAUNCHES, ends_budgets
from support.exercise.driver import Driver, exercise
from support.exercise.kernel import Spin

SLICE = {"core_percent": 50}
MEASURES = True
ENDS = ("cuStreamDestroy", "cuStreamDestroy_v2")
ROUNDS = 20
LAUNCHES = 5
GLOBAL_MODE = 0


def _replace_stream(driver: Driver, spin: Spin) -> c_void_p:
    """Gives the kernel another stream, and returns the one before."""
    before, spin.stream = spin.stream, c_void_p()
    driver.check("cuStreamCreate", byref(spin.stream), 0)
    return before


@exercise(*ENDS)
def ends_of_streams(driver: Driver) -> None:
    """A stream that ends while it has work takes nothing of ours with it."""
    spin = Spin(driver, KERNEL_NS)
    for _ in range(WARM_UP_LAUNCHES):  # until its GPU time is known
        spin.launch()
        spin.wait()
    for _ in range(ROUNDS):
        for symbol in ENDS:
            for _ in range(LAUNCHES):
                spin.launch()
            driver.check(symbol, _replace_stream(driver, spin))
            spin.launch()
    spin.wait()
    spin.close()


@exercise(*ENDS)
def ends_of_captures(driver: Driver) -> None:
    """A stream that ends while it captures is no reason to measure other streams less."""
    spin = Spin(driver, KERNEL_NS)
    for _ in range(WARM_UP_LAUNCHES):
        spin.launch()
        spin.wait()
    for symbol in ENDS:
        captured = _replace_stream(driver, spin)
        driver.check("cuStreamBeginCapture_v2", captured, GLOBAL_MODE)
        driver.check(symbol, captured)
        ends_budgets(driver, spin, "cuStreamSynchronize", spin.stream)
    spin.close()
