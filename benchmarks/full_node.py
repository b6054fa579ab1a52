"""A node on which many containers have a slice each, with a program in it that holds memory."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from libvgpu.allocation_dirs import list_allocations
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.errors import VgpuError

from .agent_node import GPUS, RESOURCES, UNITS, AgentNode, open_node, profiles
from .nulldriver import built_client
from .repeats import say

#: Of one GPU; more would not fit the shares below.
_MOST_ON_A_GPU = 10
MOST_SLICES = GPUS * _MOST_ON_A_GPU
_ASKED = (100 // _MOST_ON_A_GPU, UNITS // _MOST_ON_A_GPU)
_NAMES_KNOWN_S = 30.0


@contextmanager
def open_full_node(slices: int) -> Iterator[AgentNode]:
    """Starts a node, so many pods and their programs; all of it ends with the block.

    Raises:
        VgpuError: there is no compiler, so many slices do not fit, the agent or a program fails.
    """
    if not 1 <= slices <= MOST_SLICES:
        raise VgpuError(f"{slices} slices are not possible: 1 to {MOST_SLICES} fit on {GPUS} GPUs")
    with (
        open_node(profiles()) as node,
        built_client(SIM_LIBRARY_DIR / "libcuda.so.1", "idle_client") as client,
        ExitStack() as programs,
    ):
        names = {f"pod-{number}" for number in range(slices)}
        say(f"{slices} pods and their programs")
        for name in sorted(names):
            pod = node.kubelet.admit(name, dict(zip(RESOURCES, _ASKED, strict=True)))
            node.kubelet.start_container(pod)
            programs.enter_context(_program(client, node.environment_in(pod)))
        node.wait_for(
            "the agent does not know whose its slices are",
            lambda: names <= {each.meta.pod for each in list_allocations(node.run_dir)},
            _NAMES_KNOWN_S,
        )
        yield node


@contextmanager
def _program(client: Path, environment: dict[str, str]) -> Iterator[None]:
    """Starts a program and waits until it holds its memory."""
    process = subprocess.Popen(
        [str(client)], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise VgpuError(f"a program in a slice ended with status {process.wait()}")
        yield
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def command_environment(node: AgentNode) -> dict[str, str]:
    """Returns the environment in which a user of the node types a command.

    Bytecode is kept, as wherever the package is installed.
    """
    environment = node.machine.environment()
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment | {
        "VGPU_RUN_DIR": str(node.run_dir),
        "VGPU_STATE_DIR": str(node.state_dir),
        "VGPU_KUBELET_DIR": str(node.base / "kubelet"),
        "TERM": os.environ.get("TERM") or "xterm-256color",
    }
