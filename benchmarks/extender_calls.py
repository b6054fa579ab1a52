"""How long the extender's filter and prioritize take together, over HTTP on one kept connection.

All nodes are asked about in each call, which kube-scheduler does not do in large clusters. *Warm*
are pods that ask what was asked before; *cold* ones ask what nobody has, so that every node is
judged again. Pods of one container are the most; those of two, *cold* too, have rows of their own.
Building a call and reading its answer is not in the time, the connection is.
"""

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from .churn import quantile
from .extender_nodes import EXTENDER, NAMESPACE, cluster_of, one
from .figure import Measurement, spread
from .process import memory
from .repeats import say
from .simulated_cluster.extender_client import HttpSender
from .simulated_cluster.extender_process import running_extender
from .simulated_cluster.machines import CORE, MEMORY
from .simulated_cluster.pod_shapes import Shape

#: Nodes of 8 GPUs -> the most milliseconds at p99.
SIZES = {1000: 10.0, 5000: 50.0}
COLD_OF_TWO = "cold, two containers"
_OCCUPIED = 0.6
_SEED = 27
_MIB = 1 << 20
_WARM = tuple(Shape([{CORE: core, MEMORY: memory}]) for core, memory in ((20, 8), (50, 40)))


def _never_asked(chance: random.Random, containers: int = 1) -> Callable[[], Shape]:
    """Returns what gives a pod of so many containers that nobody asked for before."""
    pairs = [(core, memory) for core in range(1, 100) for memory in range(1, 81)]
    chance.shuffle(pairs)

    def shape() -> Shape:
        asked = [pairs.pop() for _ in range(containers)]
        return Shape([{CORE: core, MEMORY: memory} for core, memory in asked])

    return shape


def measure_calls(nodes: int, calls: int, rounds: int) -> list[Measurement]:
    """Returns times for so many nodes, and what memory the extender takes then.

    Args:
        calls: of each kind in each round.

    Raises:
        VgpuError: the extender does not start.
    """
    chance = random.Random(_SEED)
    never_asked, of_two = _never_asked(chance), _never_asked(chance, 2)
    case = f"filter and prioritize, {nodes} nodes x 8 GPUs"
    found = []
    with tempfile.TemporaryDirectory(prefix="vgpu-") as name:
        base = Path(name)
        with (
            cluster_of(base, nodes, _OCCUPIED, _SEED) as (server, light),
            running_extender(server, base, NAMESPACE) as extender,
        ):
            sender, names = extender.sender(), light.names
            for shape in _WARM:
                _timed(sender, shape, names)
            warm, cold, cold_of_two = [], [], []
            for number in range(rounds):
                say(f"{case}, round {number + 1} of {rounds}")
                warm.append([_timed(sender, chance.choice(_WARM), names) for _ in range(calls)])
                cold.append([_timed(sender, never_asked(), names) for _ in range(calls)])
                cold_of_two.append([_timed(sender, of_two(), names) for _ in range(calls)])
            kinds = {"warm": warm, "cold": cold, COLD_OF_TWO: cold_of_two}
            for kind, samples in kinds.items():
                found += _quantiles(f"{case}, {kind}", samples, SIZES[nodes])
            sender.close()
            taken = memory(extender.pid)
            found.append(one(case, "resident memory", "MiB", taken.resident_bytes / _MIB))
    return found


def _quantiles(case: str, rounds: Sequence[Sequence[float]], most_ms: float) -> list[Measurement]:
    worst = max(max(each) for each in rounds)
    found = []
    for name, part, most in (("p50", 0.5, None), ("p99", 0.99, most_ms)):
        samples = [partial(quantile, part=part)(each) for each in rounds]
        told = spread(case, EXTENDER, name, "ms", samples, f"worst {worst:.1f} ms")
        found.append(replace(told, most=most))
    return found


def _timed(sender: HttpSender, shape: Shape, names: Sequence[str]) -> float:
    """Returns how many milliseconds both calls take for one pod."""
    pod = shape.pod("asked")
    pod["metadata"]["uid"] = "asked"
    body = msgspec.json.encode({"Pod": pod, "NodeNames": names})
    began = time.perf_counter()
    answer = sender("filter", body)
    took = time.perf_counter() - began
    passed = msgspec.json.decode(answer)["NodeNames"]
    body = msgspec.json.encode({"Pod": pod, "NodeNames": passed})
    began = time.perf_counter()
    sender("prioritize", body)
    return (took + time.perf_counter() - began) * 1e3
