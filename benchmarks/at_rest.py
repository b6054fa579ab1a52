"""What the node agent takes while nothing happens, and how soon it is back with a new kubelet."""

import random
import time
from dataclasses import replace
from pathlib import Path

from libvgpu.allocations import list_allocations

from .agent_node import CASE, AgentNode
from .churn import LIVE, MIB, Churn
from .figure import Measurement, spread
from .process import cpu_seconds, memory
from .repeats import say

AGENT = "node agent"
IDLE_WINDOWS = 3
MOST_RESIDENT_MIB = 60.0
MOST_IDLE_PERCENT = 0.5
MOST_REGISTRATION_S = 2.0
_NAMES_KNOWN_S = 20.0


def one(case: str, quantity: str, unit: str, value: float, most: float | None = None,
         note: str = "") -> Measurement:  # fmt: skip
    """Returns one number, judged by the most that it may be."""
    value = round(value, 3)
    return Measurement(case, AGENT, quantity, unit, value, value, value, note, most=most)


def at_rest(node: AgentNode, churn: Churn, seconds: float, settle_s: float) -> list[Measurement]:
    """Returns memory and processor while containers hold slices and nothing happens.

    Args:
        seconds: of each window.
        settle_s: to wait before.

    Raises:
        VgpuError: the agent ended, or does not come to rest.
    """
    churn.run(LIVE)
    names = {pod.name for pod in churn.live}
    node.wait_for(
        "the agent does not know whose its slices are",
        lambda: names <= _known_pods(node.run_dir),
        _NAMES_KNOWN_S,
    )
    time.sleep(settle_s)
    held = memory(node.pid)
    windows = []
    for number in range(IDLE_WINDOWS):
        say(f"idle, window {number + 1} of {IDLE_WINDOWS}: {seconds:g} s")
        used, began = cpu_seconds(node.pid), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        windows.append(100 * (cpu_seconds(node.pid) - used) / took)
    case = f"{LIVE} slices held, {CASE}"
    idle = spread(case, AGENT, "processor, idle", "% of a core", windows)
    return [
        one(case, "resident memory", "MiB", held.resident_bytes / MIB, MOST_RESIDENT_MIB,
             f"without API watch; {held.own_bytes / MIB:.1f} MiB its own, the rest files"),
        one(case, "resident memory, peak of the run", "MiB", held.peak_bytes / MIB),
        replace(idle, most=MOST_IDLE_PERCENT),
    ]  # fmt: skip


def _known_pods(run_dir: Path) -> set[str]:
    return {entry.meta.pod for entry in list_allocations(run_dir)}


def restarts(node: AgentNode, count: int) -> list[Measurement]:
    """Returns how long after a kubelet's start all resources are offered again.

    Raises:
        VgpuError: the agent ended, or does not register.
    """
    taken = []
    for number in range(count):
        say(f"kubelet restart {number + 1} of {count}")
        node.kubelet.stop()
        time.sleep(random.random())  # wherever the agent stands in its rounds
        started = time.monotonic()
        node.kubelet.start()
        node.wait_registered()
        taken.append(time.monotonic() - started)
    case = f"kubelet restarted, {LIVE} slices held"
    return [
        spread(case, AGENT, "until all units are offered again", "s", taken),
        one(case, f"the same, worst of {count}", "s", max(taken), MOST_REGISTRATION_S),
    ]
