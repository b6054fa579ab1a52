"""What is charged and what is taken, for exercises: the ledger, and NVML's figure of the GPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from libvgpu.region import DeviceUsage, read_limits, read_usage, write_limits
from support.exercise.driver_sizes import Sizes
from support.exercise.nvml_used import UsedBytes

#: Environment variable: the `Sizes` of the GPU, as JSON.
SIZES = "VGPU_EXERCISE_SIZES"


class Books:
    """The books of the slice that this process runs in.

    Attributes:
        directory: of the slice.
        limit_bytes: its memory on device 0.
        sizes: what the driver gives, as it answered without the shim.
    """

    def __init__(self) -> None:
        self.directory = Path(os.environ["VGPU_DIR"])
        self.limit_bytes = read_limits(self.directory).limits.devices[0].memory_limit_bytes
        self.sizes = Sizes.from_json(os.environ[SIZES])
        self._device_bytes: UsedBytes | None = None

    def own(self) -> DeviceUsage:
        """Returns what `usage` says of this process on device 0, once it has used any."""
        return self._own()[0]

    def _own(self) -> list[DeviceUsage]:
        processes = read_usage(self.directory).processes
        return [process.devices[0] for process in processes if process.pid == os.getpid()]

    def used(self, kind: str | None = None) -> int:
        """Returns the bytes that the ledger has for device 0: all, or this process's of a kind."""
        if kind is None:
            return read_usage(self.directory).devices[0].used_bytes
        return sum(own.kind_bytes[kind] for own in self._own())

    def _asked(self, kind: str | None) -> int:
        return self.used() - (self.used("other") if kind != "other" else 0)

    def refusals(self) -> int:
        """Returns how often this process was refused memory of device 0."""
        return sum(own.refused_count for own in self._own())

    def device_bytes(self) -> int:
        """Returns what is really taken of device 0, by NVML's figure without the shim."""
        if self._device_bytes is None:
            self._device_bytes = UsedBytes(self.sizes.uuid)
        return self._device_bytes()

    @contextmanager
    def charged(
        self, change_bytes: int, kind: str | None = None, *, given: bool = False
    ) -> Iterator[None]:
        """Asserts by how much the ledger's bytes change inside.

        With ``given`` so must those that are really taken of the device. What the shim finds on its
        own meanwhile, such as what a stream took that was made before, is not of this.
        """
        before = self._asked(kind), self.used(kind) if kind else 0
        taken = self.device_bytes() if given else 0
        yield
        if given:
            assert self.device_bytes() - taken == change_bytes, "the device gave something else"
        after = self._asked(kind), self.used(kind) if kind else 0
        assert after[0] - before[0] == change_bytes, (after[0] - before[0], change_bytes)
        assert not kind or after[1] - before[1] == change_bytes, (kind, before, after)

    @contextmanager
    def full(self, left_bytes: int = 0) -> Iterator[None]:
        """Lowers the limit to what is used and ``left_bytes``; what must be refused goes inside."""
        self._limit(self.used() + left_bytes)
        try:
            yield
        finally:
            self._limit(self.limit_bytes)

    def _limit(self, bytes: int) -> None:
        limits = read_limits(self.directory).limits
        first = replace(limits.devices[0], memory_limit_bytes=bytes)
        write_limits(self.directory, replace(limits, devices=(first,)))
