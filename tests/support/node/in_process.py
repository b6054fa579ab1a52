"""A kubelet stand-in and the node agent in this process, with GPUs brought by the test."""

import functools
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from deviceplugin import agent, runtime
from deviceplugin.config.chosen import Selection
from deviceplugin.inventory import gpu_watch
from deviceplugin.inventory.gpu_watch import Listed
from deviceplugin.kubelet.podresources import PodResources
from deviceplugin.model.gpus import Gpu, GpuListing
from deviceplugin.policy.pairing import podresources_listing
from deviceplugin.settings import AgentSettings
from deviceplugin.testing import AdmittedPod, ContainerManifest, PodManifest, StandInKubelet
from libvgpu import artifacts, region
from libvgpu.errors import InventoryError, VgpuError
from libvgpu.limits import DeviceLimit
from support.waiting import PATIENCE_S, wait_until
from support.world.world import world
from vgpuctl.agent_client import agent_report

GIB = 1 << 30
GPU_MEMORY_BYTES = 16 * GIB
MPS_GPU = Gpu(0, "GPU-aaaaaaaa-0000-0000-0000-000000000000", "test", GPU_MEMORY_BYTES)
VGPU_GPU = Gpu(1, "GPU-bbbbbbbb-0000-0000-0000-000000000001", "test", GPU_MEMORY_BYTES)
SPARE_GPU = Gpu(2, "GPU-cccccccc-0000-0000-0000-000000000002", "test", GPU_MEMORY_BYTES)
RESOURCES = [f"nvidia.com/{f}-{h}" for f in ("mps", "vgpu") for h in ("core", "memory")]

CONFIG = """\
version: v1
sharing:
  fractional:
    - {family: mps, devices: [0], memoryUnit: 1Gi}
    - {family: vgpu, devices: [1, 2], memoryUnit: 1Gi, compute: elastic}
"""
# Answers readiness and nothing else: what the agent needs of an MPS daemon in these tests.
MPS_TOOL = """\
#!/bin/sh
case "$1" in -f) exec sleep 60;; esac
read command; [ "$command" = get_default_active_thread_percentage ] && echo 100.0
"""


class GivenGpus:
    """An inventory of the test's own.

    Attributes:
        found: what is listed, or why nothing is; a test may change it at any moment.
    """

    def __init__(self) -> None:
        self.found: Listed = GpuListing((MPS_GPU, VGPU_GPU, SPARE_GPU))

    def gpus(self) -> tuple[Gpu, ...]:
        if isinstance(self.found, InventoryError):
            raise self.found
        return self.found.gpus

    def listing(self) -> GpuListing:
        gpus = self.gpus()
        return GpuListing(gpus, self.found.sick if isinstance(self.found, GpuListing) else ())


class InProcessNode:
    """A kubelet stand-in and an agent over one set of directories."""

    def __init__(self, base: Path, seed: int = 1) -> None:
        self.kubelet_dir, self.state_dir, self.run_dir = (base / n for n in ("k", "s", "r"))
        self.config = base / "config.yaml"
        self.config.write_text(CONFIG)
        self.configs: Path | None = None  # a directory of named ones, instead of `config`
        self.selection = Selection()
        self.kubelet = StandInKubelet(self.kubelet_dir, seed)
        self.metrics_address, self.pages_address = "127.0.0.1:0", ""
        self.node_name, self.publish = "test-node", True
        self.inventory = GivenGpus()
        self._stop: Any = runtime.event()
        self._thread: runtime.Thread | None = None
        self.failure: BaseException | None = None

    def start_agent(self) -> None:
        self._stop = runtime.event()
        settings = AgentSettings(
            self.configs or self.config,
            self.kubelet_dir,
            self.state_dir,
            self.run_dir,
            self.metrics_address,
            self.node_name,
            spawn_mps=False,
            selection=self.selection,
            publish=self.publish,
            pages_address=self.pages_address,
        )
        self._thread = runtime.thread(self._run, "agent", (settings,))
        self._thread.start()

    def _run(self, settings: AgentSettings) -> None:
        try:
            agent.run(settings, self.inventory, self._stop)
        except BaseException as error:
            self.failure = error

    def stop_agent(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive(), "the agent does not stop"
        wait_until_lost(self.kubelet)

    def wait_registered(self, resources: list[str] | None = None) -> None:
        self.kubelet.wait_for_resources(resources or RESOURCES, PATIENCE_S)

    def is_registered(self) -> bool:
        """Returns whether the agent says that the kubelet has all its resources."""
        try:
            resources = agent_report(self.run_dir).resources
        except VgpuError:  # it does not listen yet
            return False
        return all(each.registered_at is not None for each in resources)

    def list_podresources(self) -> object:
        """Asks the kubelet who has what, as monitors do."""
        resources = PodResources(self.kubelet_dir, "nvidia.com")
        try:
            return resources.list()
        finally:
            resources.close()

    def pass_time(self, seconds: float) -> None:
        """Time passes by itself."""

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Waits until something is so."""
        wait_until(condition, what)

    def admit(self, name: str, *containers: dict[str, int]) -> AdmittedPod:
        return self.kubelet.admit(
            PodManifest(
                name=name,
                containers=tuple(
                    ContainerManifest(f"c{i}", limits={f"nvidia.com/{k}": v for k, v in c.items()})
                    for i, c in enumerate(containers)
                ),
            )
        )

    def limit(self, pod: AdmittedPod, container: str = "c0") -> DeviceLimit:
        options = self.kubelet.run_options(pod, container)
        host = next(m.host_path for m in options.mounts if m.container_path == "/run/vgpu/limits")
        return only_device(Path(host).parent)


def only_device(directory: Path) -> DeviceLimit:
    (device,) = region.read_limits(directory).limits.devices
    return device


def wait_until_lost(kubelet: StandInKubelet) -> None:
    """Waits until the kubelet knows that its plugins ended; until then it still calls them."""
    wait_until(
        lambda: not any(kubelet.allocatable().values()), "the kubelet knows that its plugins ended"
    )


def hurry(put: Callable[[object, str, float], None] = setattr) -> None:
    """Makes the agent of this process look for ended containers and for GPUs more often, and give
    up sooner what nobody answers for, so that a test that waits for it ends soon.

    Args:
        put: sets an attribute.
    """
    put(agent, "_PODS_EVERY_S", 0.25)
    put(gpu_watch, "LIST_EVERY_S", 0.25)
    put(podresources_listing, "ENDED_AFTER_S", 1.0)
    put(podresources_listing, "NEVER_SEEN_AFTER_S", 3.0)


@functools.cache
def _empty_library() -> bytes:
    """Returns a library that has a build id and nothing else."""
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:
        source, library = Path(name) / "shim.c", Path(name) / "libvgpu.so"
        source.write_text("int nothing;\n")
        command = ["cc", "-shared", "-Wl,--build-id=sha1", "-o", str(library), str(source)]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
        return library.read_bytes()


@contextmanager
def running_node(
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], InProcessNode] = InProcessNode,
    config: str = CONFIG,
    in_world: bool = False,
) -> Iterator[InProcessNode]:
    """A registered node in a directory with a short name: a socket's path has 107 bytes.

    Args:
        in_world: its time and its threads are those of a world, where nothing is early or late by
            what the machine does; else they are real, and so are gRPC and the pages.
    """
    if not in_world:
        hurry(monkeypatch.setattr)
    with (
        world(monkeypatch) if in_world else nullcontext(),
        tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name,
    ):
        base = Path(name)
        shim = base / "libvgpu.so"
        shim.write_bytes(_empty_library())
        shim.chmod(0o755)
        monkeypatch.setattr(artifacts, "SHIM_PATH", shim)
        tools = base / "tools"
        tools.mkdir()
        (tools / "nvidia-cuda-mps-control").write_text(MPS_TOOL)
        (tools / "nvidia-cuda-mps-control").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
        node = make(base)
        node.config.write_text(config)
        (node.run_dir / "mps" / MPS_GPU.uuid / "pipe").mkdir(parents=True)
        node.run_dir.chmod(0o700)
        node.kubelet.start()
        node.start_agent()
        try:
            node.wait_registered(RESOURCES if "mps" in config else RESOURCES[2:])
            yield node
        finally:
            node.stop_agent()
            node.kubelet.stop()
