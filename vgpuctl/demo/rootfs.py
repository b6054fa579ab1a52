"""A container's root file system, composed in a private mount namespace.

A fresh tmpfs becomes the root. The host's system directories (/usr, /bin, /lib…) are bound
read-only or their links repeated; /etc is new and small, made of what programs read; /proc, /sys
and a few device nodes are the host's; everything else is exactly the binds asked for, under new
parents that every user may enter. So a process of another user reaches a tree that lies below a
directory only root can enter, and the host's /etc is never touched. The kernel drops all mounts
with the last process of the namespace.

Runs in the launcher, a process with one thread.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import syscalls

_SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC_COPIED = ("ld.so.cache", "ld.so.conf", "nsswitch.conf", "hosts", "resolv.conf", "localtime")
_ETC_BOUND = ("ld.so.conf.d", "alternatives", "ssl")
_DEVICE_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_DIRECTORY_MODE = 0o755
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the container's own
_STICKY_MODE = 0o1777


@dataclass(frozen=True, slots=True)
class Bind:
    """One bind mount: ``source`` on the host, ``target`` absolute in the container."""

    source: str
    target: str
    read_only: bool = True


def enter(
    mountpoint: str, binds: Sequence[Bind], accounts: Mapping[str, str], host_ipc: bool
) -> None:
    """Moves this process into a new root.

    Args:
        mountpoint: an existing directory; the tmpfs is mounted on it in the new namespace only.
        binds: in order; a later one may lie below an earlier one that is writable.
        accounts: file name in /etc to content, for passwd and group.
        host_ipc: keep the host's System V IPC and /dev/shm.

    Raises:
        OSError: a mount was refused; the namespace is half made, so the process must end.
    """
    syscalls.unshare(syscalls.CLONE_NEWNS | (0 if host_ipc else syscalls.CLONE_NEWIPC))
    syscalls.mount("", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("tmpfs", mountpoint, "tmpfs", syscalls.MS_NOSUID, "mode=0755")
    root = Path(mountpoint)
    for directory in _SYSTEM_DIRECTORIES:
        _repeat_system_directory(root, Path(directory))
    _compose_etc(root, accounts)
    _compose_dev(root, host_ipc)
    for directory in ("/proc", "/sys"):
        _bind(root, Bind(directory, directory, read_only=directory == "/sys"))
    for directory in ("/tmp", "/var/tmp"):  # noqa: S108 - the container's own
        made = _directory(root, directory)
        made.chmod(_STICKY_MODE)
    for entry in binds:
        _bind(root, entry)
    _make_root(mountpoint)


def _repeat_system_directory(root: Path, host: Path) -> None:
    if host.is_symlink():
        (root / host.name).symlink_to(os.readlink(host))
    elif host.is_dir():
        _bind(root, Bind(str(host), str(host)))


def _compose_etc(root: Path, accounts: Mapping[str, str]) -> None:
    etc = _directory(root, "/etc")
    for name in _ETC_COPIED:
        source = Path("/etc", name)
        if source.is_file():
            shutil.copyfile(source, etc / name)
            (etc / name).chmod(0o644)
    for name in _ETC_BOUND:
        if Path("/etc", name).is_dir():
            _bind(root, Bind(f"/etc/{name}", f"/etc/{name}"))
    for name, content in accounts.items():
        (etc / name).write_text(content)
        (etc / name).chmod(0o644)


def _compose_dev(root: Path, host_ipc: bool) -> None:
    dev = _directory(root, "/dev")
    for name in _DEVICE_NODES:
        if Path("/dev", name).exists():
            _bind(root, Bind(f"/dev/{name}", f"/dev/{name}", read_only=False))
    for name, target in (
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ):
        (dev / name).symlink_to(target)
    if host_ipc and Path(_SHARED_MEMORY).is_dir():
        _bind(root, Bind(_SHARED_MEMORY, _SHARED_MEMORY, read_only=False))
    else:
        shm = _directory(root, _SHARED_MEMORY)
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("tmpfs", str(shm), "tmpfs", flags, "mode=1777")


def _bind(root: Path, entry: Bind) -> None:
    target = root / entry.target.lstrip("/")
    if Path(entry.source).is_dir():
        _directory(root, entry.target)
    elif not target.exists():
        _directory(root, str(Path(entry.target).parent))
        target.touch(0o644)
    syscalls.bind(entry.source, str(target), entry.read_only)


def _directory(root: Path, path: str) -> Path:
    """Returns ``path`` in the new root, made with parents that every user may enter."""
    made = root
    for part in Path(path).parts[1:]:
        made = made / part
        if not made.exists():
            made.mkdir()
            made.chmod(_DIRECTORY_MODE)  # whatever the umask
    return made


def _make_root(mountpoint: str) -> None:
    os.chdir(mountpoint)
    try:
        syscalls.pivot_root_here()  # the old root now lies on top of the new one
        syscalls.unmount(".")
    except OSError:  # the host's root is an initial ramdisk, which cannot be pivoted away
        syscalls.mount(".", "/", flags=syscalls.MS_MOVE)
        os.chroot(".")
    os.chdir("/")
