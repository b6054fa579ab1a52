"""A verb that waits says for what, and ends in a sentence all the same."""

import os
import re
import socket
import subprocess
import sys
import tempfile

import pytest

from support import ROOT
from support.suite.own_folder import SHORT
from support.waiting import PATIENCE_S

VERBS = ("doctor -o json", "support-bundle b.tar.gz", "status -o json", "metrics", "config show")


def test_who_waits_for_an_agent_that_does_not_answer_is_told_and_asks_it_once() -> None:
    """All at once, since each waits for five seconds."""
    with (
        tempfile.TemporaryDirectory(prefix="vgpu-", dir=SHORT) as folder,
        socket.socket(socket.AF_UNIX) as agent,
    ):
        agent.bind(f"{folder}/agent.sock")
        agent.listen(20)
        waiting = {
            verb: subprocess.Popen(
                [sys.executable, "-m", "vgpuctl", *verb.split(), f"--run-dir={folder}",
                 f"--state-dir={folder}/s", f"--kubelet-dir={folder}/k"],
                cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for verb in VERBS
        }  # fmt: skip
        told = {verb: program.communicate(timeout=PATIENCE_S) for verb, program in waiting.items()}
        agent.setblocking(False)
        for _ in VERBS:
            agent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            agent.accept()

    for verb, (shown, said) in told.items():
        lines = re.findall(r"^vgpuctl: (.+) \((\d+) s so far\)$", said, re.M)
        assert lines[0][0] == "asking the agent", verb
        seconds = [int(each) for _, each in lines]
        assert seconds == sorted(set(seconds)), f"{verb}: two of it speak"
        if verb != "status -o json":  # which shows the rest without it
            assert "timed out" in shown + said, verb
        assert "Traceback" not in said
