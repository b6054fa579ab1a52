"""A verb that waits says for what, and ends in a sentence all the same."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import ROOT
from support.own_folder import SHORT
from support.waiting import PATIENCE_S


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[Path]:
    """A run directory whose agent takes connections and answers nobody."""
    with (
        tempfile.TemporaryDirectory(prefix="vgpu-", dir=SHORT) as name,
        socket.socket(socket.AF_UNIX) as agent,
    ):
        agent.bind(f"{name}/agent.sock")
        agent.listen(20)
        yield Path(name)


@pytest.mark.parametrize(
    ("verb", "doing"),
    [
        (["doctor", "-o", "json"], "asking the agent"),
        (["support-bundle", "{folder}/b.tar.gz"], "reading state.json"),
        (["status", "-o", "json"], "asking the agent"),
        (["metrics"], "asking the agent"),
        (["config", "show"], "asking the agent"),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else "",
)
def test_who_waits_for_an_agent_that_does_not_answer_is_told(
    deaf: Path, verb: list[str], doing: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vgpuctl", *(word.format(folder=deaf) for word in verb),
         f"--run-dir={deaf}", f"--state-dir={deaf}/s", f"--kubelet-dir={deaf}/k"],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.stderr.count(f"vgpuctl: {doing} (2 s so far)\n") == 1
    assert "(2 s so far)" not in done.stderr.replace(f"vgpuctl: {doing} (2 s so far)\n", "")
    if verb[0] != "status":  # which shows the rest without it
        assert "timed out" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
