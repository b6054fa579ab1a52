"""Whether a call waits for the share, for exercises; what it takes besides is not noted."""

from typing import Any

from libvgpu.region import DeviceUsage
from support.exercise.driver import Driver
from support.exercise.kernel import Spin

#: What a file of such exercises sets `SLICE` to.
SLICE = {"core_percent": 5}
KERNEL_NS = 500_000  # 10 ms of the share
LEAST_HELD_NS = 4_000_000
TRIES = 20
#: A program that paused may catch up 50 ms of its share.
KERNELS_OF_CREDIT = 6


class Share:
    """A share that is used up before each call that is tried."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.spin = driver, Spin(driver, KERNEL_NS)
        self._use_up()

    def held(self, symbol: str, *arguments: Any) -> None:
        """Calls it while the share is used up for 10 ms: it must wait, and count as one launch.

        On a busy machine the 10 ms may pass before the call: then again.
        """
        held_ns = 0
        for _ in range(TRIES):
            self.spin.launch()
            launches, held_ns = self._try(symbol, *arguments)
            assert launches == 1, f"{symbol} counted as {launches} launches"
            if held_ns > LEAST_HELD_NS:
                return
        raise AssertionError(f"{symbol} was held for {held_ns} ns")

    def passes(self, symbol: str, *arguments: Any) -> None:
        """Calls it in the same state: it must neither wait nor count."""
        self.spin.launch()
        assert self._try(symbol, *arguments) == (0, 0), f"{symbol} was taken for a launch"

    def close(self) -> None:
        """Gives back what was taken."""
        self.spin.close()

    def _try(self, symbol: str, *arguments: Any) -> tuple[int, int]:
        before = self._at_rest()
        self.driver.check(symbol, *arguments)
        after = self._at_rest()
        return after.launches - before.launches, after.held_ns - before.held_ns

    def _at_rest(self) -> DeviceUsage:
        """A wait gives back what is leased: such launches count before they are made."""
        self.spin.wait()
        return self.driver.own()

    def _use_up(self) -> None:
        for _ in range(KERNELS_OF_CREDIT):
            self.spin.launch()
