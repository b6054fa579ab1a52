"""Which addresses a server listens on, on machines with both IP families, and with one of them."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from deviceplugin.http.server import HttpServer
from deviceplugin.scheduler.__main__ import _advertised
from deviceplugin.scheduler.binding.leader import Identity
from deviceplugin.serving.listeners import join_address, split_address, tcp_listener
from libvgpu.errors import UsageError
from support.waiting import PATIENCE_S

#: Runs in a network of its own, in which only the loopback is, with or without IPv6.
_ISOLATED = """
import fcntl, os, socket, struct, sys
uid, gid = os.getuid(), os.getgid()
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
if libc.unshare(CLONE_NEWNET) != 0 and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
    sys.exit(77)
off, only = sys.argv[1] == "off", sys.argv[2] == "only"
try:
    if off:
        for each in ("all", "default", "lo"):
            open(f"/proc/sys/net/ipv6/conf/{each}/disable_ipv6", "w").write("1")
    open("/proc/sys/net/ipv6/bindv6only", "w").write("1" if only else "0")
except OSError:
    sys.exit(77)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
from deviceplugin.serving.listeners import tcp_listener
from libvgpu.errors import UsageError
for address in sys.argv[3:]:
    reached = []
    try:
        listener = tcp_listener(address)
    except UsageError as error:
        print(address, "refused:", error.message)
        continue
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as client:
            try:
                client.connect((host, listener.getsockname()[1]))
                reached.append(host)
            except OSError:
                pass
    listener.close()
    print(address, *reached)
"""


def isolated(ipv6: str, bindv6only: str, *addresses: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _ISOLATED, ipv6, bindv6only, *addresses],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("this machine gives no network of its own, or has no IPv6")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("bindv6only", ["both", "only"])
def test_an_empty_host_is_reached_by_both_families(bindv6only: str) -> None:
    addresses = (":0", "*:0", "[::]:0", "[::1]:0", "127.0.0.1:0", "0.0.0.0:0")
    assert isolated("on", bindv6only, *addresses) == [
        ":0 127.0.0.1 ::1",
        "*:0 127.0.0.1 ::1",
        "[::]:0 127.0.0.1 ::1",
        "[::1]:0 ::1",
        "127.0.0.1:0 127.0.0.1",
        "0.0.0.0:0 127.0.0.1",
    ]


def test_without_ipv6_an_empty_host_is_reached_by_ipv4() -> None:
    found = isolated("off", "both", ":0", "localhost:0", "127.0.0.1:0", "[::1]:0")

    assert found[:3] == [":0 127.0.0.1", "localhost:0 127.0.0.1", "127.0.0.1:0 127.0.0.1"]
    assert "'[::1]:0' cannot be bound: Cannot assign requested address" in found[3]


@pytest.fixture
def no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a kernel does that was started with ipv6.disable=1."""

    class Ipv4Socket(socket.socket):
        def __init__(self, family: int = -1, *more: Any, **named: Any) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
            super().__init__(family, *more, **named)

    monkeypatch.setattr(socket, "socket", Ipv4Socket)


@pytest.mark.usefixtures("no_ipv6")
def test_a_kernel_without_ipv6_listens_by_ipv4() -> None:
    with tcp_listener(":0") as listener:
        assert listener.getsockname()[0] == "0.0.0.0"  # noqa: S104 - what is claimed
    with pytest.raises(UsageError, match=r"'\[::\]:0' cannot be bound: Address family not"):
        tcp_listener("[::]:0")


@pytest.fixture
def pages_port() -> Iterator[int]:
    def hello(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Length", "2")])
        return [b"hi"]

    server, listener = HttpServer(), tcp_listener(":0")
    server.listen(listener, hello)
    server.start()
    yield listener.getsockname()[1]
    server.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_agents_pages_are_served_by_both(pages_port: int, host: str) -> None:
    try:
        client = socket.create_connection((host, pages_port), PATIENCE_S)
    except OSError:
        assert host == "::1" and not os.path.exists("/proc/net/if_inet6")
        pytest.skip("this machine has no IPv6")
    with client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")

        assert client.recv(1000).startswith(b"HTTP/1.0 200")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("9446", "is not HOST:PORT with a port from 0 to 65535"),
        (":65536", "is not HOST:PORT"),
        (":" + "9" * 5000, "is not HOST:PORT"),
        (":" + "0" * 5000, "is not HOST:PORT"),
        ("host:", "is not HOST:PORT"),
        (":-1", "is not HOST:PORT"),
        (":٣", "is not HOST:PORT"),
        ("::1:9446", r"an IPv6 address stands in brackets, for example \[::1\]:9446"),
        ("[::1:9446", "stands in brackets"),
        ("::1]:9446", "stands in brackets"),
        ("[]:9446", "no IPv6 address in its brackets"),
        ("[localhost]:9446", "no IPv6 address in its brackets"),
        ("a..b:0", "cannot be bound"),
        ("x" * 70 + ":0", "cannot be bound"),
        ("a\0b:0", "cannot be bound"),
        ("192.0.2.1:0", "cannot be bound: Cannot assign requested address"),
    ],
)
def test_what_is_no_address_is_refused_with_a_sentence(address: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        tcp_listener(address)


def test_an_address_is_joined_as_it_was_split() -> None:
    for address in ("[fd00::7]:8443", "10.0.0.7:8443", "host.example:1"):
        assert join_address(*split_address(address)) == address


@pytest.mark.parametrize(("pod_ip", "host"), [("fd00::7", "[fd00::7]"), ("10.0.0.7", "10.0.0.7")])
def test_a_replica_is_reached_at_its_pods_address(
    monkeypatch: pytest.MonkeyPatch, pod_ip: str, host: str
) -> None:
    monkeypatch.setenv("POD_IP", pod_ip)
    with tcp_listener(":0") as listener:
        port = listener.getsockname()[1]
        assert _advertised(listener) == f"{host}:{port}"
    held = str(Identity("pod-1", f"{host}:{port}"))
    assert Identity.parsed(held).address == f"{host}:{port}"
