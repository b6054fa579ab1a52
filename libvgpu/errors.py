"""The errors of all three packages, in one tree.

A message says what was asked, why it cannot be, and what is allowed; ``hint`` is an optional
further sentence. The command lines print them as one sentence on stderr and exit with
``exit_status``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from os import fspath
from pathlib import Path


class VgpuError(Exception):
    """Root of everything this project raises on purpose; refused, exit status 1."""

    exit_status = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(VgpuError, ValueError):
    """A value the user typed is not one of those allowed; exit status 2."""

    exit_status = 2


class ConfigError(UsageError):
    """The config file is wrong; names file, line or key, value and what is allowed.

    Attributes:
        path: of the value in the file (`Places`); empty where it is no single one.
    """

    def __init__(self, message: str, hint: str | None = None, path: str = "") -> None:
        super().__init__(message, hint)
        self.path = path


class InventoryError(VgpuError):
    """The GPUs of this node cannot be listed or are not what the config says."""


class DriverReplacedError(InventoryError):
    """The driver was replaced under this process, whose library of it answers no more."""


class AllocationRefused(VgpuError):  # noqa: N818 - the word its messages begin with
    """A request cannot be honoured: what was asked, what was free, on which GPU."""


class UnknownAllocation(VgpuError):  # noqa: N818 - it is the allocation that is unknown
    """Nobody has an allocation of that id or name (any more)."""


class RegionError(VgpuError):
    """A `limits` or `usage` file is missing, damaged or of another layout version."""


class RegionUnknownError(RegionError):
    """A call for a `limits` or `usage` file failed in a way that says nothing about the file: no
    descriptor is left, say. The file must be taken for whole and in use.
    """


class RegionBusyError(RegionUnknownError):
    """A `limits` or `usage` file is whole, and its container keeps others from opening it now."""


class LayoutError(RegionError):
    """A `limits` file is another version's, which may be in use and whole for all that we know."""


class DevicesDifferError(RegionError):
    """A `limits` file is whole and cannot be changed so: it was made for other devices."""


class MpsError(VgpuError):
    """An MPS control daemon cannot be started or does not answer."""


class MpsSilentError(MpsError):
    """An MPS control daemon did not answer in time; it may be busy, and nothing else be wrong."""


class SimulationError(VgpuError):
    """A simulated machine cannot be made, found or used."""


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Gives an OSError the name of the file where it has none: a call had its descriptor alone."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = fspath(path)
        raise
