"""Random lives in which whatever the node leans on fails for a while.

The API server is away, a GPU is lost, somebody sets the clock or fills the disk, the kubelet loses
a stream or answers no monitor, the power is cut, and containers start side by side. A call may be
refused while a fault lasts. What must hold always, holds; and when all faults are over the node has
to come to be as if there had been none.
"""

from collections.abc import Callable

from deviceplugin.inventory.health import XID_COUNTS_S
from deviceplugin.model.units import gpu_of
from deviceplugin.testing import AdmissionFailed, AdmittedPod
from deviceplugin.testing.records import AdmittedContainer
from support.world.histories import CORE, MEMORY, History, Life

from .node import WorldNode
from .turns import Turn

_LASTS_S = (0.1, 0.5, 2.0, 8.0)
#: The GPUs are listed, and asked for their health, every 5 s; a call may hang for 10.
_GPUS_SETTLE_S = 30.0
_SETS_S = (-7200.0, -1.0, 3600.0, 1e7)


class UnderFaults(History):
    """A life with faults.

    Attributes:
        faults: how many there were.
    """

    def __init__(self, node: WorldNode, seed: int, life: Life) -> None:
        node.disk.may_lose_power = True  # first: the agent starts and syncs in the next call
        super().__init__(node, seed, life)
        self.world = node
        node.restarts = True
        self.faults = 0
        self._lasting: dict[str, float] = {}  # until when, at most
        self._starting: dict[str, Turn] = {}  # by pod

    def step(self, kind: str) -> None:
        """Lives one step; a fault begins and goes on meanwhile."""
        faults: dict[str, Callable[[], None]] = {
            "list": self._list, "away": self._away, "gpu": self._lose_gpu, "clock": self._set_clock,
            "full": self._fill, "stream": self._lose_stream, "silent": self._silence,
            "power": self._cut_power,
        }  # fmt: skip
        self._check_starts()
        if kind in faults:
            self.faults += 1
            faults[kind]()
            return
        if kind.startswith("restart"):  # it waits for what no faulty node may ever come to
            self._wait_for_the_end()
        self.may_be_refused = self.may_be_cut_off = self._is_faulty()
        if kind == "end":
            going = [each for each in self.pods if each.manifest.name not in self._starting]
            if going:
                gone = self.chance.choice(going)
                self.pods.remove(gone)
                self.node.kubelet.finish(gone)
        else:
            super().step(kind)

    def start(self, pod: AdmittedPod) -> None:
        """Starts a pod's containers while the life goes on."""
        name, turns = pod.manifest.name, self.world.turns
        if name not in self._starting:
            begin = super().start
            self._starting[name] = turns.begin(turns.test, lambda: begin(pod), f"start {name}")

    def check_no_start(self, said: str, asked: object) -> None:
        """While a fault lasts a container may not start; the kubelet tries it again."""
        assert self._is_faulty() or self.may_be_cut_off, f"a start was refused: {said}"

    def check(self) -> None:
        """Holds what always must; a pair that a fault split must not start, and its pod is ended.

        The half of a pod that failed stays open for seconds where podresources does not answer, and
        the next pod's other half may join it.
        """
        for pod in [each for each in self.pods if self._is_faulty() and _is_split(each)]:
            for container in pod.containers:
                if _is_split_container(container):
                    try:
                        self.node.kubelet.run_options(pod, container.manifest.name)
                    except AdmissionFailed:
                        continue
                    raise AssertionError(f"{pod.manifest.name} starts with a split pair")
            self.pods.remove(pod)
            self.node.kubelet.finish(pod)
        super().check()

    def end_pods(self) -> None:
        """All faults end, then all pods."""
        self._wait_for_the_end()
        super().end_pods()

    def wait_all_freed(self) -> None:
        """The node is as if there had been no fault."""
        super().wait_all_freed()
        kubelet, gpus = self.node.kubelet, self.world.gpus
        whole = {CORE: 100 * len(gpus), MEMORY: 16 * len(gpus)}
        self.node.wait_until(lambda: kubelet.allocatable() == whole, f"{whole} is offered")
        self.node.wait_until(self.node.is_registered, "all is registered")
        self.node.wait_until(self.world.is_healthy, "the agent says that it is healthy")

    # ---- faults --------------------------------------------------------------------------------

    def _is_faulty(self) -> bool:
        """Whether a fault lasts, or ended so short a time ago that not all may know."""
        return any(until_s > self.world.turns.now_s for until_s in self._lasting.values())

    def _for_a_while(self, what: str, end: Callable[[], object], settles_s: float = 0.0) -> None:
        """Ends a fault later; only one of a kind is there at a time."""
        turns, lasts_s = self.world.turns, self.chance.choice(_LASTS_S)
        self._lasting[what] = turns.now_s + lasts_s + settles_s

        def later() -> None:
            turns.sleep(lasts_s)
            end()

        turns.begin(turns.test, later, what)

    def _wait_for_the_end(self) -> None:
        while self._is_faulty():
            self.node.pass_time(1.0)
        for turn in self._starting.values():
            self.world.turns.join(turn)
        self._check_starts()

    def _check_starts(self) -> None:
        for name, turn in list(self._starting.items()):
            if turn.has_ended:
                del self._starting[name]
                if turn.failure is not None:
                    raise AssertionError(str(turn.failure)) from turn.failure

    def _is_new(self, what: str) -> bool:
        return self._lasting.get(what, 0.0) <= self.world.turns.now_s

    def _list(self) -> None:
        turns = self.world.turns

        def often() -> None:
            for _ in range(self.chance.randint(1, 6)):
                self.node.list_podresources()
                turns.sleep(self.chance.choice((0.0, 0.004, 0.1)))

        turns.begin(turns.test, often, "monitor")

    def _away(self) -> None:
        if self._is_new("away"):
            api, forgets = self.world.api, self.chance.random() < 0.3
            api.go()
            self._for_a_while("away", lambda: api.come_back(forgets))

    def _lose_gpu(self) -> None:
        if not self._is_new("gpu"):
            return
        gpus, gpu = self.world.inventory, self.chance.choice(self.world.gpus)
        kind = self.chance.choice(("lost", "hanging", "gone", "error"))
        if kind == "gone":
            gpus.is_gone = True
        elif kind == "error":
            gpus.report(gpu, 79)
        else:
            getattr(gpus, kind).append(gpu)
        self._for_a_while("gpu", gpus.recover, XID_COUNTS_S + _GPUS_SETTLE_S)

    def _set_clock(self) -> None:
        self.world.runtime.clock_set_s += self.chance.choice(_SETS_S)

    def _fill(self) -> None:
        if self._is_new("full"):
            disk = self.world.disk
            disk.is_full = True

            def empty() -> None:
                disk.is_full = False

            self._for_a_while("full", empty, 5.0)

    def _lose_stream(self) -> None:
        resource = self.chance.choice((CORE, MEMORY))
        if self.node.is_registered() and self._is_new("stream"):
            self._lasting["stream"] = self.world.turns.now_s + 60.0
            self.node.kubelet.end_stream(resource)

    def _silence(self) -> None:
        """Nobody answers at the kubelet's podresources."""
        socket = self.node.kubelet.podresources_socket
        if self._is_new("silent"):
            aside = socket.with_name("aside")
            socket.rename(aside)
            self._for_a_while("silent", lambda: aside.exists() and aside.rename(socket), 5.0)

    def _cut_power(self) -> None:
        """What the agent had answered is there again, and containers start as before."""
        self._wait_for_the_end()
        self.may_be_cut_off = self.may_be_refused = False
        self.world.cut_power()
        self.node.wait_registered([CORE, MEMORY])
        self.node.wait_until(self.node.is_registered, "all is registered")
        for pod in self.pods:
            try:
                self.node.kubelet.readmit(pod)
            except AdmissionFailed as error:
                raise AssertionError(f"a pod is not admitted after a power cut: {error}") from error
            self.start(pod)


def _is_split_container(container: AdmittedContainer) -> bool:
    """Returns whether the halves of a pair lie on different GPUs."""
    gpus = [{gpu_of(unit) for unit in units} for units in container.devices.values()]
    return len(gpus) == 2 and gpus[0] != gpus[1]


def _is_split(pod: AdmittedPod) -> bool:
    return any(_is_split_container(each) for each in pod.containers)
