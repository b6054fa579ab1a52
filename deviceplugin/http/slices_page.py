"""Makes the page ``/v1/slices`` from the files of the run directory and the agent's GPUs.

Reads without the agent's lock: what it takes from the node's state is replaced whole.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from deviceplugin import runtime
from deviceplugin.pages.slices import NodeSlices, Source, node_gpus, without_commands
from deviceplugin.policy.devices.known_gpus import devices
from deviceplugin.store.node_state import NodeState
from libvgpu.slices import read_slices


class SlicesPage:
    """The page of one node."""

    def __init__(self, node_name: str, run_dir: Path, state: NodeState) -> None:
        """Reads nothing yet."""
        self._node_name, self._run_dir, self._state = node_name, run_dir, state
        self._source: Source = "simulated" if "VGPU_SIM_MACHINE" in os.environ else "driver"

    def content(self) -> bytes:
        """Returns the page.

        Raises:
            AllocationRefused: the run directory may not be read.
        """
        state = self._state
        return msgspec.json.encode(
            NodeSlices(
                self._node_name,
                runtime.epoch(),
                runtime.monotonic(),
                node_gpus(devices(state.gpus), self._source, self._health(), dict(state.draining)),
                without_commands(read_slices(self._run_dir)),
                str(self._run_dir),
            )
        )

    def _health(self) -> Mapping[str, str]:
        withheld = {each.gpu.uuid: each.reason for each in self._state.layout.withheld}
        return withheld | dict(self._state.unhealthy)
