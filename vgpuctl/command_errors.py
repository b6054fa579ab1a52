"""What can go wrong only on the command line: the command itself cannot be started.

The statuses are those of the shell, so a script sees the same with and without ``vgpuctl run``.
"""

from libvgpu.errors import VgpuError


class CommandNotFoundError(VgpuError):
    """No file of that name; exit status 127."""

    exit_status = 127


class CommandNotExecutableError(VgpuError):
    """A file of that name that the kernel does not run; exit status 126."""

    exit_status = 126
