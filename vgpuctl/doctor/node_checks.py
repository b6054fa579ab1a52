"""Checks of the machine itself: NVML, run directory, shim. Pure.

Each takes what was seen, or the error in its place, and says what that means and how to fix it.
"""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from libvgpu.counting import counted
from libvgpu.errors import VgpuError
from libvgpu.sizes import format_size

from .finding import RESET_GPU, Finding, fail, ok, warn

#: What the run directory should have room for; as many slices as the kubelet admits pods.
SLICES_WANTED = 110
ROOT = 0
AS_ROOT = "run it as root: sudo vgpuctl doctor"
INSTALL_DRIVER = (
    "install the NVIDIA driver, or try a simulated GPU: vgpuctl sim run h100 -- COMMAND"
)


def nvml(names: Sequence[str] | None, problem: str) -> Finding:
    """Checks NVML.

    Args:
        names: of the GPUs it lists, None where it does not answer.
        problem: why it does not, or of which GPUs it does not, as sentences.
    """
    if names is None:
        return fail("nvml", problem, INSTALL_DRIVER)
    if problem:
        return fail("nvml", problem, RESET_GPU)
    if not names:
        return fail(
            "nvml", "NVML answers and lists no GPU", "check whether lspci and dmesg show one"
        )
    return ok("nvml", f"{counted(len(names), 'GPU')}: {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The run directory as it was seen.

    Attributes:
        filesystem: its type, for example ``tmpfs``; empty where that is not known.
        mode: permission bits.
        owner: user id.
        free_bytes: what an ordinary user may still write.
        slice_bytes: what one slice takes.
    """

    path: Path
    filesystem: str
    mode: int
    owner: int
    free_bytes: int
    slice_bytes: int


def run_directory(seen: RunDirectory, user: int) -> list[Finding]:
    """Checks file system, modes and room of the run directory.

    Args:
        user: user id of this process.
    """
    name, path = "run directory", seen.path
    found = []
    if seen.filesystem and seen.filesystem != "tmpfs":
        found.append(
            warn(
                name,
                f"{path} is on {seen.filesystem}, so its files touch a disk and outlive a reboot",
                f"mount -t tmpfs -o mode=0700,size=64m tmpfs {path}",
            )
        )
    if seen.owner not in (user, ROOT) and user != ROOT:
        found.append(
            fail(
                name,
                f"{path} belongs to user {seen.owner}, not to this one ({user})",
                "choose another with --run-dir",
            )
        )
    others = stat.S_IMODE(seen.mode) & 0o077
    if others:
        say = fail if others & 0o022 else warn
        what = "write" if others & 0o022 else "look"
        found.append(
            say(
                name,
                f"{path} has mode {stat.S_IMODE(seen.mode):04o}: other users may {what}",
                f"chmod 0700 {path}",
            )
        )
    slices = seen.free_bytes // max(1, seen.slice_bytes)
    room = f"{format_size(seen.free_bytes)} are free on {path}, room for {slices} slices"
    more = "make the file system larger (a tmpfs: mount -o remount,size=64m), or see who fills it"
    if slices == 0:
        found.append(fail(name, room, more))
    elif slices < SLICES_WANTED:
        found.append(warn(name, f"{room} of {SLICES_WANTED}", more))
    if not found:
        found.append(
            ok(name, f"{path} is {seen.filesystem or 'there'}, 0700, {room.partition(',')[0]}")
        )
    return found


def no_run_directory(path: Path, problem: OSError) -> Finding:
    """Says why the run directory could not be seen."""
    if isinstance(problem, PermissionError):
        return warn("run directory", f"{path} may not be seen by this user", AS_ROOT)
    return warn(
        "run directory",
        f"{path} is not there: {problem.strerror}",
        "the agent, or the first vgpuctl run, makes it",
    )


def filesystem_of(device: int, mounts: str) -> str:
    """Returns the type of a mounted file system, empty where it is not listed.

    Args:
        device: ``st_dev`` of a file on it.
        mounts: text of ``/proc/self/mountinfo``.
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.split("\n"):
        mount, _, rest = line.partition(" - ")
        if mount.split()[2:3] == [wanted]:
            return rest.split()[0]
    return ""


def shim(build: str | VgpuError, installed: bool | None, state_dir: Path, agent: bool) -> Finding:
    """Checks the library that containers preload.

    Args:
        build: its build id, or why it has none.
        installed: it lies under ``state_dir`` whole; None where that may not be seen.
        agent: an agent answered, so it should.
    """
    if isinstance(build, VgpuError):
        return fail("shim", build.message, build.hint or "install the package again")
    where = state_dir / "lib" / build
    if installed:
        return ok("shim", f"build {build[:12]} is installed in {where.parent}")
    if installed is None:
        return warn("shim", f"{where} may not be seen by this user", AS_ROOT)
    if agent:
        return fail(
            "shim",
            f"build {build[:12]} is not whole in {where}, so no container can start with it",
            "restart the agent: it installs its build",
        )
    return warn(
        "shim",
        f"build {build[:12]} is built; no agent has installed it in {state_dir}",
        "not needed for vgpuctl run; the agent installs it when it starts",
    )


def entry_points(notes: Sequence[tuple[int, str]], slice_count: int) -> list[Finding]:
    """Warns of a driver that hands out more than this build knows; nothing to say where none does.

    Args:
        notes: of each process that was handed such an entry point: how many, and the name of one,
            empty where it is not known.
        slice_count: how many slices these processes belong to.
    """
    if not notes:
        return []
    name = next((name for _, name in notes if name), "")
    such = f", {name} among them" if name else ""
    return [
        warn(
            "entry-points",
            f"the driver answered {len(notes)} processes of {slice_count} slices with entry points "
            f"that their library does not know (up to {max(count for count, _ in notes)} a "
            f"process{such}): these pass and are not held to the slice",
            "update to a release that knows this driver, or use an older driver",
        )
    ]
