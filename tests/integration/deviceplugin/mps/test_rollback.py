"""The MPS runner of the version before this one, on pipe directories that this version mounted."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.hostile.container import can_contain
from deviceplugin.store.mps_paths import pipe_directory
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine
from support import Compile
from support.hostile.node import mount_run_directory, unmount_run_directory
from support.node.earlier import earlier_version
from support.node.mps_node import MpsNode
from support.waiting import PATIENCE_S, wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.root,
    pytest.mark.skipif(not can_contain(), reason="may not mount"),
]


@pytest.fixture
def node(short_path: Path, compile_program: Compile) -> Iterator[MpsNode]:
    program = compile_program("mps_steady.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    mount_run_directory(short_path / "run")
    machine = Machine.create([PROFILES["h100-80g"]], short_path / "machine")
    made = MpsNode(machine, short_path, program)
    try:
        yield made
    finally:
        made.close()
        unmount_run_directory(made.run_dir)


def pipe_of(node: MpsNode) -> Path:
    return pipe_directory(node.run_dir, node.uuids[0])


def run_and_end(node: MpsNode, *, occupied: bool) -> None:
    """Has this version's runner serve the GPU for a while."""
    node.want(0, occupied=occupied)
    runner = node.start_runner()
    node.wait_phase()
    assert os.path.ismount(pipe_of(node))
    node.end_runner(runner)


def start_earlier_runner(node: MpsNode) -> "subprocess.Popen[str]":
    words = [f"--config={node.base / 'config.yaml'}", f"--run-dir={node.run_dir}"]
    with open(node.log, "a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "deviceplugin.mps", *words, "--look-every=0.5"],
            cwd=earlier_version(), env=node.machine.environment(os.environ),
            text=True, stderr=log, start_new_session=True,
        )  # fmt: skip
    node.started.append(process)
    return process


def test_who_ends_mps_without_slices_leaves_what_an_earlier_runner_can_move(node: MpsNode) -> None:
    run_and_end(node, occupied=False)
    assert not os.path.ismount(pipe_of(node))

    root = node.base / "root"
    node.want(0, occupied=False, root=str(root))
    runner = start_earlier_runner(node)

    node.wait_phase()
    assert pipe_of(node).resolve() == root / node.uuids[0] / "pipe"
    assert node.client().works()
    runner.terminate()
    assert runner.wait(PATIENCE_S) == 0


def test_an_earlier_runner_serves_in_a_directory_that_stays_mounted_for_its_slices(
    node: MpsNode,
) -> None:
    run_and_end(node, occupied=True)
    assert os.path.ismount(pipe_of(node))

    start_earlier_runner(node)

    node.wait_phase()
    assert node.client().works()
    assert os.path.ismount(pipe_of(node))
    # Which it cannot move; docs/operations.md says what helps.
    node.want(0, occupied=False, root=str(node.base / "root"))
    wait_until(lambda: "cannot be prepared: Device or resource busy" in node.said(), node.said())
    subprocess.run(["umount", str(pipe_of(node))], check=True)
    node.wait_phase()
    assert node.client().works()
