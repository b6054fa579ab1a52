"""The thread that lists the GPUs again and again; `core.gpu_follower` acts on what it finds.

A thread of its own, since calls of NVML take long while a GPU is sick (`nvml_calls` bounds that).
NVML is opened and closed around each listing, so that it is not kept from noticing a GPU that comes
back; while the health watch has it open, that costs next to nothing.
"""

from collections.abc import Callable, Iterable

from deviceplugin import runtime
from deviceplugin.log import LOGGER
from deviceplugin.model.gpus import Gpu, GpuListing, Inventory
from libvgpu.errors import InventoryError

LIST_EVERY_S = 5.0

#: What was listed, or why nothing could be.
Listed = GpuListing | InventoryError


def list_gpus(inventory: Inventory) -> Listed:
    """Returns what is listed, or why nothing can be."""
    try:
        return inventory.listing()
    except InventoryError as error:
        return error


def hanging(listed: Listed, gpus: Iterable[Gpu]) -> dict[str, str]:
    """Returns why each GPU and MIG device is unhealthy for which a call of the listing hangs.

    Args:
        gpus: that are known: what hangs for one that is cut does so for all its MIG devices.
    """
    if not isinstance(listed, GpuListing):
        return {}
    reasons = {sick.uuid: sick.reason for sick in listed.sick if sick.hangs}
    return {
        device.uuid: reasons[gpu.uuid]
        for gpu in gpus
        if gpu.uuid in reasons
        for device in (gpu, *gpu.mig_devices)
    }


class GpuWatch:
    """Lists the GPUs of a node from `start` to `stop`.

    Attributes:
        latest: what was listed last; replaced whole, each time by another value.
    """

    def __init__(
        self,
        inventory: Inventory,
        first: Listed,
        every_s: float | None = None,
        turned: Callable[[], None] = lambda: None,
    ) -> None:
        """Makes a watch that does not run yet.

        Args:
            first: what was listed when the agent started.
            every_s: seconds between two listings; `LIST_EVERY_S` where nobody says.
            turned: called each time the watch comes round.
        """
        self._turned = turned
        self.latest = first
        self._inventory = inventory
        self._every_s = LIST_EVERY_S if every_s is None else every_s
        self._stop = runtime.event()
        self._thread = runtime.thread(target=self._run, name="gpus")

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Lists nothing any more; the thread ends by itself."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._turned()
            try:
                self.latest = list_gpus(self._inventory)
            except Exception:  # whatever the bindings raise, the GPUs are listed again
                LOGGER.exception("the GPUs could not be listed")
