"""The command line of ``nvidia-cuda-mps-control``: starts a daemon, or talks to one.

``-d`` starts the daemon in the background, ``-f`` in the foreground; without either, commands are
read from stdin, sent to the daemon of the pipe directory and its answers printed. An agent asks
several times a second, so a tool that only asks loads little.
"""

import os
import sys

from .wire import TOOL, MpsControlError, ask

DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's default
DEFAULT_LOG_DIRECTORY = "/var/log/nvidia-mps"
USAGE = f"""\
usage: {TOOL} [-d | -f] [-multiuser-server] [-v] [-h]
  -d                 start the daemon in the background
  -f                 start the daemon in the foreground
  -multiuser-server  one server for the clients of all users
  -v                 print the version
  -h                 print this
Without -d and -f, commands are read from stdin.
"""
VERSION = "CUDA MPS Control binary version: 13000 (simulated)"


def _talk(directory: str) -> int:
    status = 0
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            answer = ask(directory, line.strip())
        except MpsControlError as error:
            print(f"{TOOL}: {error}", file=sys.stderr)
            status = 1
            continue
        if answer:
            print(answer, flush=True)
        if line.split()[0] == "quit":
            break
    return status


def main(arguments: list[str]) -> int:
    """Runs the tool; returns its exit status."""
    directory = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or DEFAULT_PIPE_DIRECTORY
    unknown = [a for a in arguments if a not in ("-d", "-f", "-multiuser-server", "-v", "-h")]
    if unknown:
        print(
            f"{TOOL}: unknown option {unknown[0]!r}: use -d, -f, -multiuser-server, -v, -h",
            file=sys.stderr,
        )
        return 2
    if "-h" in arguments:
        print(USAGE, end="")
        return 0
    if "-v" in arguments:
        print(VERSION)
        return 0
    try:
        if "-d" in arguments or "-f" in arguments:
            from .start import start  # what a daemon needs takes longer to load than to ask

            log_directory = os.environ.get("CUDA_MPS_LOG_DIRECTORY") or DEFAULT_LOG_DIRECTORY
            background, multiuser = "-d" in arguments, "-multiuser-server" in arguments
            return start(directory, log_directory, background, multiuser)
        return _talk(directory)
    except MpsControlError as error:
        print(f"{TOOL}: {error}", file=sys.stderr)
        return 1
