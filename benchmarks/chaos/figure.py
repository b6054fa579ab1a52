"""Whether a node's books still agree after everything on it was killed, stopped, filled and lost.

A real agent, an MPS runner and a kubelet's stand-in share 8 simulated GPUs among 64 tenants, of
which some attack. In storms of half a minute, agent, runner, MPS daemons, programs and kubelet are
killed and stopped, file systems are full, the agent's clock is set, NVML fails or hangs, GPUs raise
XIDs or are lost, and the config is edited, well and badly. Meanwhile, what must always hold is
looked at. Between the storms all faults end, and everything must come to agree again.

A seed says what is done in which order. It is printed, and ``--seed`` repeats it; but processes run
in real time, so a run is not repeated exactly. No verdict depends on how fast the machine is: what
must come to agree has minutes, more on a machine on which a look at it takes long.
"""

import random
import shutil
import time
from pathlib import Path

from benchmarks.figure import Figure, Measurement, Options
from benchmarks.repeats import say

from .life import Life
from .log import Log
from .node import open_chaos_node

_TENANTS = 64
_SECONDS = 30 * 60.0
_STORM_S, _FILLS_S = 30.0, 60.0
_STARTS_S = 600.0
#: After so many storms all pods end.
_ENDS_EVERY = 5
_LOGS = Path("build/chaos")


def measure(options: Options) -> list[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: this user is not root, there is no compiler, or a part does not start.
    """
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    count, seconds = options.count or _TENANTS, options.seconds or _SECONDS
    logs = _LOGS / str(seed)
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    say(f"seed {seed}; what agent, runner and tenants say is in {logs}")
    log = Log(seed)
    with open_chaos_node(logs, seed) as node:
        life = Life(node, count, log, seed)
        try:
            _live(life, seconds)
        finally:
            life.containers.close()
    return _measurements(life, f"seed {seed}, {count} tenants, {seconds / 60:g} minutes")


def _live(life: Life, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    storms = 0
    is_over = False
    life.node.kubelet.wait_for_resources(life.node.sharing.offered(), _STARTS_S)
    while not is_over:
        storms += 1
        life.fill(min(_FILLS_S, seconds / 4))
        life.faults.begin()
        life.live(min(_STORM_S, max(1.0, end_s - time.monotonic())))
        is_over = time.monotonic() >= end_s
        life.rest(is_over or storms % _ENDS_EVERY == 0)


def _measurements(life: Life, case: str) -> list[Measurement]:
    pods = life.containers
    found = [
        ("pods admitted", "", pods.admitted),
        ("pods refused", "", pods.refused),
        ("programs run", "", pods.programs),
        ("checks while all goes on", "", life.checks),
        ("rests at which all books agreed", "", life.rests),
        ("slowest rest", "s", round(life.slowest_rest_s, 1)),
        *((f"event: {kind}", "", n) for kind, n in sorted(life.log.counts.items())),
    ]
    violations = len(life.log.violations)
    return [
        *(Measurement(case, "libvgpu", what, unit, value) for what, unit, value in found),
        Measurement(
            case, "libvgpu", "violations", "", violations,
            note="; ".join(life.log.violations), most=0,
        ),
    ]  # fmt: skip


FIGURE = Figure(
    name="chaos",
    summary="whether a node's books agree whatever is killed, stopped, filled or lost",
    label="simulated GPUs",
    measure=measure,
    must_hold=True,
)
