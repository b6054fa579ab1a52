"""A kubelet and an agent's core in one thread, on a clock of the test's: a seed says all they do.

The kubelet is the stand-in without its sockets, the agent is its core with the files it keeps. A
call between them goes through the messages' bytes. Time passes only when somebody waits; then the
agent's duties come round, and the kubelet reads the lists that are new. What a restart loses is
lost here, too: everything but the files.
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

from deviceplugin import agent
from deviceplugin.config.loading import parse_config
from deviceplugin.core.container_files import ContainerFiles
from deviceplugin.core.parts import Sources
from deviceplugin.core.service import SliceService
from deviceplugin.http.metrics import AllocateDurations
from deviceplugin.kubelet.answer_codec import mounts_of
from deviceplugin.kubelet.handlers import OPTIONS, method_handlers
from deviceplugin.kubelet.plugin_server import PluginServer
from deviceplugin.kubelet.plugins import Plugins
from deviceplugin.kubelet.podresources import listed_in
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.model.gpus import Gpu
from deviceplugin.policy.layout import lay_out
from deviceplugin.policy.podresources_listing import Listed
from deviceplugin.recovery.kubelet_checkpoint import CheckpointReading, KubeletCheckpoint
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from deviceplugin.testing import StandInKubelet
from deviceplugin.testing.plugin_client import DeviceState, Plugin
from deviceplugin.testing.services import PodResourcesService

from .kill_points import Killed, KillPoints

DOMAIN = "nvidia.com"
_LOOK_S = 0.7
#: A list is on its way to the kubelet for no longer than this, as long as nobody waits.
_KNOWN_AFTER_S = 0.3
_PATIENCE_S = 60.0


class SteppedKubelet(StandInKubelet):
    """The stand-in kubelet, served to nobody."""

    def start(self) -> None:
        """Takes its records from its checkpoint."""
        self.plugin_directory.mkdir(parents=True, exist_ok=True)
        self._manager.open()
        self.resources = PodResourcesService(self._manager.active_pods, self._manager.inventory)

    def take(self, plugin: "SteppedPlugin") -> None:
        """Registers a plugin and reads its first list."""
        self._manager.take(cast(Plugin, plugin))
        self._manager.listed()

    def read_lists(self) -> None:
        """Reads the lists that are new."""
        plugins = cast("list[SteppedPlugin]", list(self._manager.plugins().values()))
        if [plugin for plugin in plugins if plugin.read()]:
            self._manager.listed()

    def registered(self) -> set[str]:
        """Returns the resources whose plugins are connected."""
        plugins = self._manager.plugins()
        return {name for name, plugin in plugins.items() if plugin.connected}


class _AbortedError(Exception):
    """The agent ended a call with a sentence."""


class _Context:
    """What a handler sees of a call."""

    def abort(self, code: object, text: str) -> None:
        raise _AbortedError(text)


class SteppedPlugin:
    """The kubelet's end of a resource: the calls of `Plugin`, in bytes, without a connection."""

    options = OPTIONS

    def __init__(self, server: PluginServer, ask: Callable[[Callable[[], bytes]], bytes]) -> None:
        """Has read no list.

        Args:
            ask: makes a call.
        """
        self.resource, self.connected = server.resource, True
        self.devices: Mapping[str, DeviceState] = {}
        self._server, self._ask = server, ask
        self._revision, self._last = -1, b""
        self._handlers = method_handlers(server, cast(Any, None))

    def start(self) -> None:
        """Reads the first list."""
        self.read()

    def read(self) -> bool:
        """Reads the list; returns whether it is another one."""
        if not self.connected or self._revision == self._server._offer.state.revision:
            return False
        self._revision, message = self._server._message()
        if message == self._last:
            return False
        self._last = message
        self.devices = {
            each.ID: DeviceState(each.ID, each.health == "Healthy", ())
            for each in pb.ListAndWatchResponse.FromString(message).devices
        }
        return True

    def close(self) -> None:
        """Ends the connection: no unit is healthy any more."""
        self.connected = False
        self.devices = {name: DeviceState(name, False, ()) for name in self.devices}

    def prefer(self, available: Sequence[str], must: Sequence[str], count: int) -> list[str]:
        """Asks which units to take."""
        request = pb.PreferredAllocationRequest(
            container_requests=[
                pb.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available,
                    must_include_deviceIDs=must,
                    allocation_size=count,
                )
            ]
        )
        answer = self._call("GetPreferredAllocation", request)
        (chosen,) = pb.PreferredAllocationResponse.FromString(answer).container_responses
        return list(chosen.deviceIDs)

    def allocate(self, device_ids: Sequence[str]) -> pb.ContainerAllocateResponse:
        """Has units given to a container."""
        request = pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=device_ids)]
        )
        answer = self._call("Allocate", request)
        (given,) = pb.AllocateResponse.FromString(answer).container_responses
        return given

    def pre_start(self, device_ids: Sequence[str]) -> None:
        """Tells that a container starts."""
        self._call("PreStartContainer", pb.PreStartContainerRequest(devices_ids=device_ids))

    def _call(self, method: str, request: Any) -> bytes:
        if not self.connected:
            raise ValueError(f"the endpoint of {self.resource} has been stopped")
        handle, payload = self._handlers[method].unary_unary, request.SerializeToString()
        try:
            return self._ask(lambda: handle(payload, _Context()))
        except _AbortedError as error:
            raise ValueError(str(error)) from None


class _State(NodeState):
    """The agent's state; its waits pass the node's time."""

    sleep: Callable[[float], None]

    def wait_until_known(self) -> None:
        self.lock.release()
        try:
            self.sleep(_KNOWN_AFTER_S)
        finally:
            self.lock.acquire()


class SteppedNode:
    """A kubelet and an agent over one set of directories, with time of their own.

    Attributes:
        now_s: by the clock of both, monotonic.
        trace: of all that the agent answered, so that two lives can be told apart.
    """

    def __init__(
        self,
        base: Path,
        seed: int,
        config: str,
        gpus: tuple[Gpu, ...],
        forgets: bool = False,
        points: KillPoints | None = None,
    ) -> None:
        """Starts both.

        Args:
            seed: of all that the two do by chance.
            gpus: of the node, for ever.
            forgets: see `StandInKubelet`.
            points: where the agent may be killed.
        """
        self.hides_record = False
        self.points, self.trace = points, hashlib.sha256()
        self._base = str(base).encode()
        self.state_dir, self.run_dir, self.kubelet_dir = base / "s", base / "r", base / "k"
        self.config, self.gpus = base / "config.yaml", gpus
        self.config.write_text(config)
        self.now_s = 1000.0
        self._ids = random.Random(seed)
        self.kubelet = SteppedKubelet(
            self.kubelet_dir, seed, forgets_in_flight=forgets, makes_pod_directories=True
        )
        self.kubelet.start()
        self.start_agent()

    # ---- the agent ---------------------------------------------------------------------------

    def start_agent(self) -> None:
        """Starts an agent over what is on the disk; again where it is killed meanwhile."""
        while not self._lives(self._start):
            assert self.points is not None
            self.points.revive()
        if self.points is not None:
            self.points.revive()

    def _start(self) -> None:
        self._text = self.config.read_text()
        config = parse_config(self._text)
        self._checkpoint = checkpoint = Checkpoint(self.state_dir)
        self._files = SliceStore(self.run_dir, self.state_dir, config.forms, self.gpus)
        self._files.prepare()
        state = _State(checkpoint, lay_out(config, self.gpus), self.gpus, lambda: self.now_s)
        state.sleep = self.sleep
        record = KubeletCheckpoint(self.kubelet_dir, DOMAIN, mounts_of, lambda: self.now_s)

        def read() -> CheckpointReading:
            hidden = CheckpointReading((), "nobody may read it")
            return hidden if self.hides_record else record.read()

        sources = Sources(
            self.list_podresources, read, clock=lambda: self.now_s, sleep=self.sleep,
            wall_clock=lambda: 1e9 + self.now_s, new_id=lambda: f"{self._ids.getrandbits(48):012x}",
        )  # fmt: skip
        self.service = SliceService(state, self._files, config.rules, sources)
        self.service.devices.whole = config.whole
        self._plugins = Plugins(self.service, self.kubelet.plugin_directory, AllocateDurations())
        files = ContainerFiles(self.service, self._files, clock=lambda: self.now_s)
        files.look()
        duties: list[tuple[float, Callable[[], object]]] = [
            (agent._CONFIG_EVERY_S, self._follow_config),
            (agent._KUBELET_EVERY_S, self.register),
            (agent._PODS_EVERY_S, self.service.reconcile),
            (agent._COMPACT_EVERY_S, checkpoint.compact),
            (agent._FILES_EVERY_S, files.look),
        ]
        self._due = [(self.now_s + every_s, every_s, duty) for every_s, duty in duties]
        self.register()

    def stop_agent(self) -> None:
        """Ends the agent; the kubelet sees it at once."""
        for plugin in self.kubelet._manager.plugins().values():
            plugin.close()
        self._files.held.close()
        self._checkpoint.close()
        self._due = []

    def arm(self, kill_at: int) -> None:
        """Has the agent killed before its next change but so many."""
        assert self.points is not None
        self.points.arm(kill_at)

    def kill(self) -> bool:
        """Kills the agent, if it lives, and returns whether it did; the next one may live."""
        assert self.points is not None
        lived = not self.points.is_dead
        if lived:
            self.stop_agent()
        self.points.revive()
        return lived

    def register(self) -> None:
        """Registers what the kubelet does not have, as the agent's registrar does."""
        wanted = {server.resource: server for server in self._plugins.wanted()}
        connected = self.kubelet.registered()
        for resource in connected - wanted.keys():
            self.kubelet._manager.end_stream(resource)
        for resource in wanted.keys() - connected:
            self.kubelet.take(SteppedPlugin(wanted[resource], self._ask))

    def _ask(self, call: Callable[[], bytes]) -> bytes:
        """Makes a call of the kubelet's."""
        answers: list[bytes] = []
        if not self._lives(lambda: answers.append(call())):
            raise ValueError("the connection is lost")
        # Sorted, since the order of a map's entries is protobuf's own.
        self.trace.update(bytes(sorted(answers[0].replace(self._base, b""))))
        return answers[0]

    def _lives(self, act: Callable[[], object]) -> bool:
        """Has the agent do something; returns whether it lives on."""
        if self.points is None:
            act()
            return True
        try:
            with self.points.within():
                act()
            return True
        except Killed:
            self.stop_agent()
            return False

    def list_podresources(self) -> Sequence[Listed]:
        """Asks the kubelet, as the agent and every monitor does."""
        return listed_in(self.kubelet.resources.List(None, None), DOMAIN)

    def _follow_config(self) -> None:
        text = self.config.read_text()
        if text != self._text:
            self._text, config = text, parse_config(text)
            self.service.follow_config(config, lay_out(config, self.gpus))

    # ---- time --------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Lets time pass in which the agent does nothing."""
        self.now_s += seconds
        with self.points.within(is_agent=False) if self.points else nullcontext():
            self.kubelet.read_lists()

    def pass_time(self, seconds: float) -> None:
        """Lets time pass; the agent's duties come round."""
        end_s = self.now_s + seconds
        while self._due and min(self._due, key=lambda each: each[0])[0] <= end_s:
            first = min(range(len(self._due)), key=lambda n: self._due[n][0])
            at_s, every_s, duty = self._due[first]
            self.sleep(max(0.0, at_s - self.now_s))
            if self._lives(duty):
                self._due[first] = max(self.now_s, at_s) + every_s, every_s, duty
        self.sleep(max(0.0, end_s - self.now_s))

    def wait_registered(self, resources: Sequence[str]) -> None:
        """All that is wanted is registered when the agent has started."""
        self.register()

    def is_registered(self) -> bool:
        """Returns whether the kubelet has all that the agent offers."""
        return {each.resource for each in self._plugins.wanted()} == self.kubelet.registered()

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Lets time pass until something is so; it has to be within a minute."""
        end_s = self.now_s + _PATIENCE_S
        while not condition():
            assert self.now_s < end_s, f"not so in {_PATIENCE_S:.0f} s: {what}"
            self.pass_time(0.5)

    def close(self) -> None:
        """Ends both."""
        self.stop_agent()
        self.kubelet.stop()
