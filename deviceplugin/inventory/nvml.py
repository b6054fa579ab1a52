"""Which GPUs this node has and how they are connected, by NVML.

Everything else takes the `Inventory` protocol, so tests and tools can bring GPUs of their own. A
simulated machine needs nothing special: its NVML is loaded through the same library search path.

A GPU that NVML fails for, or does not answer for (`nvml_calls`), is left out with the reason, and
the others are listed (`gpu_facts`). Only where NVML itself fails is there no list at all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from deviceplugin.log import LOGGER
from deviceplugin.model.gpus import Gpu, GpuListing, Inventory, SickGpu
from libvgpu.errors import DriverReplacedError, InventoryError

from .gpu_facts import Described, describe
from .nvlinks import joining, read_links
from .nvml_answers import LIB_RM_VERSION_MISMATCH, ask, error_code, text
from .nvml_calls import NoAnswer, NvmlCalls
from .topology import UNKNOWN, closeness

__all__ = ["Gpu", "GpuListing", "Inventory", "NvmlInventory", "SickGpu"]

#: The one question of a listing that is about no GPU alone; GPUs have their indexes.
_CLOSENESS = -1
_Rows = dict[str, dict[str, int]]


class NvmlInventory:
    """The GPUs that NVML shows; used by one thread at a time."""

    def __init__(self, calls: NvmlCalls[int] | None = None) -> None:
        """Asks nothing yet.

        Args:
            calls: how NVML is asked.
        """
        self._calls: NvmlCalls[int] = NvmlCalls() if calls is None else calls
        #: How close the GPUs of the last listing are: hundreds of calls on a node of eight.
        self._near: _Rows = {}
        self._is_near_unknown = False
        self._uuids: dict[int, str] = {}  # those that were ever read, by index

    def gpus(self) -> tuple[Gpu, ...]:
        """Returns those that work, in the order of their indexes.

        Raises:
            InventoryError: there is no NVML, or it fails.
        """
        return self.listing().gpus

    def listing(self) -> GpuListing:
        """Returns the GPUs that work and those that do not.

        Raises:
            InventoryError: there is no NVML, or it fails.
            DriverReplacedError: this process has the NVML of another driver than the kernel's.
        """
        import pynvml  # late: tools that never ask for GPUs start faster

        described: dict[int, Described] = {}
        try:
            answers = self._calls.ask(lambda nvml: self._questions(nvml, described))
        except pynvml.NVMLError as error:
            raise _cannot_list(error) from None
        near = answers.pop(_CLOSENESS, None)
        if isinstance(near, NoAnswer) and not self._is_near_unknown:
            LOGGER.warning("how close the GPUs lie is not known: a call of NVML does not return")
        self._is_near_unknown = isinstance(near, NoAnswer)
        if isinstance(near, dict):
            self._near = near
        gpus, sick = [], []
        for index, answer in answers.items():
            if isinstance(answer, NoAnswer):
                sick.append(SickGpu(index, self._uuids.get(index, ""), str(answer), hangs=True))
                continue
            gpu, failing = described[index]
            sick += failing
            if gpu is not None:
                gpus.append(_connected(gpu, self._near.get(gpu.uuid, {})))
        return GpuListing(tuple(gpus), tuple(sick))

    def _questions(
        self, pynvml: Any, described: dict[int, Described]
    ) -> Mapping[int, Callable[[], _Rows | None]]:
        """Returns what to ask of each GPU, by index, and of all together.

        Args:
            described: where the answers about GPUs go.
        """

        def look(index: int) -> None:
            described[index] = describe(pynvml, index, driver, cuda_version, self._uuids)

        def near() -> _Rows | None:
            gpus = [gpu for _, (gpu, _) in sorted(dict(described).items()) if gpu is not None]
            if self._near.keys() == {gpu.uuid for gpu in gpus}:
                return None
            try:
                handles = [pynvml.nvmlDeviceGetHandleByIndex(gpu.index) for gpu in gpus]
            except pynvml.NVMLError:
                return None  # the next listing tells
            return _closeness(pynvml, gpus, handles)

        try:
            driver = text(ask(pynvml, "nvmlSystemGetDriverVersion") or "")
            cuda_version = _cuda_version(pynvml)
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise InventoryError(f"NVML fails while listing the GPUs: {error}") from None
        return {index: partial(look, index) for index in range(count)} | {_CLOSENESS: near}


def _cannot_list(error: Exception) -> InventoryError:
    said = f"the GPUs of this node cannot be listed: NVML says {error}"
    if error_code(error) == LIB_RM_VERSION_MISMATCH:
        return DriverReplacedError(
            said,
            hint="the driver was replaced under this process; only a new one, in a new container, "
            "loads the library of the new driver",
        )
    return InventoryError(
        said,
        hint="install the NVIDIA driver, or use a simulated machine "
        "(vgpuctl sim run SPEC -- COMMAND)",
    )


def _cuda_version(pynvml: Any) -> tuple[int, int] | None:
    """Returns the newest CUDA that the driver serves; NVML says 12040 for 12.4."""
    said = ask(pynvml, "nvmlSystemGetCudaDriverVersion_v2")
    return (int(said) // 1000, int(said) % 1000 // 10) if said else None


def _closeness(
    pynvml: Any, gpus: Sequence[Gpu], handles: Sequence[Any]
) -> dict[str, dict[str, int]]:
    """Returns of each GPU how close the others are, by UUID."""
    known = partial(_unless_it_fails, pynvml)
    links = read_links(known, handles)
    near: dict[str, dict[str, int]] = {gpu.uuid: {} for gpu in gpus}
    for a in range(len(gpus)):
        for b in range(a + 1, len(gpus)):
            level = known("nvmlDeviceGetTopologyCommonAncestor", handles[a], handles[b])
            numa = gpus[a].numa_node, gpus[b].numa_node
            found = closeness(joining(links[a], links[b]), level, numa)
            if found != UNKNOWN:
                near[gpus[a].uuid][gpus[b].uuid] = near[gpus[b].uuid][gpus[a].uuid] = found
    return near


def _connected(gpu: Gpu, row: dict[str, int]) -> Gpu:
    """Returns a GPU that knows how close the others are."""
    parts = tuple(replace(part, closeness=row) for part in gpu.mig_devices)
    return replace(gpu, closeness=row, mig_devices=parts)


def _unless_it_fails(pynvml: Any, function: str, *arguments: Any) -> Any:
    """Like `ask`; of a GPU that is lost by now the next listing tells."""
    try:
        return ask(pynvml, function, *arguments)
    except pynvml.NVMLError:
        return None
