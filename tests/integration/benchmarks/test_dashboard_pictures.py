"""``python -m benchmarks.dashboards`` makes a picture of each dashboard while a scene runs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.dashboards.queries import dashboards
from support import ROOT

_TIMEOUT_S = 600.0

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(_TIMEOUT_S),
]


def test_each_dashboard_has_a_picture_and_only_alerts_are_empty(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not there; as root: sh deploy/dev/install-prerequisites.sh node")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.dashboards", str(tmp_path), "--minutes=0.2",
         "--warm-up=60"],
        cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert {path.stem for path in tmp_path.glob("*.png")} == set(dashboards())
    for line in done.stderr.splitlines():
        assert "ALERTS" in line, line
