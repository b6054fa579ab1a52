"""Programs with a PID namespace of their own, in which the first one is number 1."""

import subprocess
from pathlib import Path

import pytest

#: With ``/proc`` of the new namespace, as a container has it, and with that of the one above.
OWN_PROC = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
PROC_ABOVE = OWN_PROC[:-1]


def need_namespaces() -> None:
    """Skips the test where no namespace can be made."""
    probe = subprocess.run([*OWN_PROC, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no PID namespaces here: {probe.stderr.strip()}")


def pid_within(process: "subprocess.Popen[str]") -> int:
    """Returns the pid by which we know the program that ``unshare`` runs."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    (pid,) = map(int, children.split())
    return pid
