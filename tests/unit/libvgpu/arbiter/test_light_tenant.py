"""A tenant that wants little, next to several that want all: it is served soon after it asks.

Its tag is behind, since it has used less than its share; were that forgotten when it asks, it would
come behind all whose tags are lower by then.
"""

import pytest

from support.shim.contention import MS, START_NS, Contention, LaunchingTenant

NEIGHBOURS, ASKS, SETTLED = 4, 60, 10
QUANTUM_MS = 10


def waits_ms(pause_ns: int, weight: int) -> list[float]:
    """Returns how long each of its asks waited; it asks again so long after it was served."""
    light = LaunchingTenant(weight, kernel_ns=MS, syncs=True)
    gpu = Contention(*(LaunchingTenant(20) for _ in range(NEIGHBOURS)), light)
    waits: list[float] = []
    asked_ns = 0
    while len(waits) < ASKS:
        gpu.run(MS // 5)
        if len(light.launch_times) > len(waits):
            served_ns = light.launch_times[-1] - START_NS
            waits.append((served_ns - asked_ns) / MS)
            asked_ns = served_ns + pause_ns
            light.wants = ((asked_ns, 1 << 62),)
    return waits[SETTLED:]


@pytest.mark.parametrize("weight", [20, 60])
@pytest.mark.parametrize("pause_ms", [7, 13, 17])
def test_it_waits_for_one_window_at_most(pause_ms: int, weight: int) -> None:
    assert max(waits_ms(pause_ms * MS, weight)) <= QUANTUM_MS + 1
