"""The demo's node: a simulated machine, the kubelet stand-in, MPS daemons, and the real agent.

The MPS daemons are started first and by us, so that they end with the demo; the agent finds and
adopts them. All of the node's directories lie in the workspace.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from deviceplugin.config.loading import load_config
from deviceplugin.testing import StandInKubelet
from libvgpu.errors import VgpuError
from libvgpu.sim import PROFILES, Machine

from .children import Children, tool_environment
from .launch import Order
from .workspace import Workspace

GPU_PROFILES = ("a100-80g", "a100-80g")
#: The longest wait for anything; a slow machine needs a part of it, a quick one a second or two.
PATIENCE_S = 120.0


class Node:
    """Everything around the pods; made whole by `start`, ended by `stop`."""

    def __init__(
        self, workspace: Workspace, children: Children, config: Path, seed: int | None
    ) -> None:
        """Makes the machine and the directories.

        Args:
            workspace: takes all files.
            children: takes all processes.
            config: the agent's config file; a copy of it is used.
            seed: of the kubelet's random choices.
        """
        self.children = children
        self.config = workspace.directory / "config.yaml"
        shutil.copyfile(config, self.config)
        self.sharing = load_config(self.config)
        self.run_dir = workspace.path("run")
        self.state_dir = workspace.path("state")
        self.kubelet_dir = workspace.path("kubelet")
        self.machine = Machine.create(
            [PROFILES[name] for name in GPU_PROFILES], workspace.directory / "machine"
        )
        self.kubelet = StandInKubelet(self.kubelet_dir, seed)
        self.environment = tool_environment(self.machine.environment()) | {
            "VGPU_RUN_DIR": str(self.run_dir),
            "VGPU_STATE_DIR": str(self.state_dir),
            "VGPU_KUBELET_DIR": str(self.kubelet_dir),
        }

    def start(self, resources: set[str]) -> None:
        """Starts kubelet, MPS daemons and agent, and waits until ``resources`` are offered.

        Raises:
            VgpuError: one of them ended or the resources did not appear.
        """
        self.kubelet.start()
        runner = ("--run-dir", str(self.run_dir), "--tied")  # a killed demo leaves nothing
        self._start("MPS daemons", "deviceplugin.mps", *runner)
        self._start(
            "node agent",
            "deviceplugin",
            *("--kubelet-dir", str(self.kubelet_dir)),
            *("--state-dir", str(self.state_dir)),
            *("--run-dir", str(self.run_dir)),
            *("--metrics-address", "127.0.0.1:0"),
            *("--node-name", "demo"),
            "--no-spawn-mps",
        )
        self.kubelet.wait_for_resources(resources, PATIENCE_S, self.children.check)

    def stop(self) -> None:
        """Ends what `start` started; the machine's files go too."""
        self.children.end_all()
        self.kubelet.stop()
        self.machine.remove()

    def change_config(self, rule: dict[str, object]) -> None:
        """Puts a rule into ``limits:`` of the config copy, replaced in one step."""
        document = yaml.safe_load(self.config.read_text())
        document["limits"] = [rule, *(document.get("limits") or [])]
        edited = self.config.with_suffix(".new")
        edited.write_text(yaml.safe_dump(document, sort_keys=False))
        edited.replace(self.config)

    def vgpuctl(self, *arguments: str) -> str:
        """Runs a verb of vgpuctl on this node and returns its stdout.

        Raises:
            VgpuError: it failed, with what it said.
        """
        result = subprocess.run(
            [sys.executable, "-m", "vgpuctl", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if result.returncode != 0:
            raise VgpuError(
                f"vgpuctl {' '.join(arguments)} ended with status {result.returncode}: "
                f"{result.stderr.strip()}"
            )
        return result.stdout

    def _start(self, name: str, module: str, *options: str) -> None:
        argv = (sys.executable, "-m", module, "--config", str(self.config), *options)
        self.children.start(Order(name, 0, argv, self.environment))
