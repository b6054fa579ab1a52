"""The kubelet's own device manager as the judge of the running agent (tests/e2e/devicemanager).

A Go program with the device manager, topology manager and podresources server of a pinned kubelet
drives the agent through random histories and holds every step against its promises. In the long
form only, where Go is installed.
"""

import json
from pathlib import Path

import pytest

from support.cluster.devicemanager import build, judged_node, missing, run_judge
from support.cluster.go_programs import BUILD_TIMEOUT_S, DOWNLOAD_TIMEOUT_S

JUDGE_SECONDS = 600  # a history takes 20 to 35 on a quiet machine
#: Seed, steps, and what the history has besides pods of one and of several containers of both
#: families, failures, deletions, bursts, restarts of the kubelet, a killed agent, and pods that end
#: while somebody lists.
HISTORIES = {
    "pairs": (51, 500, ()),
    "init containers": (8, 400, ("--init",)),
    "NUMA": (18, 400, ("--policy", "single-numa-node", "--init")),
    "halves alone": (43, 250, ("--lone",)),
    "everything": (85, 300, ("--init", "--lone", "--whole", "--slow")),
}

pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(DOWNLOAD_TIMEOUT_S + BUILD_TIMEOUT_S + JUDGE_SECONDS),
]


@pytest.fixture(scope="module")
def judge() -> Path:
    """The program, built if its sources have changed."""
    why_not = missing()
    if why_not:
        pytest.skip(why_not)
    return build()


@pytest.mark.parametrize("name", HISTORIES)
def test_the_kubelets_own_code_finds_nothing_wrong(judge: Path, name: str, tmp_path: Path) -> None:
    seed, steps, flags = HISTORIES[name]
    with judged_node() as base:
        verdict = run_judge(
            judge,
            base,
            "--seed",
            str(seed),
            "--steps",
            str(steps),
            *flags,
            timeout_s=JUDGE_SECONDS,
        )

    summary = tmp_path / "summary.json"  # for devicemanager/shrink.py
    summary.write_text(json.dumps(verdict.summary))
    said = f"{verdict.said[-3000:]}\n{verdict.agent_log[-3000:]}\n{summary}"
    assert verdict.status == 0, said
    counts = verdict.summary["counts"]
    assert counts["admitted"] > steps / 10
    assert counts["started"] > steps / 10


def test_it_notices_limits_that_are_not_what_was_asked_for(judge: Path) -> None:
    with judged_node() as base:
        verdict = run_judge(
            judge, base, "--steps", "50", "--memory-unit", str(2 << 30), timeout_s=JUDGE_SECONDS
        )

    assert verdict.status == 1, verdict.said
    assert verdict.summary["violation"]["rule"] == "limits"
