"""The stand-in for a container runtime: from a pod's container and the plugins' merged answer to
the order that a process is started with.

Where mount namespaces can be had (as root), the container gets a root file system of its own
(`rootfs`), its user, and exactly the mounts and devices of the answer at their container paths.
Elsewhere the process runs on the host's files: container paths in its command and environment are
*translated* to host paths, /etc/ld.so.preload becomes LD_PRELOAD, and VGPU_DIR names the directory
of `limits` and `usage`. What could not be honoured is in `Plan.notes`, never silent.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.testing import ContainerManifest, PodManifest, RunOptions
from libvgpu.errors import VgpuError
from libvgpu.sim import Machine

from .image import Image
from .launch import Order
from .rootfs import Bind
from .visible import uuids_of, visible

MACHINE_DIRECTORY = "/run/vgpu-sim"
_PRELOAD_FILE = "/etc/ld.so.preload"
_LIMITS_FILE = "/run/vgpu/limits"
_ENTRY_POINT = ("python3", "/app/client.py")  # of the sample's image
_PROBE = (
    "from vgpuctl.demo import syscalls as s\n"
    "s.unshare(s.CLONE_NEWNS | s.CLONE_NEWIPC)\n"
    "s.mount('', '/', flags=s.MS_REC | s.MS_PRIVATE)\n"
    "s.mount('tmpfs', '/tmp', 'tmpfs')\n"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How one container will be started."""

    order: Order
    notes: tuple[str, ...]


def can_isolate(env: Mapping[str, str]) -> bool:
    """Tells whether this process may make mount namespaces (root with CAP_SYS_ADMIN)."""
    if os.geteuid() != 0:
        return False
    probe = subprocess.run(
        [sys.executable, "-c", _PROBE], env=dict(env), capture_output=True, check=False, timeout=30
    )
    return probe.returncode == 0


def plan(
    pod: PodManifest,
    container: ContainerManifest,
    options: RunOptions,
    image: Image,
    machine: Path,
    mountpoint: Path | None,
) -> Plan:
    """Returns the order for one container.

    Args:
        pod: its pod.
        container: the manifest of the container.
        options: the plugins' merged answer.
        image: what the container starts from.
        machine: directory of the simulated machine, which the driver in the image speaks to.
        mountpoint: an empty directory to compose the root on; None translates paths instead.

    Raises:
        VgpuError: a host path or a GPU of the answer is missing.
    """
    for path in [m.host_path for m in options.mounts] + [d.host_path for d in options.devices]:
        if not os.path.exists(path):
            raise VgpuError(f"{pod.name}/{container.name}: the agent mounts {path}: not there")
    binds = [
        *image.binds,
        Bind(str(machine), MACHINE_DIRECTORY, read_only=False),
        *(Bind(m.host_path, m.container_path, m.read_only) for m in options.mounts),
        *(Bind(d.host_path, d.container_path, "w" not in d.permissions) for d in options.devices),
    ]
    env = {**image.env, "HOSTNAME": pod.name, "VGPU_SIM_MACHINE": MACHINE_DIRECTORY}
    env |= options.envs
    env |= container.env  # a pod's own wins over a plugin's
    seen = visible(env, options)
    if seen.names is not None:
        env["VGPU_SIM_VISIBLE"] = ",".join(
            uuids_of(seen.names, lambda: [gpu.uuid for gpu in Machine.open(machine).devices])
        )
    notes = [f"CDI device {name} left out (no CDI files here)" for name in seen.left_out]
    argv = (*(container.command or _ENTRY_POINT), *container.args)
    name = f"{pod.name}/{container.name}"
    if mountpoint is None:
        return _translated(name, argv, env, binds, container, notes)
    uid = container.run_as_user or 0
    gid = container.run_as_group if container.run_as_group is not None else uid
    order = Order(
        name=name,
        parent_pid=0,
        argv=argv,
        env=env,
        mountpoint=str(mountpoint),
        binds=(*image.python, *binds),
        accounts=_accounts(uid, gid),
        host_ipc=pod.host_ipc,
        uid=uid,
        gid=gid,
    )
    return Plan(order, tuple(notes))


def _accounts(uid: int, gid: int) -> dict[str, str]:
    passwd = "root:x:0:0:root:/root:/bin/sh\n"  # noqa: S105 - a file without passwords
    group = "root:x:0:\n"
    if uid:
        passwd += f"sample:x:{uid}:{gid}::/tmp:/bin/sh\n"
    if gid:
        group += f"sample:x:{gid}:\n"
    return {"passwd": passwd, "group": group}


def _translated(
    name: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    binds: Sequence[Bind],
    container: ContainerManifest,
    notes: Sequence[str],
) -> Plan:
    hosts = {bind.target: bind.source for bind in binds}
    env = {key: translate(value, hosts) for key, value in env.items()}
    if _PRELOAD_FILE in hosts:
        env["LD_PRELOAD"] = translate(Path(hosts[_PRELOAD_FILE]).read_text().strip(), hosts)
    if _LIMITS_FILE in hosts:
        env["VGPU_DIR"] = os.path.dirname(hosts[_LIMITS_FILE])
    said = [*notes, "paths translated (no mount namespace)"]
    if container.run_as_user not in (None, os.getuid()):
        said.append(f"runs as user {os.getuid()}, not {container.run_as_user}")
    order = Order(
        name=name,
        parent_pid=0,
        argv=tuple(translate(word, hosts) for word in argv),
        env=env,
    )
    return Plan(order, tuple(said))


def translate(text: str, hosts: Mapping[str, str]) -> str:
    """Returns ``text`` with each container path, or one below it, as the host's path.

    Args:
        text: a path, a list of paths, or a word that holds one.
        hosts: container path to host path; the longest that fits is taken.
    """
    if not hosts:
        return text
    longest_first = sorted(hosts, key=len, reverse=True)
    pattern = "|".join(re.escape(path) for path in longest_first)
    return re.sub(rf"(?<![\w./-])({pattern})(?![\w.-])", lambda found: hosts[found[1]], text)
