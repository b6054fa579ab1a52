"""The kubelet's own device manager as the judge of the running agent (tests/e2e/devicemanager).

A Go program with the device manager, topology manager and podresources server of a pinned kubelet
drives the agent through random histories and holds every step against its promises. Only where
VGPU_JUDGE is set, until it agrees with the agent on every history: the program takes about 4
minutes to build where nothing is cached, 15 s of them for 0.7 GB of modules; what was built is kept
under ``build`` by the hash of its sources.
"""

import os
from pathlib import Path

import pytest

from support.devicemanager import BUILD_TIMEOUT_S, build, judged_node, missing, run_judge

JUDGE_SECONDS = 300
#: Seed, steps, and what the history has beside pods of one and several containers of both families,
#: failures, deletions, bursts, restarts of the kubelet, a killed agent, and pods that end while
#: somebody lists.
HISTORIES = {
    "pairs": (1, 250, ()),
    "init containers": (2, 250, ("--init",)),
    "NUMA": (6, 200, ("--policy", "single-numa-node")),
}

pytestmark = [
    pytest.mark.skipif("VGPU_JUDGE" not in os.environ, reason="set VGPU_JUDGE to run it"),
    pytest.mark.timeout(BUILD_TIMEOUT_S + JUDGE_SECONDS),
]


@pytest.fixture(scope="module")
def judge() -> Path:
    """The program, built if its sources have changed."""
    why_not = missing()
    if why_not:
        pytest.skip(why_not)
    return build()


@pytest.mark.parametrize("name", HISTORIES)
def test_the_kubelets_own_code_finds_nothing_wrong(judge: Path, name: str) -> None:
    seed, steps, flags = HISTORIES[name]
    with judged_node() as base:
        verdict = run_judge(
            judge, base, "--seed", str(seed), "--steps", str(steps), *flags,
            timeout_s=JUDGE_SECONDS,
        )  # fmt: skip

    assert verdict.status == 0, verdict.said[-3000:]
    counts = verdict.summary["counts"]
    assert counts["admitted"] > steps / 10
    assert counts["started"] > steps / 10
