"""Has the agent's GPUs follow those of the node; a duty of the loop.

`inventory.gpu_watch` lists them every few seconds. Here a GPU that comes (new, repaired, cut into
other MIG devices) is shared as the config says, and one that goes is kept unhealthy until it is
back or replaced (`policy.devices.known_gpus`). How the GPUs are that the agent knows,
`health_watch` says.

A driver that is gone takes all GPUs with it until it is back. One that was replaced needs a new
process, since this one has the library of the old driver mapped: the agent says so and ends, and
whoever runs it starts it again.
"""

import logging
from collections.abc import Callable, Iterable

from deviceplugin import runtime
from deviceplugin.inventory.gpu_watch import Listed, list_gpus
from deviceplugin.log import event
from deviceplugin.model.gpus import Gpu, GpuListing, Inventory
from deviceplugin.model.notices import EventReason, node_notice
from deviceplugin.policy.devices.device_resources import device_of
from deviceplugin.policy.devices.known_gpus import KnownGpus, known_now, left_out
from deviceplugin.store.node_state import NodeState
from libvgpu.errors import DriverReplacedError, InventoryError


def first_listing(inventory: Inventory, fail_on_init_error: bool) -> Listed:
    """Returns what the node has when the agent starts, or why that cannot be said yet.

    Args:
        fail_on_init_error: of the config; without it the agent starts all the same and waits.

    Raises:
        InventoryError: the GPUs cannot be listed, and that is an error or will not change in this
            process.
    """
    first = list_gpus(inventory)
    is_fatal = fail_on_init_error or isinstance(first, DriverReplacedError)
    if isinstance(first, InventoryError) and is_fatal:
        raise first
    return first


def listed_gpus(listed: Listed) -> tuple[Gpu, ...]:
    """Returns the GPUs of a listing; none where there is none."""
    return listed.gpus if isinstance(listed, GpuListing) else ()


class GpuFollower:
    """Acts on what is listed; used by the agent's main thread.

    Attributes:
        failure: why the agent has to end, None while it need not.
        known: the GPUs that count, with the indexes that the config means.
    """

    def __init__(
        self,
        latest: Callable[[], Listed],
        state: NodeState,
        known: KnownGpus,
        follow: Callable[[KnownGpus], None],
        look_closer: Callable[[], None],
        stop: runtime.Event,
    ) -> None:
        """Does nothing yet.

        Args:
            latest: what was listed last.
            known: the GPUs that the agent starts with.
            follow: puts other GPUs into force.
            look_closer: has NVML opened again: a process that saw a GPU fail does not see it come
                back otherwise.
            stop: ends the agent.
        """
        self.failure: DriverReplacedError | None = None
        self._latest, self._state, self._follow = latest, state, follow
        self._look_closer, self._stop = look_closer, stop
        self.known = known
        self._seen: Listed | None = None

    def look(self) -> None:
        """Puts into force what is new.

        Raises:
            ConfigError: the config does not fit the GPUs that are there now.
        """
        if self.failure is not None:
            self._stop.set()  # a turn later than it was said, so that the Event is sent
            return
        latest = self._latest()
        if latest is self._seen:
            return
        self._seen = latest
        if isinstance(latest, DriverReplacedError):
            self._end(latest)
        elif isinstance(latest, InventoryError):
            self._say_no_driver(latest)
        else:
            self._take(latest)

    def renumbered(self) -> KnownGpus:
        """Returns the GPUs with the indexes of NVML, as far as those are known."""
        latest = self._latest()
        if not isinstance(latest, GpuListing):
            return self.known
        return known_now(self.known, latest, self._is_held, keeps_indexes=False)

    def _take(self, listing: GpuListing) -> None:
        if self._state.driver_problem:
            self._state.driver_problem = ""
            event(
                logging.INFO,
                "the NVIDIA driver answers again",
                notice=node_notice(EventReason.DRIVER_AVAILABLE, "the NVIDIA driver answers again"),
            )
        known = known_now(self.known, listing, self._is_held)
        self._say_left_out(left_out(known.here, listing))
        if any(not sick.hangs for sick in listing.sick):
            self._look_closer()
        if known != self.known or _runtime_indexes(known) != _runtime_indexes(self.known):
            came = _uuids(known.here) - _uuids(self.known.here)
            self.known = known
            self._follow(known)
            for uuid in sorted(came):
                event(logging.INFO, "GPU found", gpu=uuid)

    def _is_held(self, uuid: str) -> bool:
        with self._state.lock:
            held = any(device_of(each) == uuid for _, each in self._state.held)
            return held or bool(self._state.book.on_gpu(uuid))

    def _say_left_out(self, reasons: dict[str, str]) -> None:
        before, self._state.left_out = self._state.left_out, reasons
        for gpu, reason in reasons.items():
            if gpu in before:
                continue
            event(
                logging.WARNING,
                "GPU left out until it works",
                notice=node_notice(
                    EventReason.GPU_UNHEALTHY,
                    f"GPU {gpu} is left out until it works: {reason}",
                ),
                gpu=gpu,
                reason=reason,
            )

    def _say_no_driver(self, error: InventoryError) -> None:
        if self._state.driver_problem:
            return
        self._state.driver_problem = error.message
        event(
            logging.ERROR,
            "the NVIDIA driver does not answer, the agent waits for it",
            notice=node_notice(
                EventReason.DRIVER_UNAVAILABLE, f"{error.message}; the agent waits for the driver"
            ),
            reason=error.message,
        )

    def _end(self, error: DriverReplacedError) -> None:
        self.failure = error
        event(
            logging.ERROR,
            "the NVIDIA driver was replaced, the agent ends and is started again with the new one",
            notice=node_notice(
                EventReason.DRIVER_REPLACED,
                "the NVIDIA driver was replaced, so the agent ends and is started again with the "
                "new one",
            ),
            reason=error.message,
        )


def _runtime_indexes(known: KnownGpus) -> list[int]:
    return [gpu.runtime_index for gpu in known.here]


def _uuids(gpus: Iterable[Gpu]) -> set[str]:
    return {gpu.uuid for gpu in gpus}
