"""Pods of agents in a real API server, and what answers behind them.

They answer where agents of the chart do, at a loopback, and one kubelet of all nodes leads there.
"""

import json
import socket
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from deviceplugin.pages.slices import NodeGpu, NodeSlices
from libvgpu.allocation_dirs import AllocationMeta
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.sharing_mode import Mode
from libvgpu.slices import Slice
from libvgpu.usage import ContainerUsage, DeviceUsage, ProcessUsage
from support import ROOT
from support.cluster import forwarded_port
from support.cluster.control_plane import ControlPlane
from support.waiting import wait_until

NAMESPACE = "vgpu-system"
GIB = 1 << 30
_NODES, _PODS = "/api/v1/nodes", f"/api/v1/namespaces/{NAMESPACE}/pods"
_LABELS = {"app.kubernetes.io/name": "vgpu", "app.kubernetes.io/component": "agent"}


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        pass  # who asked went away


class _Served:
    """Answers at a port of the loopback until it is stopped."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = _Server(("127.0.0.1", 0), handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def stop(self) -> None:
        """Answers nothing any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class StandInKubelet(_Served):
    """Forwards ports, as a kubelet and its runtime do; all pods have this machine's loopback."""

    def __init__(self, plane: ControlPlane) -> None:
        """Listens with the API server's certificate, which nobody looks at."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                port = int(self.path.partition("?port=")[2])
                forwarded_port.serve(self, port, lambda head: _answers_of(port, head))

            def log_message(self, format: str, *args: Any) -> None:
                pass

        super().__init__(Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(plane.certificate, plane.key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread.start()


def _answers_of(port: int, head: bytes) -> Iterator[bytes]:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head)
        while piece := connection.recv(1 << 16):
            yield piece


class StandInAgent(_Served):
    """Answers paths with what it was given; everything else is not there.

    Attributes:
        pages: content by path; a test may change it at any moment.
        asked: how often each path was read, also while the answer is held.
        hold: nothing is answered while it is not set.
    """

    def __init__(self, pages: Mapping[str, bytes]) -> None:
        """Answers from now on."""
        self.pages, self.asked = dict(pages), dict[str, int]()
        self.hold = threading.Event()
        self.hold.set()
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                agent.asked[self.path] = agent.asked.get(self.path, 0) + 1
                agent.hold.wait()
                content = agent.pages.get(self.path)
                body = b"no such page; there are: /metrics\n" if content is None else content
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        super().__init__(Handler)
        self._thread.start()

    def stop(self) -> None:
        """Answers nothing any more."""
        self.hold.set()
        super().stop()


def plugin(directory: Path) -> Path:
    """Writes a program ``kubectl-vgpu``, which kubectl finds on PATH; returns its directory."""
    directory.mkdir()
    program = directory / "kubectl-vgpu"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m vgpuctl.cluster "$@"\n'
    )
    program.chmod(0o755)
    return directory


def make_pod(
    plane: ControlPlane, kubelet: StandInKubelet, node: str, port: int, phase: str = "Running"
) -> None:
    """Makes a node and the pod of its agent."""
    if plane.find(f"{_NODES}/{node}") is None:
        plane.apply(_NODES, {"metadata": {"name": node}})
        where = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
        }
        plane.patch(f"{_NODES}/{node}/status", {"status": where})
    name = f"vgpu-agent-{node}"
    ports = [{"name": "pages", "containerPort": port}]
    plane.apply(
        _PODS,
        {
            "metadata": {"name": name, "labels": _LABELS},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "agent", "image": "vgpu", "ports": ports}],
            },
        },
    )
    plane.patch(f"{_PODS}/{name}/status", {"status": {"phase": phase}})


def remove_pods(plane: ControlPlane) -> None:
    """Removes all pods of agents."""
    for pod in (plane.find(_PODS) or {"items": []})["items"]:
        plane.delete(f"{_PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)
    wait_until(lambda: not (plane.find(_PODS) or {})["items"], "the pods are gone")


def kubeconfig(plane: ControlPlane, path: Path, token: str, namespace: str = "default") -> Path:
    """Writes a kubeconfig for who has a token; returns its path."""
    place = {
        "server": f"https://127.0.0.1:{plane.port}",
        "certificate-authority": str(plane.certificate),
    }
    context = {"cluster": "here", "user": "me", "namespace": namespace}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "here", "cluster": place}],
                "users": [{"name": "me", "user": {"token": token}}],
                "contexts": [{"name": "here", "context": context}],
            }
        )
    )
    return path


def page(node: str, *pods: str, at_s: float = 1000.0, gpu_time_ns: int = 0) -> bytes:
    """Returns a page of slices of a node with one GPU and a running slice for each pod.

    Args:
        pods: NAMESPACE/NAME.
        at_s: when it was read, on the node's clock.
        gpu_time_ns: that each slice used until then.
    """
    uuid = f"GPU-{node}"
    gpu = NodeGpu(0, uuid, "Tesla T4", 16 * GIB, None, False, "driver")
    slices = tuple(_slice(f"a-{node}-{n}", pod, uuid, gpu_time_ns) for n, pod in enumerate(pods))
    return msgspec.json.encode(NodeSlices(node, 1.7e9, at_s, (gpu,), slices))


def _slice(allocation_id: str, pod: str, uuid: str, gpu_time_ns: int) -> Slice:
    namespace, _, name = pod.partition("/")
    limit = DeviceLimit(uuid, 4 * GIB, core_percent=30)
    device = DeviceUsage(
        0, GIB, {"plain": GIB}, GIB, 10, gpu_time_ns, 0, 0, (0,) * 8, False, 25, 0, None
    )
    process = ProcessUsage(0, 7, 1, "python", True, False, (device,))
    return Slice(
        AllocationMeta(allocation_id, "vgpu", "kubelet", 1.7e9, namespace, name, "c"),
        ContainerLimits(allocation_id, Family.VGPU, (limit,)),
        ContainerUsage(allocation_id, (device,), (process,)),
        "running",
        modes=(Mode.FREE,),
    )
