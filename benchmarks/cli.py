"""What `vgpuctl` takes on a node that is full: how soon `ps` answers, what `top` costs to look at.

The agent is real, the GPUs are simulated, and each of the slices has a program that holds memory.
Each answer is a process of its own, from its start to its end ("cold"; bytecode and files are in
the machine's caches, as after the first one). An empty Python is measured next to it, in turn with
the others: so much of it is not ours. `top` draws 64 rows on a terminal that somebody reads.
"""

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace

from libvgpu.errors import VgpuError

from .agent_node import AgentNode
from .figure import Figure, Measurement, Options, spread
from .full_node import command_environment, open_full_node
from .repeats import say
from .terminal import open_terminal, run_on_terminal

SLICES = 64
ROUNDS = 20
MOST_PS_MS = 250.0
MOST_TOP_PERCENT = 2.0
SUBJECT = "vgpuctl"
_VGPUCTL = (sys.executable, "-m", "vgpuctl")
_ANSWERS: Mapping[str, tuple[str, ...]] = {
    "an empty Python": (sys.executable, "-c", "pass"),
    "ps": (*_VGPUCTL, "ps"),
    "ps -o json": (*_VGPUCTL, "ps", "-o", "json"),
    "status": (*_VGPUCTL, "status"),
    "describe of a pod": (*_VGPUCTL, "describe", "default/pod-0"),
}
#: Too narrow for all columns of `ps`.
_NARROW = 120
_ON_NARROW = f"ps on a terminal of {_NARROW} columns"
_JUDGED = {"ps", "ps -o json", _ON_NARROW}
_TOP = (*_VGPUCTL, "top", "--interval", "1")
_TOP_WINDOWS = 3
_TOP_SECONDS = 20.0
_TOP_SETTLE_SECONDS = 3.0
_MARGIN_ROWS = 16  # the GPUs and the line of keys
_COLUMNS = 160


def measure(options: Options) -> list[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: there is no compiler, the agent or a command fails, or shows too little.
    """
    slices = SLICES if options.count is None else options.count
    seconds = options.seconds or _TOP_SECONDS
    found = []
    with open_full_node(slices) as node:
        for state in ("agent running", "agent stopped"):
            if state == "agent stopped":
                node.stop_agent()
            case = f"{slices} slices, {state}"
            found += _answers(node, case, slices, options.rounds)
            found.append(_top(node, case, slices, seconds))
    return found


def _answers(node: AgentNode, case: str, slices: int, rounds: int) -> list[Measurement]:
    environment = command_environment(node)
    taken: dict[str, list[float]] = {name: [] for name in (*_ANSWERS, _ON_NARROW)}
    for number in range(rounds + 1):  # the first one fills the caches
        say(f"{case}: round {number} of {rounds}")
        for name, samples in taken.items():
            status, shown, took_s = _answer(name, environment)
            if status != 0:
                raise VgpuError(f"{name} ended with status {status}: {shown}")
            if name in _JUDGED and (count := shown.count("pod-")) < slices:
                raise VgpuError(f"{name} shows {count} of {slices} slices")
            if number > 0:
                samples.append(took_s * 1e3)
    return [
        replace(
            spread(case, SUBJECT, f"{name}, from start to end", "ms", samples),
            most=MOST_PS_MS if name in _JUDGED else None,
        )
        for name, samples in taken.items()
    ]


def _answer(name: str, environment: Mapping[str, str]) -> tuple[int, str, float]:
    """Returns exit status and output of a command, and the seconds from its start to its end."""
    if name == _ON_NARROW:
        return run_on_terminal(_ANSWERS["ps"], environment, 50, _NARROW)
    began_s = time.perf_counter()
    done = subprocess.run(
        _ANSWERS[name], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr, time.perf_counter() - began_s


def _top(node: AgentNode, case: str, slices: int, seconds: float) -> Measurement:
    windows = []
    size = slices + _MARGIN_ROWS + len(node.machine.devices), _COLUMNS
    with open_terminal(_TOP, command_environment(node), *size) as terminal:
        first = terminal.look(_TOP_SETTLE_SECONDS)
        if (shown := first.count(b"default/pod-")) < slices:
            raise VgpuError(f"top shows {shown} of {slices} slices")
        for number in range(_TOP_WINDOWS):
            say(f"{case}: top, window {number + 1} of {_TOP_WINDOWS}: {seconds:g} s")
            percent, drawn = terminal.processor_percent(seconds)
            if not drawn:
                raise VgpuError(f"top drew nothing for {seconds:g} s")
            windows.append(percent)
    return replace(
        spread(case, SUBJECT, "top at 1 Hz, processor", "% of a core", windows),
        most=MOST_TOP_PERCENT,
    )


FIGURE = Figure(
    name="cli",
    summary="how soon vgpuctl ps answers on a full node, and what vgpuctl top takes",
    label="simulated GPUs, host time",
    measure=measure,
    rounds=ROUNDS,
)
