"""How long the extender's filter and prioritize take together, over HTTP on one kept connection.

All nodes are asked about in each call, which kube-scheduler does not do in large clusters. *Warm*
are pods that ask what was asked before; *cold* ones ask what nobody has, so that every node is
judged again, and have rows of their own by how many containers they have. *Mixed* are those of a
cluster at work: few are cold, one of seven has two or three containers, and all the time agents
write that something changed. Building a call and reading its answer is not in the time, the
connection is.
"""

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
from .simulated_cluster.light_nodes import LightNodes
from .simulated_cluster.machines import CORE, MEMORY
from .simulated_cluster.pod_shapes import Shape

#: Nodes of 8 GPUs -> the most milliseconds at p99.
SIZES = {1000: 10.0, 5000: 50.0}
COLD = {1: "cold", 2: "cold, two containers", 3: "cold, three containers"}
MIXED = "mixed, 20 inventories change a second"
_CHANGES_PER_SECOND = 20
#: How many of the mixed pods ask what nobody asked; and how many have one, two, three containers.
_COLD_PART, _CONTAINERS = 0.1, (85, 10, 5)
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


def _mixed(chance: random.Random) -> Callable[[], Shape]:
    """Returns what gives the pods of a cluster at work, few of them of a kind that is new."""
    never_asked = [_never_asked(chance, containers) for containers in COLD]
    known = [[each() for _ in range(5)] for each in never_asked]

    def shape() -> Shape:
        (number,) = chance.choices(range(len(known)), _CONTAINERS)
        is_new = chance.random() < _COLD_PART
        return never_asked[number]() if is_new else chance.choice(known[number])

    return shape


@contextmanager
def _changing(light: LightNodes, chance: random.Random) -> Iterator[None]:
    """Has the agents of some nodes a second write that something of theirs changed."""
    is_over = threading.Event()

    def change() -> None:
        due_s = time.monotonic()
        while not is_over.wait(max(0.0, due_s - time.monotonic())):
            light.touch(order.choice(light.names))
            due_s += 1 / _CHANGES_PER_SECOND

    order = random.Random(chance.random())
    thread = threading.Thread(target=change, name="changes")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def measure_calls(nodes: int, calls: int, rounds: int) -> list[Measurement]:
    """Returns times for so many nodes, and what memory the extender takes then.

    Args:
        calls: of each kind in each round.

    Raises:
        VgpuError: the extender does not start.
    """
    chance = random.Random(_SEED)
    kinds: dict[str, Callable[[], Shape]] = {
        "warm": partial(chance.choice, _WARM),
        **{kind: _never_asked(chance, containers) for containers, kind in COLD.items()},
    }
    kinds[MIXED] = _mixed(chance)
    case = f"filter and prioritize, {nodes} nodes x 8 GPUs"
    found = []
    with tempfile.TemporaryDirectory(prefix="vgpu-") as name:
        base = Path(name)
        with (
            cluster_of(base, nodes, _OCCUPIED, _SEED) as (server, light),
            running_extender(server, base, NAMESPACE) as extender,
        ):
            sender, names = extender.sender(), light.names
            for known in _WARM:
                _timed(sender, known, names)
            samples: dict[str, list[list[float]]] = {kind: [] for kind in kinds}
            for number in range(rounds):
                say(f"{case}, round {number + 1} of {rounds}")
                for kind, shape in kinds.items():
                    changes = _changing(light, chance) if kind == MIXED else nullcontext()
                    with changes:
                        took = [_timed(sender, shape(), names) for _ in range(calls)]
                    samples[kind].append(took)
            for kind, rounds_of_it in samples.items():
                found += _quantiles(f"{case}, {kind}", rounds_of_it, SIZES[nodes])
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
