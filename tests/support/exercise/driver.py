"""What exercises of hooked functions are written with.

An exercise calls functions by their exact ELF symbol, as a program that was linked against that
version of the driver, and asserts the effect that the row in `hooks.def` promises::

    @exercise("cuMemAlloc_v2", "cuMemFree_v2")
    def plain_memory(driver: Driver) -> None:
        address = c_uint64()
        with driver.charged(MIB, "plain"):
            driver.check("cuMemAlloc_v2", byref(address), MIB)
        with driver.charged(-MIB, "plain"):
            driver.check("cuMemFree_v2", address)

It runs under the shim, in a slice of a simulated or a real GPU, next to the other exercises of its
file. So it knows no size of the driver's: those it expects are `Driver.sizes`, which the driver was
asked for. What a driver or GPU cannot do ends it by `Driver.needs`.
"""

import ctypes
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from libvgpu.driver_releases import nvml_since
from libvgpu.hook_table import read_hook_table
from support.exercise.books import Books

OUT_OF_MEMORY = 2
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Exercise:
    """One exercise: the symbols it is about, and the function that tries them."""

    symbols: tuple[str, ...]
    run: Callable[["Driver"], None]
    with_context: bool


#: All exercises of the files imported so far, by module and function name.
EXERCISES: dict[tuple[str, str], Exercise] = {}


def exercise(
    *symbols: str, context: bool = True
) -> Callable[[Callable[["Driver"], None]], Callable[["Driver"], None]]:
    """Makes a function an exercise of these symbols; it fails if it does not call each of them.

    Args:
        symbols: exact ELF symbols, twins too.
        context: whether device 0's primary context is to be current.
    """

    def register(function: Callable[["Driver"], None]) -> Callable[["Driver"], None]:
        place = (function.__module__.rpartition(".")[2], function.__name__)
        assert place not in EXERCISES, place
        EXERCISES[place] = Exercise(symbols, function, context)
        return function

    return register


class UnexpectedCodeError(AssertionError):
    """A call that should have succeeded gave another code."""


class CannotRunError(Exception):
    """The GPU or its driver cannot do what the exercise is about; says why in a sentence."""


class Driver(Books):
    """The CUDA driver and NVML of this process, function by function; all calls are noted.

    Attributes:
        called: the symbols that were called.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._libc = ctypes.CDLL(None)
        self.called: set[str] = set()

    def call(self, symbol: str, *arguments: Any) -> int:
        """Calls a function and returns its code.

        Integers are passed as 64 bits, which is right for narrower parameters too; ``None`` is a
        null pointer; results and structures are ``ctypes.byref(…)``.
        """
        return self.call_at(self.function(symbol), symbol, *arguments)

    def call_at(self, function: Any, symbol: str, *arguments: Any) -> int:
        """The same of a function that was found by other means."""
        code = int(function(*(ctypes.c_uint64(a) if type(a) is int else a for a in arguments)))
        self.called.add(symbol)
        return code

    def check(self, symbol: str, *arguments: Any) -> None:
        """Calls a function that must succeed."""
        code = self.call(symbol, *arguments)
        if code != 0:
            raise UnexpectedCodeError(f"{symbol} gave {code}")

    def refuse(self, symbol: str, *arguments: Any) -> None:
        """Calls a function that must find the slice full and leave its bytes as they were.

        The refusal must be counted, once.
        """
        before = self.refusals()
        with self.charged(0):
            code = self.call(symbol, *arguments)
            assert code == OUT_OF_MEMORY, f"{symbol} gave {code}, not out of memory"
        told = self.refusals() - before
        assert told == 1, f"{symbol} was refused once and counted {told} times"

    def outdated(self, symbol: str, *arguments: Any) -> None:
        """Calls a function of before CUDA 3.2, which no driver has a context for any more.

        The driver's answer must come back, and nothing be charged for it.
        """
        with self.charged(0):
            code = self.call(symbol, *arguments)
        answer = self.sizes.outdated_code
        assert code == answer != 0, f"{symbol} gave {code}, not the driver's answer, {answer}"

    def needs(self, condition: bool, reason: str) -> None:
        """Ends the exercise, which then counts as skipped, unless the GPU has what it is about.

        Raises:
            CannotRunError: it has not, for this reason, which is a sentence.
        """
        if not condition:
            raise CannotRunError(reason)

    def needs_call(self, symbol: str, reason: str) -> None:
        """The same, unless the driver does this call for a program without the shim."""
        code = self.sizes.codes[symbol]
        self.needs(code == 0, f"{symbol} gives {code} here without the shim, too: {reason}")

    def attribute(self, number: int) -> int:
        """Returns an attribute of device 0 (CUdevice_attribute)."""
        value = ctypes.c_int()
        assert self._cuda.cuDeviceGetAttribute(ctypes.byref(value), number, 0) == 0
        return value.value

    def function(self, symbol: str) -> Any:
        """Returns a function without calling it; it is the shim's own if it is hooked."""
        return getattr(self._nvml if symbol.startswith("nvml") else self._cuda, symbol)

    def has(self, symbol: str) -> bool:
        """Whether a program finds the function in the driver, or in NVML."""
        return hasattr(self._nvml if symbol.startswith("nvml") else self._cuda, symbol)

    def newer(self, symbols: tuple[str, ...]) -> tuple[str, ...]:
        """Returns those that came, as their tables say, after this driver.

        An NVML may have a function before its header tells of it.
        """
        version = ctypes.c_int()
        assert self._cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
        cuda = {row.symbol for row in read_hook_table() if row.since > version.value}
        nvml = {symbol for symbol, since in nvml_since().items() if since > self._release}
        return tuple(s for s in symbols if s in cuda or (s in nvml and not self.has(s)))

    @functools.cached_property
    def _release(self) -> tuple[int, ...]:
        """The driver's version, as NVML gives it."""
        text = ctypes.create_string_buffer(80)
        assert self._nvml.nvmlInit_v2() == 0
        assert self._nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0
        assert self._nvml.nvmlShutdown() == 0
        return tuple(map(int, text.value.split(b".")))

    def is_hooked(self, function: Any) -> bool:
        """Whether a function, or an address, lies in the shim."""
        address = function if isinstance(function, int) else _address(function)
        information = (ctypes.c_void_p * 4)()  # Dl_info: file name, base, symbol, its address
        assert self._libc.dladdr(ctypes.c_void_p(address), information) != 0
        name = information[0]
        return (
            name is not None and ctypes.string_at(name).decode() in os.environ["LD_PRELOAD"].split()
        )

    def elsewhere(
        self, function: Callable[..., Any], *arguments: Any, fds: tuple[int, ...] = ()
    ) -> Any:
        """Calls ``function(driver, *arguments)`` of the same file in a second process of the slice.

        Arguments and result go as JSON; ``fds`` keep their numbers there. What it calls is noted.
        """
        from support.exercise.process import run_elsewhere

        value, called = run_elsewhere(function, arguments, fds)
        self.called |= called
        self.settle()
        return value

    def settle(self) -> None:
        """Has the ledger look for processes that ended: their bytes return with the next check."""
        self._cuda.cuMemGetInfo_v2(*(ctypes.byref(ctypes.c_size_t()) for _ in range(2)))

    def open_context(self) -> None:
        """Makes device 0's primary context current unless one is, by calls that are not noted."""
        context = ctypes.c_void_p()
        assert self._cuda.cuInit(0) == 0
        if self._cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0 and context:
            return
        for code in (
            self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
            self._cuda.cuCtxSetCurrent(context),
        ):
            assert code == 0, code


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address
