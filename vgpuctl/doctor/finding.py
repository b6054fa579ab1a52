"""What one check found."""

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"
#: What to do about a GPU that NVML fails for.
RESET_GPU = (
    "look for NVRM in the kernel's log (dmesg); reset the GPU (nvidia-smi --gpu-reset) or reboot; "
    "it is offered again by itself"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `vgpuctl doctor`.

    Attributes:
        check: its short name.
        level: ``ok``, ``warn`` (works, or could not be seen) or ``fail``.
        message: what was found, with the values.
        fix: what to do about it; empty where all is well.
    """

    check: str
    level: str
    message: str
    fix: str = ""


def ok(check: str, message: str) -> Finding:
    """Returns a good finding."""
    return Finding(check, OK, message)


def warn(check: str, message: str, fix: str) -> Finding:
    """Returns one that does not make the node unhealthy."""
    return Finding(check, WARN, message, fix)


def fail(check: str, message: str, fix: str) -> Finding:
    """Returns one that does."""
    return Finding(check, FAIL, message, fix)
