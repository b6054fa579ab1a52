"""An agent whose answers nobody understands is a sentence, whatever the verb."""

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu.limits import DeviceLimit
from support.made_slices import make_slice
from support.suite.own_folder import SHORT
from vgpuctl.__main__ import main


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


ANSWERS = {
    "no JSON": answer(b"hello"),
    "a list": answer(b"[]"),
    "null": answer(b"null"),
    "other letters": answer(b"\xff\xfe"),
    "no end": answer(b"[" * 100_000),
    "half of a metric": answer(b'a_metric{label="x" 1\n'),
    "a status that is none": answer(b"{}", "999 Odd"),
    "a status without a name": answer(b"{}", "299 Odd"),
    "its own error": answer(b"[]", "500 Oops"),
    "less than promised": b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{",
    "no HTTP": b"\xff\xfe\x00\r\n\r\n",
    "nothing": b"",
}
VERBS = (
    "ps", "status", "describe pod", "metrics", "metrics -o json", "set pod --core 10",
    "set pod --clear -o json", "config show", "doctor", "support-bundle --force {folder}/b.tar.gz",
)  # fmt: skip


@pytest.fixture(params=ANSWERS, ids=lambda name: name.replace(" ", "-"))
def odd(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A run directory with a slice, and an agent that gives everybody the same answer."""
    with (
        tempfile.TemporaryDirectory(prefix="vgpu-", dir=SHORT) as name,
        socket.socket(socket.AF_UNIX) as agent,
    ):
        folder = Path(name)
        make_slice(folder, "pod", DeviceLimit("GPU-x", 1 << 30))
        agent.bind(f"{name}/agent.sock")
        agent.listen(20)
        server = threading.Thread(target=serve, args=(agent, ANSWERS[request.param]), daemon=True)
        server.start()
        yield folder
        agent.shutdown(socket.SHUT_RDWR)
        server.join()


def serve(agent: socket.socket, said: bytes) -> None:
    while True:
        try:
            client, _ = agent.accept()
        except OSError:
            return
        with client:
            client.recv(1 << 16)
            client.sendall(said)


def test_no_answer_ends_in_an_error_of_vgpuctl_itself(
    odd: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = {}
    for verb in VERBS:
        words = [word.format(folder=odd) for word in verb.split()]
        places = [f"--run-dir={odd}", f"--state-dir={odd}/s", f"--kubelet-dir={odd}/k"]
        status = main([*words, *places])
        shown = capfd.readouterr()
        said = shown.out + shown.err
        if status not in (0, 1) or "error of vgpuctl itself" in said or "Traceback" in said:
            wrong[verb] = said
    assert wrong == {}
