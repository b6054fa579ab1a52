"""What MPS needs of a GPU itself: whether it can be shared so, and its compute mode. By NVML."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from deviceplugin.inventory.nvml_answers import LIB_RM_VERSION_MISMATCH, error_code, list_processes
from libvgpu.errors import DriverReplacedError, MpsError

EXCLUSIVE_PROCESS = 3
_PROHIBITED = 2
#: Compute capability 7.0: clients of several users on one server, thread percentages, and limits.
_VOLTA_MAJOR = 7
_MIG_ON = 1


class Boards(Protocol):
    """The GPUs of this node, by UUID."""

    def problem(self, uuid: str) -> str | None:
        """Returns in a sentence why a GPU cannot be under MPS, None where it can."""
        ...

    def processes(self, uuid: str) -> list[int]:
        """Returns the processes that compute on it without MPS, as far as that can be told."""
        ...

    def memory_bytes(self, uuid: str) -> int:
        """Returns how much memory it has; MpsError where that cannot be told."""
        ...

    def compute_mode(self, uuid: str) -> int:
        """Returns its compute mode; MpsError where that cannot be told."""
        ...

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        """Changes its compute mode; MpsError where that is refused."""
        ...


class NvmlBoards:
    """The GPUs that NVML shows.

    Attributes:
        failure: why this process cannot ask NVML any more, None while it can; set by any thread.
    """

    def __init__(self) -> None:
        self.failure: DriverReplacedError | None = None

    def problem(self, uuid: str) -> str | None:
        """See `Boards`; what NVML cannot tell speaks against nothing."""
        try:
            with self._opened(uuid) as (pynvml, handle):
                major = _ask(pynvml, "nvmlDeviceGetCudaComputeCapability", handle)
                mig = _ask(pynvml, "nvmlDeviceGetMigMode", handle)
                mode = _ask(pynvml, "nvmlDeviceGetComputeMode", handle)
        except MpsError as error:
            return error.message
        if major is not None and major[0] < _VOLTA_MAJOR:
            return (
                f"GPU {uuid} has compute capability {major[0]}.{major[1]}, and MPS knows neither "
                "clients of several users nor shares of threads before Volta (7.0); share it in "
                "family vgpu"
            )
        if mig is not None and mig[0] == _MIG_ON:
            return (
                f"GPU {uuid} has MIG on, so it cannot be under MPS as a whole; turn MIG off, or "
                "share it in another way"
            )
        if mode == _PROHIBITED:
            return (
                f"GPU {uuid} is in compute mode PROHIBITED, which somebody must have chosen; set "
                "it to DEFAULT (nvidia-smi -c 0) to share it"
            )
        return None

    def processes(self, uuid: str) -> list[int]:
        """See `Boards`."""
        with self._opened(uuid) as (pynvml, handle):
            try:
                before, found, after = (  # clients come and go meanwhile
                    {int(process.pid) for process in list_processes(pynvml, kind, handle)}
                    for kind in ("MPSCompute", "Compute", "MPSCompute")
                )
            except pynvml.NVMLError:
                return []
        return sorted(found - before - after)

    def memory_bytes(self, uuid: str) -> int:
        """See `Boards`."""
        with self._opened(uuid) as (pynvml, handle):
            return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)

    def compute_mode(self, uuid: str) -> int:
        """See `Boards`."""
        with self._opened(uuid) as (pynvml, handle):
            return int(pynvml.nvmlDeviceGetComputeMode(handle))

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        """See `Boards`."""
        with self._opened(uuid) as (pynvml, handle):
            pynvml.nvmlDeviceSetComputeMode(handle, mode)

    @contextmanager
    def _opened(self, uuid: str) -> Iterator[tuple[Any, Any]]:
        import pynvml  # late: who only reads what the runner says needs none

        try:
            pynvml.nvmlInit()
            try:
                yield pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
            finally:
                pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            if error_code(error) == LIB_RM_VERSION_MISMATCH:
                self.failure = DriverReplacedError(
                    f"the driver was replaced under the MPS runner: NVML says {error}",
                    hint="only a new process, in a new container, loads the new driver's library",
                )
            raise MpsError(
                f"GPU {uuid} cannot be asked or set up for MPS: NVML says {error}"
            ) from None


def _ask(pynvml: Any, function: str, *arguments: Any) -> Any:
    """Returns what NVML says, None where it or the bindings cannot say it."""
    try:
        return getattr(pynvml, function)(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None
