"""What a client does to its GPU's MPS pipe directory stays there, and leads to no other GPU.

The run directory is a file system of its own, as on a node of the chart.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.hostile.attacks import PIPE_ROWS
from benchmarks.hostile.container import KINDS, Attackers, Kind, can_contain
from deviceplugin.mps import control_pipe
from deviceplugin.policy.limits.asked import CONTAINER_PIPE_DIRECTORY
from deviceplugin.store.mps_paths import pipe_directory
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.errors import MpsError
from libvgpu.sim import PROFILES, Machine
from support import Compile
from support.hostile.node import mount_run_directory, unmount_run_directory
from support.node.mps_node import MpsNode

pytestmark = [
    pytest.mark.hostile,
    pytest.mark.root,
    pytest.mark.skipif(not can_contain(), reason="may not make containers"),
]


@pytest.fixture
def node(short_path: Path, compile_program: Compile) -> Iterator[MpsNode]:
    program = compile_program("mps_steady.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    mount_run_directory(short_path / "run")
    machine = Machine.create([PROFILES["h100-80g"]] * 2, short_path / "machine")
    made = MpsNode(machine, short_path, program)
    made.want(0, 1)
    made.start_runner()
    for index in (0, 1):
        made.wait_phase(index)
    try:
        yield made
    finally:
        made.close()
        unmount_run_directory(made.run_dir)


@pytest.fixture
def attackers(short_path: Path) -> Iterator[Attackers]:
    made = Attackers(short_path)
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS[:1], ids=lambda kind: kind.name)
def test_who_fills_it_takes_no_room_of_the_run_directory(
    node: MpsNode, attackers: Attackers, kind: Kind
) -> None:
    pipe = pipe_directory(node.run_dir, node.uuids[0])
    other = node.client(1)
    binds = [(str(pipe), CONTAINER_PIPE_DIRECTORY, False)]
    for attack in PIPE_ROWS:
        before = os.statvfs(node.run_dir)
        with attackers.attack(kind, attack.name, binds) as outcomes:
            assert "ENOSPC" in outcomes.values() or not outcomes, outcomes
            now = os.statvfs(node.run_dir)
            assert now.f_ffree >= before.f_ffree - 16
            assert now.f_bavail >= before.f_bavail - 64
            assert other.works()
            assert node.ask("get_server_list", 1)


def test_a_link_that_is_swapped_in_during_a_question_is_not_followed(
    node: MpsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question has looked for a link before, and found none."""
    pipe, others = (pipe_directory(node.run_dir, uuid) for uuid in node.uuids)
    monkeypatch.setattr(control_pipe, "_check_no_link", lambda path: None)
    assert node.ask(control_pipe.READY_COMMAND, 0)
    (pipe / "control").unlink()
    (pipe / "control").symlink_to(others / "control")

    with pytest.raises(MpsError):
        node.ask("set_default_active_thread_percentage 7", 0)

    assert float(node.ask(control_pipe.READY_COMMAND, 1)) == 100
