"""What the node agent takes: time for the kubelet's calls, memory, processor; and what it keeps.

The real agent (``python -m deviceplugin``) on a simulated machine, asked through real gRPC on Unix
sockets (`agent_node`, `churn`). Times are those of the caller: gRPC of both sides is in them, so a
call that does nothing (GetDevicePluginOptions) and the disk on which the agent must keep what it
gave are measured in the same run.

One round is a part of the containers. What the agent keeps is compared while no container is there:
after a warm-up, and at the end.
"""

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from deviceplugin.testing.lean_wire import Call

from .agent_node import CASE, RESOURCES, AgentNode, open_node, profiles
from .at_rest import AGENT, at_rest, one, restarts, with_api_server
from .churn import MIB, Churn, Kept, milliseconds, quantile
from .figure import Figure, Measurement, Options, spread
from .repeats import say

CONTAINERS = 1000
#: The agent grows by some MiB over its first hundreds of containers, and then no more: 2400 after
#: as many left it 1.1 MiB larger (2026-11-25). What it keeps shows behind that.
WARM_UP = 400
ROUNDS = 5
IDLE_SECONDS = 10.0
RESTARTS = 10
_SEED = 20
_EMPTY_CALLS = 200
_SYNCS = 100
_RECORD_BYTES = 1024
#: How long after the last call things are still put away, where there is that much time.
SETTLE_S = 3.0
_KIB = 1024

P50, P99 = partial(quantile, part=0.50), partial(quantile, part=0.99)
#: method, name of the figure, which value of a round, most milliseconds.
TIMES: tuple[tuple[str, str, Callable[[Sequence[float]], float], float | None], ...] = (
    ("Allocate", "p50", P50, 2.0),
    ("Allocate", "p99", P99, 10.0),
    ("GetPreferredAllocation", "p50", P50, None),
    ("GetPreferredAllocation", "p99", P99, 25.0),
    ("PreStartContainer", "p99", P99, None),
)
MOST_LIST_KIB = 1024.0
MOST_GROWTH_KIB = 1024.0


def summarise_times(rounds: Sequence[Sequence[Call]]) -> list[Measurement]:
    """Returns the times of the calls; the worst call of all rounds is in the note."""
    found = []
    for method, name, which, most in TIMES:
        worst = max(milliseconds(calls, method, max) for calls in rounds)
        samples = [milliseconds(calls, method, which) for calls in rounds]
        told = spread(f"{method}, {CASE}", AGENT, name, "ms", samples, f"worst call {worst:.1f} ms")
        found.append(replace(told, most=most))
    return found


def summarise_growth(containers: int, before: Kept, after: Kept) -> list[Measurement]:
    """Returns what the agent has more of than before."""
    case = f"{containers} containers come and go"
    kib = (after.resident_bytes - before.resident_bytes) / _KIB
    return [
        one(case, "resident memory grown", "KiB", kib, MOST_GROWTH_KIB,
             f"{before.resident_bytes / MIB:.1f} MiB before"),
        one(case, "descriptors more", "", after.descriptors - before.descriptors, 0),
        one(case, "threads more", "", after.threads - before.threads, 0),
        one(case, "files more in the run directory", "", after.files - before.files, 0),
        one(case, "state directory grown", "KiB", (after.state_bytes - before.state_bytes) / _KIB,
             MOST_GROWTH_KIB),
    ]  # fmt: skip


def measure(options: Options) -> list[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: the agent does not start, ends, or refuses what there is room for.
    """
    a_round = max(1, (options.count or CONTAINERS) // options.rounds)
    seconds = options.seconds or IDLE_SECONDS
    settle_s = min(SETTLE_S, seconds)
    chance = random.Random(_SEED)
    with open_node(profiles()) as node:
        found = [
            one(
                f"list of {plugin.resource}",
                "message",
                "KiB",
                plugin.message_bytes / _KIB,
                MOST_LIST_KIB,
            )
            for plugin in (node.kubelet.plugins[resource] for resource in RESOURCES)
        ]
        churn = Churn(node, chance)
        say("warming up")
        churn.run(max(WARM_UP, a_round))
        churn.end_all()
        time.sleep(settle_s)
        before = Kept.of(node)
        rounds, empty, syncs = [], [], []
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}: {a_round} containers")
            rounds.append(churn.run(a_round))
            empty.append(_empty_calls(node))
            syncs.append(_syncs(node.base / "probe"))
        asked, rejected = node.kubelet.listings, node.kubelet.rejected
        churn.end_all()
        time.sleep(settle_s)
        after = Kept.of(node)
        found += summarise_times(rounds)
        found += _references(empty, syncs)
        found.append(one("podresources", "listings", "", asked,
                         note=f"{rejected} of them rejected as too many"))  # fmt: skip
        found += summarise_growth(a_round * options.rounds, before, after)
        found += at_rest(node, churn, seconds, settle_s)
        found += restarts(node, RESTARTS if options.count is None else options.rounds)
    found.append(with_api_server(settle_s))
    return found


def _references(
    empty: Sequence[Sequence[float]], syncs: Sequence[Sequence[float]]
) -> list[Measurement]:
    """Returns what the floor is: a call that does nothing, and a record that reaches the disk."""
    found = []
    for case, subject, rounds in (
        ("GetDevicePluginOptions, a call that does nothing", AGENT, empty),
        (f"append of {_RECORD_BYTES} bytes and fdatasync", "disk alone", syncs),
    ):
        for name, which in (("p50", P50), ("p99", P99)):
            samples = [which(one_round) for one_round in rounds]
            found.append(spread(case, subject, name, "ms", samples))
    return found


def _empty_calls(node: AgentNode) -> list[float]:
    plugin = node.kubelet.plugins[RESOURCES[0]]
    return [plugin.call("GetDevicePluginOptions", b"")[1] * 1e3 for _ in range(_EMPTY_CALLS)]


def _syncs(path: Path) -> list[float]:
    """Returns milliseconds of small appends that reach the disk of the state directory."""
    taken = []
    with open(path, "ab", buffering=0) as file:
        for _ in range(_SYNCS):
            started = time.perf_counter()
            file.write(bytes(_RECORD_BYTES))
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - started) * 1e3)
    return taken


FIGURE = Figure(
    name="allocate",
    summary="what the node agent takes for a pod, and what it keeps of it",
    label="simulated GPUs, host time",
    measure=measure,
    rounds=ROUNDS,
)
