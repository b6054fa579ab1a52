"""The scheduler extender: how fast it answers, how well it packs, that it promises nothing twice.

The extender is real and a process of its own. Everything around it is simulated: API server, nodes
and kube-scheduler (`simulated_cluster`). Where nodes are packed they have the agent's real core.
"""

from collections.abc import Sequence

from .extender_calls import SIZES, measure_calls
from .extender_flow import PODS, measure_flow
from .extender_packing import measure_packing
from .figure import Figure, Measurement, Options

ROUNDS = 5
_CALLS = 100
_QUICK = 10


def measure(options: Options) -> Sequence[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: the extender does not start, ends, or something does not get there.
    """
    calls = _QUICK if options.quick else options.count or _CALLS
    found: list[Measurement] = []
    for nodes in SIZES:
        found += measure_calls(nodes, calls, options.rounds)
    found += measure_flow(PODS, options.rounds)
    found += measure_packing(is_quick=options.quick)
    return found


FIGURE = Figure(
    name="extender",
    summary="how fast the scheduler extender answers, what it binds, and how it packs",
    label="simulated API server, scheduler and nodes, host time",
    measure=measure,
    rounds=ROUNDS,
)
