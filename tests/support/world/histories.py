"""Random lives of a kubelet and an agent, and what must hold in each of them.

`History` drives a stand-in kubelet and an agent through a random life of one or many histories:
pods of all shapes come, fail, start and go, both sides are restarted, and at the end of each
history all pods go at once. After every step the kubelet's own record and the files of the slices
are held against what was asked for. A breach is an AssertionError that names the seed. On a
`WorldNode` the seed replays the life exactly, on other nodes up to the timing of threads.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.chaos.invariants import given_twice, split
from benchmarks.chaos.tenants import given_of
from deviceplugin.model.units import Half, gpu_of, half_of
from deviceplugin.testing import (
    AdmissionFailed,
    AdmittedPod,
    ContainerManifest,
    PodManifest,
    StandInKubelet,
)
from deviceplugin.testing.records import AdmittedContainer
from libvgpu import region
from support.node.in_process import GIB

CORE, MEMORY = "nvidia.com/vgpu-core", "nvidia.com/vgpu-memory"
MEMORY_UNITS = 16
MOST_PODS = 12
#: Seconds between two steps where time is the test's: within a duty of the agent's, over many.
PAUSES_S = (0.0, 0.01, 0.2, 0.2, 1.0, 1.0, 12.0)

Asked = dict[str, int]


class Node(Protocol):
    """What a history lives on."""

    config: Path
    run_dir: Path

    @property
    def kubelet(self) -> StandInKubelet:
        """The kubelet of the node."""

    def list_podresources(self) -> object:
        """Asks the kubelet who has what, as monitors do."""

    def start_agent(self) -> None:
        """Starts the agent."""

    def stop_agent(self) -> object:
        """Ends it; the kubelet knows that on return."""

    def wait_registered(self, resources: list[str]) -> None:
        """Waits until the kubelet has these resources."""

    def is_registered(self) -> bool:
        """Returns whether the agent says that the kubelet has all its resources."""

    def pass_time(self, seconds: float) -> None:
        """Lets time pass, where it is the node's."""

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Waits until something is so; fails if it never is."""


@dataclass
class Life:
    """What is in each history: how many steps, and how often each kind is taken."""

    steps: int = 200
    histories: int = 1
    weights: dict[str, int] = field(
        default_factory=lambda: {
            "pair": 30, "several": 8, "init": 8, "lone core": 4, "lone memory": 4, "whole": 3,
            "too much": 5, "end": 30, "start": 25, "restart agent": 1, "restart kubelet": 1,
        }
    )  # fmt: skip


class History:
    """One life; `run` lives it."""

    def __init__(self, node: Node, seed: int, life: Life) -> None:
        self.node, self.seed, self.life = node, seed, life
        self.chance = random.Random(seed)
        self.pods: list[AdmittedPod] = []
        self.made = 0
        self.admitted = self.refused = self.started = 0
        self.defaults: dict[str, dict[str, int]] = {}  # memory units by GPU, by pod that started
        self.may_be_refused = False  # pairs that fit, too
        self.ends_meanwhile = False  # a pod ends in the midst of another's admission
        self.ending: AdmittedPod | None = None
        self.may_be_cut_off = False  # the agent is killed meanwhile, so calls may fail

    def run(self) -> None:
        """Lives it, and checks what it leaves."""
        kinds, weights = zip(*self.life.weights.items(), strict=True)
        history = 0
        try:
            for history in range(self.life.histories):  # noqa: B007  # a breach names it
                for _ in range(self.life.steps):
                    self.step(self.chance.choices(kinds, weights)[0])
                    self.check()
                    self.node.pass_time(self.chance.choice(PAUSES_S))
                self.end_pods()
            self.wait_all_freed()
        except AssertionError as error:
            raise AssertionError(f"seed {self.seed}, history {history}: {error}") from error

    # ---- steps -------------------------------------------------------------------------------

    def step(self, kind: str) -> None:
        if kind == "end":
            if self.pods:
                self.node.kubelet.finish(self.pods.pop(self.chance.randrange(len(self.pods))))
        elif kind == "start":
            if self.pods:
                self.start(self.chance.choice(self.pods))
        elif kind == "restart agent":
            self.node.stop_agent()
            self.node.start_agent()
            self.node.wait_registered([CORE, MEMORY])
        elif kind == "restart kubelet":
            self.node.kubelet.stop()
            self.node.kubelet.start()
            self.node.wait_registered([CORE, MEMORY])
        elif len(self.pods) < MOST_PODS:
            init, containers = self.shape(kind)
            self.admit(init, containers)

    def shape(self, kind: str) -> tuple[list[Asked], list[Asked]]:
        """Returns what init containers and containers of a new pod ask for."""
        if kind == "several":
            return [], [self.pair(25, 4) for _ in range(self.chance.randint(2, 3))]
        if kind == "init":
            most = self.pair(60, 8)
            return [most], [self.pair(most[CORE], most[MEMORY])]
        kinds: dict[str, Callable[[], Asked]] = {
            "pair": lambda: self.pair(100, MEMORY_UNITS),
            "lone core": lambda: {CORE: self.chance.randint(1, 60)},
            "lone memory": lambda: {MEMORY: self.chance.randint(1, 8)},
            "whole": lambda: {CORE: 100 * self.chance.randint(1, 2)},
            "too much": lambda: {CORE: 1, MEMORY: 10 * MEMORY_UNITS},
        }
        return [], [kinds[kind]()]

    def pair(self, most_core: int, most_memory: int) -> Asked:
        return {
            CORE: self.chance.randint(1, most_core),
            MEMORY: self.chance.randint(1, most_memory),
        }

    def admit(self, init: list[Asked], containers: list[Asked]) -> None:
        self.made += 1
        manifest = PodManifest(
            f"pod-{self.made}",
            tuple(ContainerManifest(f"c{i}", limits=each) for i, each in enumerate(containers)),
            init_containers=tuple(
                ContainerManifest(f"i{i}", limits=each) for i, each in enumerate(init)
            ),
        )
        before = self.free()
        if self.ends_meanwhile and self.pods and self.chance.random() < 0.5:
            self.ending = self.pods.pop(self.chance.randrange(len(self.pods)))
        try:
            self.pods.append(self.node.kubelet.admit(manifest))
            self.admitted += 1
        except AdmissionFailed as error:
            self.refused += 1
            if not self.may_be_cut_off:
                self.check_refusal(str(error), init, containers, before)
        finally:
            self.end_now()

    def end_now(self) -> None:
        """Ends the pod that is to end meanwhile."""
        if self.ending is not None:
            self.node.kubelet.finish(self.ending)
        self.ending = None

    def check_refusal(
        self, said: str, init: list[Asked], asked: list[Asked], free: dict[str, tuple[int, int]]
    ) -> None:
        """A pair that one GPU can hold is never refused."""
        assert "node agent failed" not in said, said
        if self.may_be_refused or init or len(asked) > 1 or set(asked[0]) != {CORE, MEMORY}:
            return
        fits = any(
            core >= asked[0][CORE] and memory >= asked[0][MEMORY] for core, memory in free.values()
        )
        assert not fits, f"{asked} was refused with {free} free: {said}"

    def start(self, pod: AdmittedPod) -> None:
        for container in pod.containers:
            try:
                options = self.node.kubelet.run_options(pod, container.manifest.name)
            except AdmissionFailed as error:
                if self.may_be_cut_off:
                    return
                self.check_no_start(str(error), container.manifest.limits)
                continue
            self.started += 1
            self.note_default(pod, container)
            assert options.conflicts == (), options.conflicts
            host = {m.container_path: m.host_path for m in options.mounts}
            self.check_limits(container.manifest.limits, Path(host["/run/vgpu/limits"]).parent)
            for path in host.values():
                assert Path(path).exists(), f"{path} is not there"

    def note_default(self, pod: AdmittedPod, container: AdmittedContainer) -> None:
        """Notes the memory that comes with core alone."""
        if MEMORY in container.manifest.limits:
            return
        units = container.devices[CORE]
        for uuid in {gpu_of(unit) for unit in units}:
            core = sum(gpu_of(unit) == uuid for unit in units)
            share = max(1, MEMORY_UNITS * core // 100)
            self.defaults.setdefault(pod.manifest.name, {})[uuid] = share

    def check_no_start(self, said: str, asked: Mapping[str, int]) -> None:
        """A lone half may find its default gone; two lone ones may be taken for a pair."""
        assert len(asked) == 1 or "different containers" in said, said

    def end_pods(self) -> None:
        """Ends every pod; the next history may begin before the agent has noticed."""
        for pod in self.pods:
            self.node.kubelet.finish(pod)
        self.pods = []

    def wait_all_freed(self) -> None:
        """Nothing of ended pods may stay with the agent."""
        directory = self.node.run_dir / "allocations"
        self.node.wait_until(lambda: not list(directory.iterdir()), "every allocation is freed")

    # ---- what must hold ----------------------------------------------------------------------

    def free(self) -> dict[str, tuple[int, int]]:
        """Returns core and memory units that the kubelet could give, by GPU.

        What the default of a container uses up may not have reached the kubelet yet.
        """
        held = {
            unit
            for pod in self.pods
            for c in pod.containers
            for units in c.devices.values()
            for unit in units
        }
        found: dict[str, tuple[int, int]] = {}
        for resource in (CORE, MEMORY):
            for unit in self.node.kubelet.healthy_units(resource):
                if unit not in held:
                    core, memory = found.get(gpu_of(unit), (0, 0))
                    is_core = half_of(unit) is Half.CORE
                    found[gpu_of(unit)] = (core + is_core, memory + (not is_core))
        return {
            uuid: (core, min(memory, MEMORY_UNITS - self.used_up(uuid)))
            for uuid, (core, memory) in found.items()
        }

    def used_up(self, uuid: str) -> int:
        """Returns the memory units of a GPU that pods were given or use up by default."""
        names = {pod.manifest.name for pod in self.pods}
        by_default = sum(n.get(uuid, 0) for name, n in self.defaults.items() if name in names)
        given = {u for pod in self.pods for c in pod.containers for u in c.devices.get(MEMORY, ())}
        return by_default + sum(gpu_of(unit) == uuid for unit in given)

    def check(self) -> None:
        """Holds the kubelet's record against the promises."""
        everything = given_of(self.pods, init=True)
        for breach in (*split(everything), *given_twice(given_of(self.pods))):
            raise AssertionError(breach)

    def check_limits(self, asked: Mapping[str, int], directory: Path) -> None:
        """Holds the limits in force against a request."""
        devices = region.read_limits(directory).limits.devices
        core = sum(d.core_percent for d in devices)
        memory = sum(d.memory_limit_bytes for d in devices)
        if CORE in asked:
            assert core == asked[CORE], f"{asked} has {core} core"
        if MEMORY in asked:
            assert memory == asked[MEMORY] * GIB, f"{asked} has {memory} bytes"
        else:
            share = max(1, MEMORY_UNITS * asked[CORE] // 100)
            assert memory == share * GIB, f"{asked} has {memory} bytes, not {share} GiB"
