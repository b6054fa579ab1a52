"""What is asked of kubectl itself, each time by a start of its own."""

import subprocess
from collections.abc import Sequence

from libvgpu.errors import AllocationRefused, VgpuError

from .refusals import RIGHTS_TO_SET

_TIMEOUT_S = 30.0


def current_namespace(kubectl: Sequence[str]) -> str:
    """Returns the namespace that kubectl would use for pods that are named without one."""
    done = _run([*kubectl, "config", "view", "--minify", "--output=jsonpath={..namespace}"])
    return done.stdout.strip() or "default"


def change_config_map(kubectl: Sequence[str], namespace: str, name: str, change: str) -> None:
    """Merges a change into a ConfigMap.

    Raises:
        AllocationRefused: the API server refuses, for want of a right or since somebody else
            changed it meanwhile.
    """
    patch = ["patch", "configmap", name, "--type=merge", "--patch-file=/dev/stdin"]
    done = _run([*kubectl, f"--namespace={namespace}", *patch], change)
    if done.returncode == 0:
        return
    said = (done.stderr.strip().splitlines() or ["no answer"])[-1].removeprefix("error: ")
    hint = None
    if "Forbidden" in said:
        hint = f"{RIGHTS_TO_SET} gives the right to change it"
    elif "Conflict" in said or "has been modified" in said:
        hint = "somebody else changed it just now; look again with --dry-run"
    raise AllocationRefused(f"ConfigMap {namespace}/{name} is not changed: {said}", hint)


def _run(argv: Sequence[str], text: str = "") -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            argv, input=text, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise VgpuError(f"kubectl does not end within {_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise VgpuError(
            f"{argv[0]} cannot be started: {error.strerror}",
            "install kubectl, and see that PATH has it",
        ) from None
