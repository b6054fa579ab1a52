"""What the agent's threads share: the book, its copy on disk, and one lock.

Every change goes to disk first and into the book afterwards, so what was answered to the kubelet
survives a kill at any instruction, and a full disk leaves the book as it was.

`layout` is how the GPUs are shared now: what the config wants, as far as the book allows it
(`draining`). It is replaced whole, by `share` and by `announce`.

`revision` rises whenever what is advertised changes; the plugin servers follow it by
`wait_for_change`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace

from deviceplugin import runtime
from deviceplugin.log import event
from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.held_devices import Held
from deviceplugin.model.notices import EventReason, node_notice
from deviceplugin.policy.devices import exclusive_gpu, offer
from deviceplugin.policy.devices.draining import changes, draining, in_force, newly_offered
from deviceplugin.policy.devices.layout import Layout
from libvgpu.errors import VgpuError

from .checkpoint import Checkpoint, Loaded

#: From the announcement on; a kubelet takes a list apart in milliseconds.
_RETURNED_S = 0.3
_NOTHING = Layout("", ())


class NodeState:
    """The book under its lock; take `lock` first, but for what says that it takes it itself."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        wanted: Layout = _NOTHING,
        gpus: tuple[Gpu, ...] | None = None,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Makes an empty state; `load` fills it.

        Args:
            wanted: how the config wants the GPUs to be shared.
            gpus: those of the node, shared or not; those of ``wanted`` where nobody says.
            clock: seconds, monotonic.
        """
        self.lock = runtime.lock()
        self.book = AllocationBook()
        self.layout = self.wanted = wanted
        self.gpus = tuple(shared.gpu for shared in wanted.gpus) if gpus is None else gpus
        self.held: Held = {}  # devices that are given whole or as replicas; replaced whole
        self.draining: Mapping[str, str] = {}  # what each GPU waits for; replaced whole
        self.revision = 0
        self.ended = 0  # allocations dropped so far
        self.unhealthy: Mapping[str, str] = {}  # why, by UUID of the GPU; replaced whole
        #: GPUs on no list of the kubelet since NVML fails for them, and why; replaced whole.
        self.left_out: Mapping[str, str] = {}
        self.driver_problem = ""  # why NVML lists no GPU at all, empty while it does
        #: Which allocation was let start last on each GPU that is under MPS.
        self.last_started: dict[str, str] = {}
        self._left_out = _NOTHING  # whose withheld and unmatched parts were said last
        self._changed = runtime.condition(self.lock)
        self._announced: tuple[Set[str], Set[str], Layout] = set(), set(), wanted
        self._returned: Set[str] = frozenset()
        self._returned_at_s = 0.0
        self._clock = clock
        self._checkpoint = checkpoint

    def load(self) -> Loaded:
        """Takes over what the disk says, and returns it.

        No allocation is open then: a kubelet whose plugin ended between two halves has failed the
        pod.
        """
        loaded = self._checkpoint.load()
        self.book = AllocationBook.of(
            replace(allocation, settled=True) for allocation in loaded.allocations
        )
        return loaded

    def share(self, wanted: Layout) -> None:
        """Follows what the config wants now; `announce` has to come after it."""
        self._say_what_is_left_out(wanted)
        self.wanted = wanted
        self._lay_out()
        # What containers run with is noted: it stays theirs when the config has no word of it more.
        noted = []
        for allocation in self.book.allocations.values():
            shared = self.layout.find(allocation.uuid)
            if (
                shared is not None
                and not shared.drains
                and allocation.compute is not shared.compute
            ):
                noted.append(replace(allocation, compute=shared.compute))
        try:
            self.commit(noted)
        except VgpuError as error:  # the config counts all the same
            event(logging.ERROR, error.message)
            for allocation in noted:
                self.book.put(allocation)

    def hold(self, held: Held) -> None:
        """Notes who has devices whole or as replicas, and announces what follows from it."""
        if held.keys() == self.held.keys():
            self.held = held
            return
        self.held = held
        self._lay_out()
        self.announce()

    def commit(self, put: Iterable[Allocation] = (), drop: Iterable[str] = ()) -> None:
        """Saves changes, then enters them.

        Raises:
            VgpuError: the disk does not take them; the book is as before.
        """
        changed, gone = list(put), list(drop)
        if not changed and not gone:
            return
        self._checkpoint.record(changed, gone)
        for allocation_id in gone:
            self.book.drop(allocation_id)
        self.ended += len(gone)
        for allocation in changed:
            self.book.put(allocation)

    def mps_gpus(self) -> dict[str, bool]:
        """Returns the GPUs that are to be under MPS now, and whether containers have slices; takes
        the lock.
        """
        with self.lock:
            return exclusive_gpu.under_mps(self.layout, self.book, self.last_started)

    def tenants_on(self, uuid: str) -> list[tuple[str, Owner | None]]:
        """Returns the allocations on a GPU with their owners, None for one not yet known; takes the
        lock.
        """
        with self.lock:
            return [(each.allocation_id, each.owner) for each in self.book.on_gpu(uuid)]

    def announce(self) -> None:
        """Tells the plugin servers to look, if what is (not) offered has changed.

        A pair that comes or goes changes nothing for the kubelet, and four lists of thousands of
        units are most of what an agent can be busy with.
        """
        if self.layout is not self.wanted:
            self._lay_out()  # the last slice of a GPU that drains may have ended
        withdrawn = offer.withdrawn(self.layout, self.book)
        now = withdrawn, frozenset(self.unhealthy), self.layout
        if now == self._announced:
            return
        fresh = newly_offered(self._announced[2], self.layout)
        self._returned = (self.returned() | self._announced[0] | fresh) - withdrawn
        self._returned_at_s = self._clock()
        self._announced = now
        self.revision += 1
        self._changed.notify_all()

    def _say_what_is_left_out(self, wanted: Layout) -> None:
        """Says once of which GPUs nothing is offered, and which entries of the config are idle."""
        before = {(each.gpu.uuid, each.reason) for each in self._left_out.withheld}
        for each in wanted.withheld:
            if (each.gpu.uuid, each.reason) in before:
                continue
            event(
                logging.WARNING,
                "nothing of a GPU is offered",
                notice=node_notice(
                    EventReason.GPU_WITHHELD,
                    f"nothing of GPU {each.gpu.uuid} is offered: {each.reason}",
                ),
                gpu=each.gpu.uuid,
                reason=each.reason,
            )
        for path in set(wanted.unmatched) - set(self._left_out.unmatched):
            event(
                logging.INFO,
                "an entry of the config is for no GPU of this node",
                entry=path.removeprefix("$."),
            )
        self._left_out = wanted

    def _lay_out(self) -> None:
        layout = in_force(self.wanted, self.gpus, self.book, self.held)
        for change in changes(self.layout, layout, self.wanted, self.book, self.held):
            if change.drains:
                event(
                    logging.INFO,
                    "GPU draining, its sharing changes when its slices have ended",
                    notice=node_notice(
                        EventReason.GPU_DRAINING,
                        f"GPU {change.uuid} is {change.now} until {change.slices} slices have "
                        f"ended, then {change.then}",
                    ),
                    gpu=change.uuid,
                    slices=change.slices,
                    now=change.now,
                    then=change.then,
                )
            else:
                event(
                    logging.INFO,
                    "GPU sharing changed",
                    notice=node_notice(
                        EventReason.GPU_SHARING_CHANGED, f"GPU {change.uuid} is {change.now}"
                    ),
                    gpu=change.uuid,
                    now=change.now,
                )
        self.layout = self.wanted if layout == self.wanted else layout
        self.draining = draining(layout, self.wanted, self.book, self.held)

    def returned(self) -> Set[str]:
        """Returns the units that are offered again since so short a time that the kubelet may not
        know: it takes the list apart while it admits the next pod.
        """
        is_new = self._clock() - self._returned_at_s < _RETURNED_S
        return self._returned if is_new else frozenset()

    def wait_until_known(self) -> None:
        """Waits, without the lock, until the kubelet knows what was returned: a moment, for an
        answer that hangs on it.
        """
        self._changed.wait_for(lambda: not self.returned(), _RETURNED_S)

    def wait_for_change(self, revision: int, timeout_s: float, stopped: Callable[[], bool]) -> bool:
        """Waits until what is advertised is newer than ``revision``, the time is over, or `wake`
        is called and ``stopped`` holds; returns whether it is newer. Takes the lock.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.revision != revision or stopped(), timeout_s)
            return self.revision != revision

    def wake(self) -> None:
        """Makes everyone in `wait_for_change` check whether to stop; takes the lock."""
        with self._changed:
            self._changed.notify_all()
