"""A node of a world: the whole agent, and a kubelet, over one set of directories.

The agent is `agent.run` itself, with everything it starts. Only its HTTP pages are not served, its
GPUs are the world's, and no process of a container's is there to be looked at. The kubelet is the
stand-in, with its threads and its sockets.
"""

import gc
import hashlib
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from deviceplugin import agent
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.kubelet.podresources import PodResources
from deviceplugin.model.gpus import Gpu
from deviceplugin.recovery.kubelet_checkpoint import CheckpointReading, KubeletCheckpoint
from deviceplugin.settings import AgentSettings
from deviceplugin.store.spare_files import SpareFiles
from deviceplugin.testing import AdmittedPod, PodManifest, StandInKubelet
from libvgpu.errors import VgpuError

from .api import NODE, WorldApi
from .disk import AgentDisk
from .gpus import WorldGpus
from .one_failure import OneFailure
from .turns import Process, Turn
from .waits import Event
from .world import World

DOMAIN = "nvidia.com"
_PATIENCE_S = 120.0
_RESTARTED_AFTER_S = 5.0
#: Few, since they would be a fifth of a life's cost.
_SPARES = 4


class WorldKubelet(StandInKubelet):
    """The stand-in, whose pods come from an API server."""

    api: WorldApi

    def admit(self, manifest: PodManifest) -> AdmittedPod:
        self.api.bind(manifest)
        try:
            return super().admit(manifest)
        except BaseException:
            self.api.delete(manifest.name)
            raise

    def finish(self, pod: AdmittedPod) -> None:
        super().finish(pod)
        self.api.delete(pod.manifest.name)


class WorldNode:
    """The node.

    Attributes:
        answers: of all that the agent answered, so that two lives can be told apart.
        ended_by: why agents ended by themselves.
        hides_record: nobody may read the kubelet's checkpoint.
        restarts: an agent that says why it cannot run is started again, as the kubelet does.
    """

    def __init__(
        self,
        base: Path,
        seed: int,
        config: str,
        gpus: tuple[Gpu, ...],
        patch: pytest.MonkeyPatch,
        forgets: bool = False,
    ) -> None:
        """Starts both.

        Args:
            seed: of all that happens.
            gpus: of the node.
            patch: holds the world in place.
            forgets: see `StandInKubelet`.
        """
        self.state_dir, self.run_dir, self.kubelet_dir = base / "s", base / "r", base / "k"
        self.config, self.gpus = base / "config.yaml", gpus
        self.config.write_text(config)
        self._base = str(base).encode()
        self.answers = hashlib.blake2b(digest_size=8)
        self._world = World(seed, self._note)
        self._world.hold(patch)
        self.turns, self.runtime = self._world.turns, self._world.runtime
        self.disk = AgentDisk(self.turns, patch)
        self.api = WorldApi(self.turns)
        self.inventory = WorldGpus(self.turns, gpus)
        self._agent: Process | None = None
        self._main: Turn | None = None
        self.ended_by: list[str] = []
        self.hides_record = self.restarts = False
        patch.setitem(sys.modules, "pynvml", self.inventory.bindings())
        patch.setattr(ApiServer, "from_environment", lambda environ: self.api)
        patch.setattr(agent, "NodeArbiters", _NoArbiters)
        patch.setattr(agent, "MpsKeeper", _ReadyMps)
        patch.setattr(SpareFiles.__init__, "__defaults__", (_SPARES, None))
        patch.setattr(KubeletCheckpoint, "read", self._record(KubeletCheckpoint.read))
        self.kubelet = WorldKubelet(
            self.kubelet_dir, seed, forgets_in_flight=forgets, makes_pod_directories=True
        )
        self.kubelet.api = self.api
        self.kubelet.start()
        self.start_agent()

    def _note(self, answer: bytes) -> None:
        # Sorted, since the order of a map's entries is protobuf's own.
        self.answers.update(bytes(sorted(answer.replace(self._base, b""))))

    def _record(
        self, read: Callable[[KubeletCheckpoint], CheckpointReading]
    ) -> Callable[[KubeletCheckpoint], CheckpointReading]:
        hidden = CheckpointReading((), "nobody may read it")
        return lambda record: hidden if self.hides_record else read(record)

    # ---- the agent ---------------------------------------------------------------------------

    def start_agent(self) -> None:
        """Starts an agent over what is on the disk."""
        self._world.said = self._main = None
        self._agent = process = Process("agent")
        process.ends.append(lambda: self._world.wire.lose(process))
        self.disk.process = process
        self._stop: Any = Event(self.turns)
        settings = AgentSettings(
            self.config,
            self.kubelet_dir,
            self.state_dir,
            self.run_dir,
            "127.0.0.1:0",
            NODE,
            spawn_mps=False,
            watch_health=True,
        )
        stop = cast(threading.Event, self._stop)
        self._main = self.turns.begin(
            process, lambda: agent.run(settings, self.inventory, stop), "agent"
        )

    def stop_agent(self) -> None:
        """Ends the agent as SIGTERM does; the kubelet knows that on return."""
        if self._main is not None and not self._main.has_ended:
            self._stop.set()
            self.turns.join(self._main, _PATIENCE_S)
            assert self._main.has_ended, "the agent does not stop"
        self._check_main()
        self.kill()

    def _check_main(self) -> None:
        """Has the agent that ended by itself restarted, where that is to be expected."""
        failure = None if self._main is None else self._main.failure
        if failure is None:
            return
        if not (self.restarts and isinstance(failure, VgpuError)):
            raise AssertionError(f"the agent failed: {failure!r}") from failure
        self.ended_by.append(failure.message)
        self.kill()
        self.turns.sleep(_RESTARTED_AFTER_S)
        self.start_agent()

    def count_calls(self, patch: pytest.MonkeyPatch) -> OneFailure:
        """Has the agent's I/O calls counted, so that one of them can fail."""
        counts = OneFailure(
            patch, self.config.parent, lambda: self.turns.current.process.name == "agent"
        )
        self._world.wire.failure = self.api.failure = self.inventory.failure = counts
        return counts

    def arm(self, kill_at: int) -> None:
        """Has the agent killed before its next change but so many."""
        self.disk.arm(kill_at)

    def kill(self) -> bool:
        """Kills the agent, if it lives, and returns whether it did; the next one may live."""
        assert self._agent is not None
        lived = not self._agent.is_dead
        self.turns.kill(self._agent)
        self.disk.arm(None)
        self.wait_until(lambda: not any(self.kubelet.allocatable().values()), "the kubelet knows")
        return lived

    def cut_power(self) -> None:
        """Has the node lose its power, and boots it again."""
        assert self._agent is not None
        self.turns.kill(self._agent)
        self.kubelet.stop()
        self.kubelet.lose_containers()
        self.disk.arm(None)
        self.disk.cut_power(self.state_dir, self.turns.chance)
        shutil.rmtree(self.run_dir)  # as /run
        self.kubelet.start()
        self.start_agent()

    def _revive(self) -> None:
        """Starts an agent again that was killed while it started."""
        self._check_main()
        if self._agent is not None and self._agent.is_dead:
            self.disk.arm(None)
            self.start_agent()

    def is_healthy(self) -> bool:
        """Returns what a probe of the agent is told."""
        return self.health() == "ok\n"

    def health(self) -> str:
        """Returns the page ``/healthz``, empty while the agent starts."""
        said = self._world.said
        return "" if said is None else said.healthz(cast(Any, None)).get_data(as_text=True)

    # ---- what lives ask of a node ------------------------------------------------------------

    def list_podresources(self) -> object:
        """Asks the kubelet who has what, as monitors do."""
        resources = PodResources(self.kubelet_dir, DOMAIN)
        try:
            return resources.list()
        finally:
            resources.close()

    def pass_time(self, seconds: float) -> None:
        """Lets time pass."""
        self.turns.sleep(seconds)
        self._check_main()

    def wait_registered(self, resources: list[str]) -> None:
        """Waits until the kubelet has these resources."""
        try:
            self.kubelet.wait_for_resources(resources, _PATIENCE_S, self._revive)
        except VgpuError as error:
            raise AssertionError(str(error)) from error

    def is_registered(self) -> bool:
        """Returns whether the kubelet has all that the agent offers."""
        if self._world.said is None:
            return False
        resources = self._world.said.state().resources
        return all(each.registered_at is not None for each in resources)

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Lets time pass until something is so; it has to be within some minutes."""
        end_s = self.turns.now_s + _PATIENCE_S
        while not condition():
            assert self.turns.now_s < end_s, f"not so in {_PATIENCE_S:.0f} s: {what}"
            self.pass_time(0.5)

    def close(self) -> None:
        """Ends both."""
        if self._agent is not None:
            self.turns.kill(self._agent)
        self.kubelet.stop()
        self.turns.close()
        gc.collect(0)


class _NoArbiters:
    """No process of a container's is there, so nobody is arbitrated."""

    def __init__(self, run_dir: Path) -> None:
        self.counted: dict[str, Any] = {}

    def look(self) -> None:
        """Nothing is to be done."""

    def stop(self) -> None:
        """Nothing runs."""


class _ReadyMps:
    """Each GPU is at once as its containers need it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Runs no daemon."""

    def look(self) -> None:
        """Nothing is to be done."""

    def wait(self, uuids: Sequence[str], under_mps: bool, within_s: float) -> None:
        """All are ready."""

    def states(self) -> dict[str, Any]:
        return {}
