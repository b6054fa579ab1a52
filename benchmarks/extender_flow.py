"""Pods end to end, what is promised to many at once, and how soon a new extender is right.

The scheduler, the nodes and the API server are simulated and share one process; the extender is
another one, and both have what processors there are.
"""

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deviceplugin.model.units import CORE_UNITS_PER_GPU
from libvgpu.errors import VgpuError

from .extender_nodes import GPUS, NAMESPACE, cluster_of, one
from .figure import Measurement
from .repeats import say
from .simulated_cluster.api_server import SimulatedApiServer
from .simulated_cluster.extender_client import ExtenderClient, ExtenderFailed
from .simulated_cluster.extender_process import ExtenderProcess, running_extender
from .simulated_cluster.kinds import POD
from .simulated_cluster.light_nodes import UNITS, LightNodes
from .simulated_cluster.machines import CORE, MEMORY
from .simulated_cluster.pod_calls import prepare
from .simulated_cluster.pod_shapes import Shape
from .simulated_cluster.scheduler import SimulatedScheduler

NODES, PODS, AT_ONCE = 1000, 1000, 100
LEAST_PODS_PER_S, MOST_RIGHT_AGAIN_MS = 100.0, 1000.0
_SEED, _PATIENCE_S, _POLL_S = 28, 120.0, 0.005
_SHAPES = tuple(
    Shape([{CORE: core, MEMORY: memory}]) for core, memory in ((10, 8), (25, 20), (50, 40), (30, 8))
)
#: Of these three fit one GPU.
_CONTENDED = Shape([{CORE: 30, MEMORY: 24}])


def measure_flow(pods: int, rounds: int) -> list[Measurement]:
    """Returns pods per second, over-commit and the time after a restart.

    Raises:
        VgpuError: the extender does not start, or does not get there.
    """
    with tempfile.TemporaryDirectory(prefix="vgpu-") as name:
        base = Path(name)
        with cluster_of(base, NODES, 0.3, _SEED) as (server, light):
            with running_extender(server, base, NAMESPACE) as extender:
                found = [_pods_per_second(server, light, extender, pods)]
                found += _at_once(server, light, extender.client(), rounds)
            found.append(_right_again(server, light, base, rounds))
    return found


def _pods_per_second(
    server: SimulatedApiServer, light: LightNodes, extender: ExtenderProcess, pods: int
) -> Measurement:
    case = f"{pods} pods, {NODES} nodes x {GPUS} GPUs, simulated API server and scheduler"
    say(case)
    scheduler = SimulatedScheduler(
        server.store, light.allocatable, extender.client(), binders=16, pause_s=0.2
    )
    for number in range(pods):
        _create(server, _SHAPES[number % len(_SHAPES)], f"flow-{number}")
    began = time.monotonic()
    scheduler.start()
    try:
        _wait("not all pods are bound", lambda: scheduler.counted["bound"] >= pods)
        took_s = time.monotonic() - began
    finally:
        scheduler.stop()
    over = len(light.over_committed)
    if over:
        raise VgpuError(f"{over} GPUs were given more than they have: {light.over_committed}")
    again = scheduler.counted["not bound"] + scheduler.counted["no node"]
    return one(
        case,
        "pods end to end",
        "pods/s",
        pods / took_s,
        f"{again} tried again",
        least=LEAST_PODS_PER_S,
    )


def _at_once(
    server: SimulatedApiServer, light: LightNodes, client: ExtenderClient, rounds: int
) -> list[Measurement]:
    """Binds many pods at one moment to a node that has room for a part of them."""
    free = _free_nodes(light)[:rounds]
    for number, node in enumerate(free):
        pods = [
            _create(server, _CONTENDED, f"at-once-{number}-{each}", "held")
            for each in range(AT_ONCE)
        ]
        gate = threading.Barrier(AT_ONCE)

        def bind(pod: Mapping[str, Any], node: str = node, gate: threading.Barrier = gate) -> None:
            gate.wait()
            with contextlib.suppress(ExtenderFailed):
                client.bind(pod, node)

        threads = [threading.Thread(target=bind, args=(pod,)) for pod in pods]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    case = f"{AT_ONCE} binds at one moment to a node with room for {3 * GPUS}"
    told = {node: _bound_to(server, node) for node in free}
    over = {
        uuid
        for uuid, (core, memory) in light.given().items()
        if core > CORE_UNITS_PER_GPU or memory > UNITS
    }
    return [
        one(case, "GPUs over-committed", "", len(over | light.over_committed.keys()), most=0),
        one(
            case,
            "fewest that were bound",
            "pods",
            min(told.values()),
            f"{len(free)} rounds",
            least=3 * GPUS,
        ),
    ]


def _free_nodes(light: LightNodes) -> list[str]:
    """Returns the nodes of which nobody has anything."""
    taken = {uuid.removeprefix("GPU-").rpartition("-")[0] for uuid in light.given()}
    return [name for name in light.names if name not in taken]


def _bound_to(server: SimulatedApiServer, node: str) -> int:
    return sum(
        pod.namespace == "held" and pod.content["spec"].get("nodeName") == node
        for pod in server.store.list(POD)[1]
    )


def _right_again(
    server: SimulatedApiServer, light: LightNodes, base: Path, rounds: int
) -> Measurement:
    """Starts the extender again and again, next to the pods that are there."""
    bound = sum(bool(p.content["spec"].get("nodeName")) for p in server.store.list(POD)[1])
    case = f"start next to {bound} bound pods, {NODES} nodes"
    say(case)
    asked = _SHAPES[1].pod("asked")
    asked["metadata"]["uid"] = "asked"
    answers, times = [], []
    for _ in range(rounds):
        with running_extender(server, base, NAMESPACE) as extender:
            times.append(extender.ready_after_s * 1e3)
            answers.append(sorted(extender.client().filter(asked, light.names).passed))
    if any(each != answers[0] for each in answers):
        raise VgpuError("an extender that was started again answers otherwise than before")
    times.sort()
    return one(
        case,
        "right again, from the start of its process",
        "ms",
        times[len(times) // 2],
        f"worst of {rounds}: {times[-1]:.0f} ms",
        most=MOST_RIGHT_AGAIN_MS,
    )


def _create(
    server: SimulatedApiServer, shape: Shape, name: str, namespace: str = "default"
) -> Mapping[str, Any]:
    content = shape.pod(name, namespace)
    prepare(content)
    return server.store.create(POD, content).content


def _wait(what: str, is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > give_up_s:
            raise VgpuError(f"after {_PATIENCE_S:g} s {what}")
        time.sleep(_POLL_S)
