"""What a tenant does to the files that are mounted for it: programs of its own, on the real files.

Each says ``ready`` once it has done it, and does as it does until it is ended.
"""

import subprocess
import sys
from pathlib import Path

_LEASE = """
import fcntl, os, signal, sys
path, kind, renew = sys.argv[1], getattr(fcntl, sys.argv[2]), sys.argv[3]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
descriptor = os.open(path, os.O_RDONLY)
try:
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, kind)
except OSError as error:
    print("refused:", error.strerror, flush=True)
    sys.exit()
print("ready", flush=True)
while True:
    sys.stdin.readline() if renew == "told" else signal.sigwait({signal.SIGIO})
    if renew:
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, kind)
        except OSError as error:
            print("refused:", error.strerror, flush=True)
            sys.exit()
"""


_LOCKS = """
import fcntl, os, sys, time
readable = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(readable, fcntl.LOCK_EX)
fcntl.lockf(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_SH)
print("ready", flush=True)
sys.stdin.read()
"""


class Hostile:
    """A program that runs until the context ends.

    Attributes:
        said: its first word.
    """

    def __init__(self, code: str, *arguments: object) -> None:
        self.program = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = self.word()

    def word(self) -> str:
        """Returns what it says next, empty where it has ended."""
        assert self.program.stdout
        return self.program.stdout.readline().strip()

    def go_on(self) -> None:
        """Has it do the next thing."""
        assert self.program.stdin
        self.program.stdin.write("\n")
        self.program.stdin.flush()

    def __enter__(self) -> "Hostile":
        return self

    def __exit__(self, *_: object) -> None:
        self.program.kill()
        self.program.communicate()


def lease(path: Path, kind: str = "F_RDLCK", *, renew: str = "") -> Hostile:
    """Takes a lease on a file.

    Args:
        kind: ``F_RDLCK`` or ``F_WRLCK``.
        renew: gives it up and takes the next one at once: ``broken``, as soon as somebody opens the
            file; ``told``, at each `go_on`.
    """
    return Hostile(_LEASE, path, kind, renew)


def lock(path: Path) -> Hostile:
    """Takes all the locks on a file that somebody who can only read it may have."""
    return Hostile(_LOCKS, path)
