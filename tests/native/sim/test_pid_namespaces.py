"""Which pid NVML gives for a process in a container: the one by which whoever asks knows it."""

import json
import subprocess
from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support.lines import next_line
from support.sim.programs import finish, start
from support.sim.releases import machine_of

OWN_PIDS = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
HOLD = """
open_context()
check(cuda.cuMemAlloc(3 << 30))
print(os.getpid(), flush=True)
sys.stdin.read()
"""
#: NVML's lists of one GPU, by every call that names processes.
LOOK = """
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
say(compute=[p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)],
    older=[p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)],
    detail=[p.pid for p in pynvml.nvmlDeviceGetRunningProcessDetailList(
        handle, pynvml.nvmlProcessDetailList_v1, 0)])
"""


@pytest.fixture(autouse=True)
def needs_namespaces() -> None:
    probe = subprocess.run([*OWN_PIDS, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no PID namespaces here: {probe.stderr.strip()}")


class Contained:
    """A process with a PID namespace of its own, that holds memory of the GPU."""

    def __init__(self, machine: Machine) -> None:
        self._holder = start(machine, HOLD, prefix=OWN_PIDS)
        self.own_pid = int(next_line(self._holder))
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text()
        (self.pid,) = map(int, children.split())

    def end(self) -> None:
        finish(self._holder)


def look(machine: Machine, prefix: tuple[str, ...] = ()) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads(finish(start(machine, LOOK, prefix=prefix)))
    return found


def test_from_outside_each_has_the_pid_of_the_node(machine: Machine) -> None:
    both = [Contained(machine), Contained(machine)]
    assert [each.own_pid for each in both] == [1, 1]

    for name, pids in look(machine).items():
        assert sorted(pids) == sorted(each.pid for each in both), name
    both[0].end()
    assert look(machine)["compute"] == [both[1].pid]
    both[1].end()


def test_in_the_namespace_it_is_its_own_pid(machine: Machine) -> None:
    code = "open_context(); check(cuda.cuMemAlloc(1 << 30))" + LOOK

    inside = json.loads(finish(start(machine, code, prefix=OWN_PIDS)))

    assert inside == {"compute": [1], "older": [1], "detail": [1]}


@pytest.mark.parametrize(("name", "listed"), [("470", [1]), ("580", [])])
def test_a_newer_driver_leaves_out_what_cannot_be_seen(
    tmp_path: Path, name: str, listed: list[int]
) -> None:
    """An older one has pids in its lists that mean nothing in another namespace."""
    machine = machine_of(name, tmp_path / "released")
    contained = Contained(machine)
    code = """
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
say(compute=[p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)])
"""
    outside_proc = tuple(each for each in OWN_PIDS if each != "--mount-proc")

    for prefix in (OWN_PIDS, outside_proc):
        found = json.loads(finish(start(machine, code, prefix=prefix)))
        assert found == {"compute": listed}, prefix
    contained.end()
