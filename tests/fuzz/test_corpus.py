"""No committed input crashes a parser. Further ones are looked for by ``make fuzz``."""

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import building, corpus
from fuzz.targets import TARGETS, Target
from support import ROOT
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.process


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_input_of_the_corpus_crashes_a_parser(target: Target, tmp_path: Path) -> None:
    inputs = corpus.read(target.name)
    for number, each in enumerate(inputs):
        (tmp_path / str(number)).write_bytes(each)
    command = [sys.executable, "-m", "fuzz.python_target", target.name, "replay"]
    if target.is_c:
        command = [str(building.replaying(target))]

    done = subprocess.run(
        [*command, *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}/tests:{ROOT}", "TMPDIR": str(tmp_path)},
    )  # fmt: skip

    assert inputs, "make fuzz FUZZ_KEEP=1"
    assert done.returncode == 0, done.stderr[-4000:]
