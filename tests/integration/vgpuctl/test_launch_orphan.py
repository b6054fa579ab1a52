"""A launcher whose demo is dead mounts nothing and starts nothing."""

import subprocess
import sys
from pathlib import Path

from support import ROOT
from support.waiting import PATIENCE_S
from vgpuctl.demo.launch import EXIT_NOT_STARTED, Order

NOBODYS_PID = 0x7FFFFFFF  # beyond any pid: never the launcher's parent


def test_an_order_of_a_dead_parent_is_not_begun(tmp_path: Path) -> None:
    # GIVEN an order that would complain at its first mount: the mount point is not there
    order = Order(
        "orphan",
        NOBODYS_PID,
        ("true",),
        {"PATH": "/usr/bin:/bin"},
        mountpoint=str(tmp_path / "missing"),
    )

    done = subprocess.run(
        [sys.executable, "-m", "vgpuctl.demo.launch"],
        input=order.encode(),
        cwd=ROOT,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )

    # THEN it ended before it got there
    assert (done.returncode, done.stderr) == (EXIT_NOT_STARTED, b"")
