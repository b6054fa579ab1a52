"""A crowd that finishes no call: ``python -m benchmarks.unfinished_calls PORT RATE ADDRESSES``.

So many connections a second, from so many addresses of this machine, until it is killed. They take
turns: one says nothing, one stops within its hello, one after it (the server has answered then, and
waits), one sends a byte now and then. Once a second it prints how many there were.
"""

import contextlib
import itertools
import resource
import socket
import ssl
import sys
import time
from collections import deque

_KEPT_S, _BYTE_EVERY_S = 10.0, 0.5


def hello() -> bytes:
    """Returns the first message of a client's handshake."""
    out = ssl.MemoryBIO()
    context = ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


def _connect(source: str, port: int) -> socket.socket:
    one = socket.socket()
    one.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: ports by the other end
    one.bind((source, 0))
    one.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        one.connect(("127.0.0.1", port))
    return one


def main(port: int, rate: float, addresses: int) -> None:
    """Goes on until it is killed."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    greeting = hello()
    says = itertools.cycle([b"", greeting[:40], greeting, greeting[:1]])
    sources = itertools.cycle([f"127.0.{n // 250 + 1}.{n % 250 + 1}" for n in range(addresses)])
    unsaid: deque[tuple[float, socket.socket, bytes]] = deque()
    slow: deque[tuple[float, socket.socket]] = deque()
    kept: deque[tuple[float, socket.socket]] = deque()
    began_s = time.monotonic()
    count = told = 0
    while True:
        now_s = time.monotonic()
        while count < rate * (now_s - began_s):
            one = _connect(next(sources), port)
            unsaid.append((now_s + 0.01, one, next(says)))
            kept.append((now_s + _KEPT_S, one))
            count += 1
            if len(kept) > most - 100:
                kept.popleft()[1].close()
        while unsaid and unsaid[0][0] <= now_s:
            _, one, words = unsaid.popleft()
            with contextlib.suppress(OSError):
                one.send(words)
            if len(words) == 1:
                slow.append((now_s + _BYTE_EVERY_S, one))
        while slow and slow[0][0] <= now_s:
            one = slow.popleft()[1]
            with contextlib.suppress(OSError):
                one.send(b"\x03")
                slow.append((now_s + _BYTE_EVERY_S, one))
        while kept and kept[0][0] <= now_s:
            kept.popleft()[1].close()
        if int(now_s - began_s) > told:
            told = int(now_s - began_s)
            print(count, flush=True)
        time.sleep(0.002)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
