"""Checks whether SELinux lets containers open what they have mounted from us.

`look` reads labels; `judge` is pure. The agent labels what it makes (`container_labels`); what it
could not label, or somebody relabelled (``restorecon``), a container may not open, and the shim
grants nothing then.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from deviceplugin.store.container_labels import ContainerLabels

from .finding import Finding, fail, ok, warn
from .host import Host
from .node_checks import AS_ROOT

_CHECK = "selinux"
_ATTRIBUTE = "security.selinux"
_ENFORCE = "/sys/fs/selinux/enforce"
#: Types that any container may read; what it writes (`usage`, `ring`) needs the first of them.
_READABLE = frozenset({"container_file_t", "container_ro_file_t", "container_share_t"})
_WRITTEN = frozenset({"usage", "ring", "pipe", "control"})
_MOST_FILES = 4096
_SHOWN = 3


def look(host: Host, run_dir: Path, state_dir: Path) -> list[Finding]:
    """Reads whether SELinux enforces, and the labels of what containers have mounted."""
    on_node = Path(host.root.tree.at(_ENFORCE))
    if not ContainerLabels((on_node, Path(_ENFORCE))).is_enforcing():
        return []
    labels: dict[Path, str | None] = {}
    for path in _files(run_dir, state_dir):
        if len(labels) == _MOST_FILES:
            break
        try:
            labels[path] = os.getxattr(path, _ATTRIBUTE).rstrip(b"\0").decode(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            continue  # not every container has each of them, nor is each entry one's directory
        except PermissionError:
            labels[path] = None
        except OSError:  # no label, or a file system that has none
            labels[path] = ""
    return [judge(labels)]


def judge(labels: Mapping[Path, str | None]) -> Finding:
    """Tells which files containers may not open.

    Args:
        labels: of each file; empty where it has none, None where this user may not see it.
    """
    if any(label is None for label in labels.values()):
        return warn(_CHECK, "SELinux enforces, and labels may not be seen by this user", AS_ROOT)
    bad = {path: label or "none" for path, label in labels.items() if not _fits(path, label or "")}
    if not bad:
        return ok(
            _CHECK, f"SELinux enforces; {len(labels)} files of containers have a label for them"
        )
    shown = ", ".join(f"{path} ({label})" for path, label in list(bad.items())[:_SHOWN])
    more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    tops = sorted({str(_top(path)) for path in bad})
    return fail(
        _CHECK,
        f"SELinux enforces, and containers may not open {shown}{more}: the shim grants nothing "
        "there",
        f"chcon -R -t container_file_t {' '.join(tops)}; for good: mount the run directory's tmpfs "
        "with rootcontext=system_u:object_r:container_file_t:s0",
    )


def _fits(path: Path, label: str) -> bool:
    kind = label.split(":")[2] if label.count(":") >= 2 else ""
    return kind == "container_file_t" or (kind in _READABLE and path.name not in _WRITTEN)


def _top(path: Path) -> Path:
    """Returns the directory of an allocation, of a build, or of a pipe."""
    return path if path.name == "pipe" else path.parent


def _files(run_dir: Path, state_dir: Path) -> Iterator[Path]:
    for top, names in (
        (run_dir / "allocations", ("limits", "usage", "ring")),
        (state_dir / "lib", ("libvgpu.so", "ld.so.preload")),
        (run_dir / "mps", ("pipe", "pipe/control")),
    ):
        try:
            entries = sorted(os.listdir(top))
        except PermissionError:
            entries = [""]  # so that its own label, which this user may not see, tells
        except OSError:
            continue
        yield from (top / entry / name for entry in entries for name in names)
