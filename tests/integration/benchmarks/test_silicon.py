"""The simulated H100 does what the real one did bare, and what experiments expect of it.

A row that is named here is one that the simulator does not reproduce yet.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figure import Measurement, is_missed
from support import ROOT
from support.waiting import PATIENCE_S

OFF = {
    ("threads 30/70 (bare, one MPS server), tenant 2", "share of bare"),
    ("threads 30/70 (bare, one MPS server)", "total"),
}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_simulated_gpu_gives_what_is_expected_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VGPU_SIM_CALIBRATION", raising=False)  # tests have the ideal one

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "run", "silicon", "--simulate", "h100",
         "--json", str(tmp_path / "out.json")],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    (figure,) = json.loads((tmp_path / "out.json").read_text())["figures"]
    found = [Measurement(**row) for row in figure["measurements"]]
    assert {(each.case, each.quantity) for each in found if is_missed(each)} == OFF
