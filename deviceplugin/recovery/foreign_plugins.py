"""Watches for another device plugin of the same GPUs.

What is one, `policy.devices.foreign_plugins` says.

`look` is of the agent's loop. What was seen twice running is told, in the log and as an Event of
the Node, since the kubelet's file may still name a resource that ended, ours or another's, until it
is written the next time.
"""

import logging
import os
import socket
from collections.abc import Callable, Collection
from pathlib import Path

from deviceplugin.log import event
from deviceplugin.model.notices import EventReason, node_notice
from deviceplugin.policy.devices.foreign_plugins import (
    DevicePlugins,
    ForeignPlugins,
    foreign_plugins,
)

from .kubelet_checkpoint import NAME, registered_devices

_CONNECT_TIMEOUT_S = 0.2
_KUBELET = "kubelet.sock"
#: Nodes have a handful; each costs a connection.
_MOST_SOCKETS = 64
_ADVICE = (
    "switch it off on this node, for NVIDIA's with the GPU Operator by the label "
    "nvidia.com/gpu.deploy.device-plugin=false"
)


def device_plugins(directory: Path) -> DevicePlugins:
    """Returns what the kubelet's directory of device plugins tells now.

    Raises:
        OSError: it cannot be read.
    """
    names = sorted(n for n in os.listdir(directory) if n.endswith(".sock") and n != _KUBELET)
    sockets = tuple(n for n in names[:_MOST_SOCKETS] if _answers(directory / n))
    try:
        registered = registered_devices(directory / NAME)
    except FileNotFoundError:
        registered = {}
    return DevicePlugins(registered, sockets)


class ForeignPluginWatch:
    """Tells once when another plugin comes, and once when it has gone."""

    def __init__(
        self,
        directory: Path,
        ours: Callable[[], Collection[str]],
        gpus: Callable[[], Collection[str]],
    ) -> None:
        """Looks at nothing yet.

        Args:
            directory: the kubelet's device-plugins directory.
            ours: returns the resources that this agent serves.
            gpus: returns the UUIDs of the GPUs that it serves.
        """
        self._directory, self._ours, self._gpus = directory, ours, gpus
        self._seen = self._told = ForeignPlugins()
        self._once_ours: set[str] = set()

    def look(self) -> None:
        """Looks once; what cannot be read changes nothing."""
        try:
            seen = device_plugins(self._directory)
        except (OSError, ValueError):
            return  # the kubelet's check in doctor and the registrar say so
        # The kubelet's file may name what we have served until a moment ago.
        self._once_ours.update(self._ours())
        found = foreign_plugins(seen, self._once_ours, self._gpus())
        again, self._seen = found == self._seen, found
        if not again or found == self._told:
            return
        if found:
            text = f"{found.sentence()}; {_ADVICE}"
            notice = node_notice(EventReason.FOREIGN_DEVICE_PLUGIN, text)
            event(logging.WARNING, text, notice=notice)
        else:
            event(logging.INFO, "no other device plugin hands out the same GPUs any more")
        self._told = found


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_TIMEOUT_S)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True
