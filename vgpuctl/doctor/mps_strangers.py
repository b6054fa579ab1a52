"""Checks for MPS daemons that nobody of ours started. `look` goes and sees, `judge` is pure.

A GPU has one MPS server: where a stranger's serves it, ours cannot, and its clients are outside of
every slice. Processes of pods are not asked: what is in their memory is theirs to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.mps.state_files import mps_directory, read_state
from deviceplugin.watch.procfs import read_process
from libvgpu.errors import MpsError

from .finding import Finding, warn
from .slice_processes import pids

_CHECK = "mps"
#: What the kernel keeps of nvidia-cuda-mps-control and nvidia-cuda-mps-server.
_COMMAND = "nvidia-cuda-mps"
_DEFAULT_PIPE = "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's default
_VARIABLE = b"CUDA_MPS_PIPE_DIRECTORY="
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Stranger:
    """A daemon or server of MPS.

    Attributes:
        pipe: its pipe directory; empty where this user may not see it, or where a pod says it.
        pod_uid: of the pod that it runs in; empty for none.
    """

    pid: int
    pipe: str
    pod_uid: str = ""


def look(run_dir: Path, proc: Path) -> list[Finding]:
    """Looks for them among all processes of the node."""
    state, is_told = None, True
    try:
        state = read_state(run_dir)
    except MpsError:
        is_told = False  # the check of each GPU's daemon says why
    served = state.gpus.values() if state else ()
    ours = {pid for gpu in served for pid in (gpu.daemon, gpu.server)}
    found = []
    for pid in pids(proc):
        if pid in ours:
            continue
        process = read_process(pid, proc)
        if process is None or process.command != _COMMAND:
            continue
        if process.pod is not None:
            found += [Stranger(pid, "", process.pod.pod_uid)] if is_told else []
            continue
        pipe = _pipe(proc / str(pid) / "environ")
        # Of a runner of ours, or of a vgpuctl run in this directory, though not in `state` (yet).
        if not pipe.startswith((f"{mps_directory(run_dir)}/", f"{run_dir}/run-mps")):
            found.append(Stranger(pid, pipe))
    return judge(found)


def judge(strangers: Sequence[Stranger]) -> list[Finding]:
    """Tells of them, one finding for each pipe directory."""
    groups: dict[tuple[str, str], list[int]] = {}
    for each in strangers:
        groups.setdefault((each.pod_uid, each.pipe), []).append(each.pid)
    return [_told(*group, members) for group, members in groups.items()]


def _told(pod_uid: str, pipe: str, members: Sequence[int]) -> Finding:
    where = f"of the pod with UID {pod_uid}" if pod_uid else f"pipe directory {pipe or 'unseen'}"
    fix = (
        f"echo quit | CUDA_MPS_PIPE_DIRECTORY={pipe or _DEFAULT_PIPE} nvidia-cuda-mps-control, "
        "and switch off what starts it (systemctl list-units '*mps*')"
    )
    if pod_uid:
        fix = (
            "take what makes this pod off the node (that of NVIDIA's device plugin is "
            f"mps-control-daemon): kubectl get pods -A -o custom-columns=N:.metadata.namespace,"
            f"P:.metadata.name,U:.metadata.uid | grep {pod_uid}"
        )
    return warn(
        _CHECK,
        f"an MPS daemon that this node's agent did not start runs (process "
        f"{', '.join(map(str, members))}, {where}): a GPU that it serves cannot be under MPS here, "
        "and its clients belong to no slice",
        fix,
    )


def _pipe(environ: Path) -> str:
    try:
        with environ.open("rb") as file:
            entries = file.read(_MOST_BYTES).split(b"\0")
    except OSError:
        return ""
    named = [e.removeprefix(_VARIABLE) for e in entries if e.startswith(_VARIABLE)]
    return named[0].decode(errors="replace") if named else _DEFAULT_PIPE
