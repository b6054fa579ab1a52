"""Percentages and memory limits: the daemon's defaults, and what a server was started with."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .wire import MpsControlError, whole_number

WHOLE_PERCENT = 100.0
_SIZE = re.compile(r"\d+[KMG]?B?", re.IGNORECASE)


def parse_percentage(text: str) -> float:
    """Returns a thread percentage.

    Raises:
        MpsControlError: it is none.
    """
    try:
        percentage = float(text)
    except ValueError:
        percentage = 0.0
    if not 0 < percentage <= WHOLE_PERCENT:
        raise MpsControlError(f"thread percentage {text!r} is not above 0 and at most 100")
    return percentage


@dataclass
class MpsSettings:
    """What clients may use.

    Attributes:
        devices: the GPUs that are served.
        percentage: of the threads of each.
        pinned: GPU -> memory limit, as it was written.
    """

    devices: list[str]
    percentage: float = WHOLE_PERCENT
    pinned: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, devices: list[str], environment: Mapping[str, str]) -> "MpsSettings":
        """Returns the defaults of a daemon, which its own environment may lower.

        Raises:
            MpsControlError: a variable has a value that is not allowed.
        """
        settings = cls(devices)
        if percentage := environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"):
            settings.percentage = parse_percentage(percentage)
        limits = environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "")
        for entry in filter(None, re.split(r"[, ]+", limits)):
            device, equals, size = entry.partition("=")
            if not equals:
                raise MpsControlError(
                    f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT has {entry!r}: write DEVICE=SIZE, "
                    "for example 0=4G"
                )
            settings.set_pinned(device, size)
        return settings

    def copy(self) -> "MpsSettings":
        return MpsSettings(self.devices, self.percentage, dict(self.pinned))

    def set_pinned(self, device: str, size: str) -> None:
        """Limits what each client may have of a GPU."""
        if not _SIZE.fullmatch(size):
            raise MpsControlError(f"memory limit {size!r} is not a size such as 4096M or 4G")
        self.pinned[self.find(device)] = size.upper().removesuffix("B")

    def get_pinned(self, device: str) -> str:
        return self.pinned.get(self.find(device), "")

    def find(self, name: str) -> str:
        """Returns the UUID of a GPU that is named by UUID or number.

        Raises:
            MpsControlError: it is not served.
        """
        index = whole_number(name)
        if index is not None and index < len(self.devices):
            return self.devices[index]
        if name in self.devices:
            return name
        raise MpsControlError(f"no device {name!r}: this daemon serves {', '.join(self.devices)}")

    def greeting(self) -> str:
        """Returns what a driver is told when it becomes a client."""
        lines = [f"percentage {max(1, int(self.percentage))}"]
        lines.extend(f"device {uuid}" for uuid in self.devices)
        lines.extend(f"pinned {uuid} {size}" for uuid, size in self.pinned.items())
        return "".join(f"{line}\n" for line in [*lines, "end"])
