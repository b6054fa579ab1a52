"""What `vgpuctl set` changes holds at the next call of a program that runs in the slice."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.model.overrides import Override
from libvgpu import allocation_dirs
from libvgpu.artifacts import shim_path
from libvgpu.sim import Machine
from support.node import in_process as in_process_node
from support.node.in_process import GIB, MPS_GPU, VGPU_GPU, InProcessNode, running_node
from support.shim.slices import Slice
from support.shim.talker import Talk
from support.waiting import bar, wait_until
from vgpuctl import agent_client

OUT_OF_MEMORY = 2
IN_FORCE_S = 0.05


@pytest.fixture
def shim() -> Path:
    return shim_path()  # the node below takes another one's place for its own answers


@pytest.fixture
def node(shim: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    gpu = replace(VGPU_GPU, uuid=machine.devices[0].uuid)
    monkeypatch.setattr(in_process_node.GivenGpus, "gpus", lambda self: (MPS_GPU, gpu))
    config = in_process_node.CONFIG.replace("[1, 2]", "[1]")
    with running_node(monkeypatch, config=config) as node:
        yield node


@pytest.mark.parametrize("most_s", bar(IN_FORCE_S))
def test_a_running_program_is_held_to_what_is_set_at_once(
    node: InProcessNode, machine: Machine, talk: Talk, shim: Path, most_s: float
) -> None:
    pod = node.admit("a", {"vgpu-core": 40, "vgpu-memory": 8})
    options = node.kubelet.run_options(pod, "c0")
    mounts = {m.container_path: Path(m.host_path) for m in options.mounts}
    directory = mounts["/run/vgpu/limits"].parent
    wait_until(lambda: allocation_dirs.read_meta(directory).pod == "a")
    program = talk(Slice(machine, directory), LD_PRELOAD=str(shim)).holds(GIB)

    for _ in range(5):
        started = time.monotonic()
        agent_client.set_override(node.run_dir, directory.name, Override(memory_bytes=2 * GIB))
        refused = program.ask(f"alloc {2 * GIB}")
        took_s = time.monotonic() - started

        assert refused == OUT_OF_MEMORY
        assert took_s <= most_s
        agent_client.set_override(node.run_dir, directory.name, None)
        assert program.ask(f"alloc {GIB}") == 0
