"""Runs the client programs of benchmarks: one, or many that begin at one moment."""

import os
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from libvgpu.errors import VgpuError


def run(command: Sequence[str], environment: Mapping[str, str], timeout_seconds: int) -> str:
    """Runs one client and returns what it printed.

    Raises:
        VgpuError: it failed, or did not end in time.
    """
    try:
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout_seconds
        )
    except subprocess.TimeoutExpired:
        raise VgpuError(f"{command[0]} did not end within {timeout_seconds} s") from None
    _require_success(command, result.returncode, result.stderr)
    return result.stdout


def _require_success(command: Sequence[str], status: int, stderr: str) -> None:
    if status != 0:
        words = " ".join(stderr.split()) or "nothing on stderr"
        raise VgpuError(f"{Path(command[0]).name} ended with status {status}: {words}")


def run_at_once(
    command: Sequence[str], environment: Mapping[str, str], timeout_seconds: int, processes: int
) -> list[str]:
    """Lets clients that are loaded and say so in a first line begin at one moment: stdin ends.

    Were each let go as it is started, most would be done before the last is there. What a client
    times by its own clock begins when it gets a CPU, whose turns the others are not charged for.

    Returns: what each printed after its first line.

    Raises:
        VgpuError: one failed, or did not end in time.
    """
    held, release = os.pipe()
    clients: list[subprocess.Popen[str]] = []
    try:
        with os.fdopen(release, "wb"):
            for _ in range(processes):
                clients.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdin=held,
                        text=True,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                    )
                )
            for client in clients:
                assert client.stdout is not None
                client.stdout.readline()
        outputs = [client.communicate(timeout=timeout_seconds) for client in clients]
    except subprocess.TimeoutExpired:
        raise VgpuError(f"{command[0]} did not end within {timeout_seconds} s") from None
    finally:
        os.close(held)
        for client in clients:
            client.kill()
            client.wait()
    for client, (_, words) in zip(clients, outputs, strict=True):
        _require_success(command, client.returncode, words)
    return [output for output, _ in outputs]


@contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str], timeout_seconds: float
) -> Iterator["subprocess.Popen[str]"]:
    """Yields a client once it has said "ready", and ends it.

    Raises:
        VgpuError: it does not say so in time.
    """
    process = subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        if read_line(process, timeout_seconds) != "ready\n":
            raise VgpuError(f"{' '.join(command)} does not start")
        yield process
    finally:
        process.kill()
        process.communicate()


def tell(process: "subprocess.Popen[str]", order: str) -> None:
    """Gives a client one line.

    Raises:
        VgpuError: it has ended.
    """
    assert process.stdin is not None
    try:
        process.stdin.write(order + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        raise VgpuError(f"a program ended with status {process.wait()}") from None


def read_line(process: "subprocess.Popen[str]", timeout_seconds: float) -> str:
    """Returns the next line that a client prints, empty where none comes in time."""
    assert process.stdout is not None
    waiting = select.poll()  # not select: it knows no descriptor above 1023
    waiting.register(process.stdout, select.POLLIN)
    return process.stdout.readline() if waiting.poll(max(0.0, timeout_seconds) * 1e3) else ""
