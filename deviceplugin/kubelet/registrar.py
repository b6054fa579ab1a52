"""Keeps the plugin servers registered with whatever kubelet is there.

A kubelet that starts removes every socket in its directory, creates ``kubelet.sock`` again and
forgets all plugins. So `look`, called about every second, compares for each plugin the identity of
``kubelet.sock`` and the existence of its own socket with what was there at its last registration;
a plugin for which something differs is served and registered again. The kubelet dials the plugin
from inside Register, so serving comes first. A plugin that cannot serve or that the kubelet refuses
does not keep the others from it; a kubelet that does not answer is left alone until the next call.
A kubelet that ends the stream of a plugin, or never opens it, has the plugin registered again
(`listening`). The plugin is served meanwhile: containers may be about to start.

Which plugins there are is asked at every call. One that is not there any more ends: the kubelet
sees its socket close, counts its units as gone, and forgets the resource minutes later.

Used from one thread, apart from `registrations` and `unheard`.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from deviceplugin import runtime
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2_grpc as rpc
from deviceplugin.log import event
from libvgpu.errors import VgpuError

from .handlers import OPTIONS
from .listening import Listening
from .plugin_server import PluginServer
from .transport import dial, why

API_VERSION = "v1beta1"
_TIMEOUT_S = 10.0
_SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

Identity = tuple[int, int]  # inode and time of change of kubelet.sock


class Registrar:
    """The plugin servers of this node and their registration.

    Attributes:
        unheard: resources that the kubelet took and does not listen to; replaced whole.
    """

    def __init__(
        self,
        directory: Path,
        plugins: Callable[[], Sequence[PluginServer]],
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Makes a registrar that has served nothing yet.

        Args:
            directory: the kubelet's device-plugins directory.
            plugins: returns those to be served now, one per resource.
            clock: seconds, never back.
        """
        self.unheard: tuple[str, ...] = ()
        self._clock = clock
        self._listening: dict[str, Listening] = {}
        self._socket = directory / "kubelet.sock"
        self._wanted, self._plugins = plugins, tuple(plugins())
        self._serving: set[str] = set()
        self._registered: dict[str, Identity] = {}
        self._since: dict[str, float] = {}
        self._problems: dict[str, str] = {}  # by resource; logged once, not twice a second
        self._waiting = False

    def look(self) -> bool:
        """Serves and registers where that is needed; returns whether all are registered."""
        self._follow()
        kubelet = self._identity()
        if kubelet is None and not self._serving and not self._waiting:
            event(logging.WARNING, "waiting for the kubelet", socket=self._socket)
            self._waiting = True
        if not self._socket.parent.is_dir():
            return False  # no kubelet was ever here
        if kubelet is None and self._registered:
            event(logging.WARNING, "the kubelet has gone", socket=self._socket)
            self._registered.clear()
        answers = kubelet is not None
        for plugin in self._plugins:
            kubelet = self._identity()  # it may have been restarted since
            renewed = self._registered.get(plugin.resource, kubelet) != kubelet
            if renewed or plugin.resource not in self._serving or not plugin.socket.exists():
                self._registered.pop(plugin.resource, None)
                if not self._serve(plugin):
                    continue
            if kubelet is not None and answers and plugin.resource not in self._registered:
                opened = plugin.streams_opened
                code = self._register(plugin)
                answers = code not in _SILENT
                if code is not None:
                    continue
                self._registered[plugin.resource] = kubelet
                self._since[plugin.resource] = runtime.epoch()
                self._listening[plugin.resource] = Listening(self._clock(), opened)
            elif plugin.resource in self._registered:
                self._look_for_stream(plugin)
        now_s = self._clock()
        self.unheard = tuple(
            resource for resource in self._registered if self._listening[resource].is_missing(now_s)
        )
        return len(self._registered) == len(self._plugins)

    def _look_for_stream(self, plugin: PluginServer) -> None:
        """Registers a plugin again that the kubelet does not listen to, if it is time."""
        listening, now_s = self._listening[plugin.resource], self._clock()
        listening.note(plugin.is_listened_to, plugin.streams_opened, now_s)
        if not listening.is_due(now_s):
            return
        if not listening.tries:
            event(
                logging.WARNING,
                "the kubelet does not listen to a resource that it took, registering again",
                resource=plugin.resource,
            )
        if self._register(plugin) is None:
            listening.note_registration(now_s)
        else:  # it is no more registered than with a kubelet that has gone
            del self._registered[plugin.resource]

    def registrations(self) -> dict[str, float | None]:
        """Returns each resource with when it was registered (epoch), None where it is not."""
        registered = set(self._registered)
        return {
            plugin.resource: self._since.get(plugin.resource)
            if plugin.resource in registered
            else None
            for plugin in self._plugins
        }

    def stop(self) -> None:
        """Ends all servers and removes their sockets."""
        for plugin in self._plugins:
            plugin.stop()
        self._serving.clear()

    def _follow(self) -> None:
        """Ends the plugins that are not wanted any more."""
        before, self._plugins = self._plugins, tuple(self._wanted())
        for plugin in before:
            if plugin not in self._plugins:
                plugin.stop()
                self._serving.discard(plugin.resource)
                self._registered.pop(plugin.resource, None)
                self._problems.pop(plugin.resource, None)
                event(logging.INFO, "not offered any more", resource=plugin.resource)

    def _serve(self, plugin: PluginServer) -> bool:
        """Starts one plugin again; returns whether it serves."""
        self._serving.discard(plugin.resource)
        try:
            plugin.stop()
            plugin.start()
        except (OSError, VgpuError) as error:
            reason = error.message if isinstance(error, VgpuError) else str(error)
            self._say(plugin, "a resource cannot be served, will try again", reason)
            return False
        self._serving.add(plugin.resource)
        return True

    def _say(self, plugin: PluginServer, what: str, reason: str) -> None:
        if reason != self._problems.get(plugin.resource):
            event(logging.WARNING, what, resource=plugin.resource, reason=reason)
        self._problems[plugin.resource] = reason

    def _identity(self) -> Identity | None:
        try:
            status = self._socket.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _register(self, plugin: PluginServer) -> grpc.StatusCode | None:
        """Registers one plugin; returns None, or why the kubelet did not take it."""
        channel = dial(self._socket)
        try:
            stub = rpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            stub.Register(
                pb.RegisterRequest(
                    version=API_VERSION,
                    endpoint=plugin.socket.name,
                    resource_name=plugin.resource,
                    options=OPTIONS,
                ),
                timeout=_TIMEOUT_S,
            )
        except grpc.RpcError as error:
            reason = f"{self._socket}: {why(error)}"
            self._say(plugin, "registration failed, will try again", reason)
            return error.code()
        finally:
            channel.close()
        self._problems.pop(plugin.resource, None)
        event(logging.INFO, "registered", resource=plugin.resource)
        return None
