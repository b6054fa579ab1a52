"""The thread that lists the GPUs again and again; `core.gpu_follower` acts on what it finds.

A thread of its own, since a call of NVML may hang for as long as a GPU is sick. NVML is opened and
closed around each listing, so that it is not kept from noticing a GPU that comes back; while the
health watch has it open, that costs next to nothing.
"""

import threading

from deviceplugin.log import LOGGER
from deviceplugin.model.gpus import GpuListing, Inventory
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


class GpuWatch:
    """Lists the GPUs of a node from `start` to `stop`.

    Attributes:
        latest: what was listed last; replaced whole, each time by another value.
    """

    def __init__(self, inventory: Inventory, first: Listed, every_s: float | None = None) -> None:
        """Makes a watch that does not run yet.

        Args:
            first: what was listed when the agent started.
            every_s: seconds between two listings; `LIST_EVERY_S` where nobody says.
        """
        self.latest = first
        self._inventory = inventory
        self._every_s = LIST_EVERY_S if every_s is None else every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpus", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Lists nothing any more; the thread ends by itself."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self.latest = list_gpus(self._inventory)
            except Exception:  # whatever the bindings raise, the GPUs are listed again
                LOGGER.exception("the GPUs could not be listed")
