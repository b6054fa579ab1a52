"""What the node agent takes while nothing happens, and how soon it is back with a new kubelet."""

import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from deviceplugin.testing.lean_kubelet import NAMESPACE
from libvgpu.allocation_dirs import list_allocations

from .agent_node import CASE, AgentNode, open_node, profiles, write_config
from .churn import LIVE, MIB, Churn
from .figure import Measurement, spread
from .process import cpu_seconds, memory
from .repeats import say
from .simulated_cluster.api_server import SimulatedApiServer

AGENT = "node agent"
IDLE_WINDOWS = 3
MOST_RESIDENT_MIB = 96.0
MOST_RESIDENT_WITH_API_MIB = 112.0
WITH_API = "a rule by labels and an API server"
MOST_IDLE_PERCENT = 0.5
MOST_REGISTRATION_S = 2.0
_NAMES_KNOWN_S = 20.0
_RULE = "limits:\n- {match: {podLabels: {tier: batch}}, memory: 1Gi}\n"


def one(
    case: str, quantity: str, unit: str, value: float, most: float | None = None, note: str = ""
) -> Measurement:
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
        one(
            case,
            "resident memory",
            "MiB",
            held.resident_bytes / MIB,
            MOST_RESIDENT_MIB,
            f"without API watch; {held.own_bytes / MIB:.1f} MiB its own, the rest files",
        ),
        one(case, "resident memory, peak of the run", "MiB", held.peak_bytes / MIB),
        replace(idle, most=MOST_IDLE_PERCENT),
    ]


def with_api_server(seconds: float) -> Measurement:
    """Returns the memory of an agent that has asked an API server for the labels of its pods.

    Args:
        seconds: to wait before.

    Raises:
        VgpuError: the agent does not start, ends, or does not ask; there is no openssl.
    """

    def config(base: Path) -> Path:
        path = write_config(base)
        path.write_text(path.read_text() + _RULE)
        return path

    say("an agent with an API server")
    with tempfile.TemporaryDirectory(prefix="vgpu-api-") as folder:
        server = SimulatedApiServer(Path(folder))
        server.start()
        try:
            with open_node(profiles(), config, server) as node:
                churn = Churn(node, random.Random())
                churn.run(LIVE)
                paths = {f"/api/v1/namespaces/{NAMESPACE}/pods/{pod.name}" for pod in churn.live}
                node.wait_for(
                    "the agent has not asked for the labels of its pods",
                    lambda: paths <= {path for _, path in list(server.called)},
                    _NAMES_KNOWN_S,
                )
                time.sleep(seconds)
                held = memory(node.pid)
        finally:
            server.stop()
    return one(
        f"{WITH_API}, {LIVE} slices held",
        "resident memory",
        "MiB",
        held.resident_bytes / MIB,
        MOST_RESIDENT_WITH_API_MIB,
        f"{held.own_bytes / MIB:.1f} MiB its own, the rest files",
    )


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
