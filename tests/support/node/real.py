"""A node of real parts: kubelet, containerd and runc, and our agent, on simulated GPUs.

All of it lives in namespaces of its own (`node.keeper`), with the paths that a node has:
/var/lib/kubelet, /var/lib/vgpu, /run/vgpu. There is no API server: pods are static, files in a
directory that the kubelet watches, and what became of them is asked of the kubelet.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from libvgpu.sim import PROFILES, Machine
from support import ROOT
from support.cluster.go_programs import BUILD_TIMEOUT_S, DOWNLOAD_TIMEOUT_S
from support.node import image as node_image
from support.node import parts as node_parts
from support.node import settings as node_settings
from support.node.containerd import Containerd, DebiansContainerd
from support.node.init import ADDRESS, HOST_NAME
from support.node.pods import NodeWithPods
from support.suite import surroundings
from support.waiting import wait_until

EXAMPLES = ROOT / "deploy/examples"
METRICS_PORT = 9446
_TESTS_S = 120.0
#: Of every file with tests on a node.
MARKS = [
    pytest.mark.node,
    pytest.mark.timeout(DOWNLOAD_TIMEOUT_S + BUILD_TIMEOUT_S + _TESTS_S),
]


class RealNode(NodeWithPods):
    """A running node; `running_node` makes one."""

    def __init__(
        self,
        base: Path,
        config: Mapping[str, Any],
        gpus: Sequence[str],
        containerd: Containerd,
    ) -> None:
        """Makes it; `start` starts what runs on it.

        Args:
            base: an empty directory with a short name.
            config: of the agent.
            gpus: profiles of the simulated machine.
            containerd: what runs its containers.
        """
        self.machine = Machine.create([PROFILES[gpu] for gpu in gpus], base / "machine")
        self.config = base / "config.yaml"
        self.change_config(config)
        node_settings.write(base)
        super().__init__(base, containerd.programs)
        containerd.write(self.inside("/etc"), base, self.machine.directory)
        self._host_env = self.machine.environment(self.env) | {"PYTHONPATH": str(ROOT)}

    def start(self) -> None:
        """Starts containerd with the images, the MPS daemons, the agent and the kubelet."""
        self.start_process(
            "containerd",
            [f"{self.containerd}/containerd"],
            self.env | {"PATH": f"{self.containerd}:{self.env['PATH']}"},  # has its shim
        )
        wait_until(lambda: self.ctr("version")["status"] == 0, "containerd")
        for archive in (node_image.pause(), node_image.client()):
            imported = self.ctr("images", "import", str(archive))
            assert imported["status"] == 0, imported
        self.start_mps()
        self.start_agent()
        self.start_kubelet()

    def start_mps(self) -> None:
        """Starts the MPS daemons' runner."""
        argv = [sys.executable, "-m", "deviceplugin.mps", "--config", str(self.config)]
        self.start_process("mps", argv, self._host_env)

    def start_agent(self) -> None:
        """Starts the agent, with its defaults, and waits until the kubelet has every resource."""
        argv = [sys.executable, "-m", "deviceplugin", "--config", str(self.config),
                "--node-name", HOST_NAME, "--no-spawn-mps"]  # fmt: skip
        self.start_process("agent", argv, self._host_env)
        if "kubelet" in self.running:
            self.wait_ready()

    def start_kubelet(self) -> None:
        """Starts the kubelet and waits until it has every resource of the agent."""
        argv = [str(node_parts.kubelet()), "--config", str(self.base / "kubelet.yaml"),
                "--hostname-override", HOST_NAME, "--node-ip", ADDRESS, "--v=2"]  # fmt: skip
        self.start_process("kubelet", argv, again=True)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Waits until the agent says that the kubelet has every resource."""
        try:
            wait_until(lambda: self._ask_agent("readyz")["status"] == 200, "the agent's /readyz")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.last_words_of_parts()}") from None

    def metric(self, name: str) -> float:
        """Returns the value of one of the agent's metrics that has no labels."""
        for line in self._ask_agent("metrics")["body"].splitlines():
            metric, _, value = line.partition(" ")
            if metric == name:
                return float(value)
        raise AssertionError(f"the agent has no metric {name}")

    def _ask_agent(self, page: str) -> dict[str, Any]:
        return self.order("get", url=f"http://127.0.0.1:{METRICS_PORT}/{page}")

    def vgpuctl(self, *arguments: str, status: int = 0) -> str:
        """Runs a verb with its defaults, which ends with ``status``; returns what it prints."""
        done = self.run(sys.executable, "-m", "vgpuctl", *arguments, env=self._host_env)
        assert done["status"] == status, done
        return str(done["out"])

    def change_config(self, config: Mapping[str, Any]) -> None:
        """Replaces the agent's config file in one step."""
        draft = self.config.with_suffix(".new")
        draft.write_text(yaml.safe_dump(dict(config), sort_keys=False))
        draft.replace(self.config)


def example_config(device_list_strategy: str = "envvar") -> dict[str, Any]:
    """Returns the config of deploy/examples: GPU 0 of family mps, GPU 1 of family vgpu."""
    config = dict(yaml.safe_load((EXAMPLES / "config.yaml").read_text()))
    return config | {"flags": {"plugin": {"deviceListStrategy": device_list_strategy}}}


def example(name: str) -> dict[str, Any]:
    """Returns a pod of deploy/examples as a service: what ended is started again.

    The examples run to their end; of a container that is never started again no restart could be
    tested.
    """
    pod = dict(yaml.safe_load((EXAMPLES / name / "pod.yaml").read_text()))
    pod["spec"]["restartPolicy"] = "Always"
    return pod


def idle_pod(name: str) -> dict[str, Any]:
    """Returns a pod of the examples' image that asks for no GPU and does nothing."""
    pod = example("vgpu-30")
    pod["metadata"]["name"] = name
    (container,) = pod["spec"]["containers"]
    del container["resources"]
    container["command"] = ["python3", "-c", "import time; time.sleep(1000)"]
    return pod


@contextmanager
def running_node(
    config: Mapping[str, Any],
    gpus: Sequence[str],
    containerd: Containerd | None = None,
    prepare: Callable[[RealNode], object] = lambda node: None,
    pods: Sequence[str] = (),
) -> Iterator[RealNode]:
    """A node that ends with the block and leaves nothing behind; skips where none can run.

    Args:
        config: of the agent.
        gpus: of the simulated machine.
        containerd: Debian's, unless another one is named.
        prepare: called with the node before anything runs on it.
        pods: examples that are put on it.

    Raises:
        AssertionError: the machine is not as it was before.
    """
    if why_not := node_parts.missing():
        pytest.skip(why_not)
    before = surroundings.look()
    # Sockets lie below it, so its name must be short.
    base = Path(tempfile.mkdtemp(prefix="vgpu-node-", dir="/tmp"))
    base.chmod(0o755)
    node = None
    try:
        node = RealNode(base, config, gpus, containerd or DebiansContainerd())
        prepare(node)
        node.start()
        for name in pods:
            node.put(example(name))
        yield node
    finally:
        try:
            if node is not None and not node.ended:
                assert node.end() == 0, (base / "node.log").read_text()
        finally:
            shutil.rmtree(base)
    wait_until(lambda: not surroundings.processes_naming(base.name), "end of every process")
    changed = before ^ surroundings.look()
    assert not changed, changed
