"""What happens while the pictures are taken: two nodes with programs in slices, and a cluster of
simulated nodes in which pods come and go, for the extender."""

import itertools
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.extender_nodes import NAMESPACE, cluster_of
from benchmarks.simulated_cluster.api_server import SimulatedApiServer
from benchmarks.simulated_cluster.extender_process import running_extender
from benchmarks.simulated_cluster.kinds import POD
from benchmarks.simulated_cluster.machines import CORE, MEMORY
from benchmarks.simulated_cluster.pod_calls import delete, prepare
from benchmarks.simulated_cluster.pod_shapes import Shape
from benchmarks.simulated_cluster.refusals import ApiFailure
from benchmarks.simulated_cluster.scheduler import SimulatedScheduler

from .node import Node
from .prometheus import Prometheus
from .tenant import Behaviour

GIB = 1024
WHOLE = "nvidia.com/gpu"
RESOURCES = (CORE, MEMORY, WHOLE)
#: GPUs 0 and 1 are shared, GPU 2 is given whole.
MACHINE = "a100-80g*3"
CONFIG = """\
version: v1
sharing:
  fractional:
    - {family: vgpu, devices: [0, 1], memoryUnit: 1Gi}
"""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One pod with a slice, and what runs in it."""

    node: str
    namespace: str
    pod: str
    core: int
    memory_gib: int
    does: Behaviour


TENANTS = (
    Tenant("gpu-1", "research", "train", 60, 40, Behaviour(memory_mib=30 * GIB)),
    # These three share a GPU, and together want more than it has, some of the time.
    Tenant("gpu-1", "web", "serve", 30, 20, Behaviour(12 * GIB, busy_s=45, rest_s=25)),
    Tenant(
        "gpu-1",
        "research",
        "notebook",
        10,
        10,
        Behaviour(2 * GIB, busy_s=15, rest_s=40, grows_every_s=45),
    ),
    Tenant("gpu-1", "batch", "sweep", 40, 30, Behaviour(24 * GIB, busy_s=60, rest_s=50)),
    Tenant("gpu-2", "batch", "render", 25, 16, Behaviour(10 * GIB, starts_s=30)),
    Tenant("gpu-2", "web", "rank", 50, 32, Behaviour(20 * GIB, busy_s=35, rest_s=35)),
)
_NODES_OF_EXTENDER, _OCCUPIED, _SEED = 6, 0.95, 7
_SHAPES = tuple(
    Shape([{CORE: core, MEMORY: memory}])
    for core, memory in ((10, 8), (25, 20), (50, 40), (70, 8), (100, 80))
)
_SHORT, _SHORT_POD_EVERY_S = {CORE: 5, MEMORY: 1}, 2.0
_POD_EVERY_S, _PODS_AT_ONCE = 0.7, 30


@dataclass(frozen=True, slots=True)
class Scene:
    """What runs."""

    nodes: Sequence[Node]
    prometheus: Prometheus

    def watch(self, seconds: float) -> None:
        """Waits, and looks that all goes on; small pods come and go on the nodes meanwhile.

        Raises:
            VgpuError: an agent or a program ended.
        """
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for node in self.nodes:
                node.check()
                node.finish(node.admit("batch", "short", _SHORT))
            time.sleep(_SHORT_POD_EVERY_S)


@contextmanager
def running_scene() -> Iterator[Scene]:
    """Gives the scene with everything begun; ends it afterwards.

    Raises:
        VgpuError: something does not start.
    """
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp")))
        nodes: dict[str, Node] = {}
        for number, name in enumerate(dict.fromkeys(tenant.node for tenant in TENANTS)):
            (base / name).mkdir()
            nodes[name] = Node(base / name, name, MACHINE, CONFIG, RESOURCES, number)
            stack.callback(nodes[name].close)
        for tenant in TENANTS:
            limits = {CORE: tenant.core, MEMORY: tenant.memory_gib}
            node = nodes[tenant.node]
            node.run(node.admit(tenant.namespace, tenant.pod, limits), tenant.does)
        nodes["gpu-2"].admit("research", "whole", {WHOLE: 1})

        (base / "c").mkdir()
        server, light = stack.enter_context(
            cluster_of(base / "c", _NODES_OF_EXTENDER, _OCCUPIED, _SEED)
        )
        extender = stack.enter_context(running_extender(server, base / "c", NAMESPACE))
        scheduler = SimulatedScheduler(server.store, light.allocatable, extender.client())
        scheduler.start()
        stack.callback(scheduler.stop)
        stack.enter_context(_coming_and_going(server))

        targets = [("vgpu-agent", node.port, node.name) for node in nodes.values()]
        prometheus = Prometheus(base, [*targets, ("vgpu-scheduler", extender.port, "control")])
        stack.callback(prometheus.stop)
        yield Scene(tuple(nodes.values()), prometheus)


@contextmanager
def _coming_and_going(server: SimulatedApiServer) -> Iterator[None]:
    """Makes a pod now and then, and deletes the oldest where there are many."""
    ended = threading.Event()

    def run() -> None:
        made: list[tuple[str, str]] = []
        for number in itertools.count():
            if ended.wait(_POD_EVERY_S):
                return
            content = _SHAPES[number % len(_SHAPES)].pod(f"job-{number}")
            prepare(content)
            stored = server.store.create(POD, content).content
            made.append((stored["metadata"]["name"], stored["metadata"]["uid"]))
            if len(made) > _PODS_AT_ONCE:
                name, uid = made.pop(0)
                with suppress(ApiFailure):
                    delete(server.store, "default", name, 0, uid)

    thread = threading.Thread(target=run, name="pods", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
