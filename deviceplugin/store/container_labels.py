"""SELinux labels: where it enforces, containers may use only files with a label for containers.

A bind mount brings a file's own label along, and those under the run and the state directory are
not for containers. A file that a container may not open means that it is refused the GPU (the shim
grants nothing without `limits`), so what goes into containers is labelled when it is made.

The type is the one that container runtimes give the volumes of containers that ask for it, without
categories: every container may read it, and write where the mount and the mode let it. Keeps which
failure it told of; used by one thread at a time.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from deviceplugin.log import event

LABEL = b"system_u:object_r:container_file_t:s0\0"
_ATTRIBUTE = "security.selinux"
#: The kernel's own file; a container that is privileged has one of the two.
_ENFORCE = (
    Path("/sys/fs/selinux/enforce"),
    Path("/proc/1/root/sys/fs/selinux/enforce"),
)
SetAttribute = Callable[[str, str, bytes], None]


class ContainerLabels:
    """Labels files for containers, where SELinux enforces."""

    def __init__(
        self,
        enforce: Sequence[Path] = _ENFORCE,
        set_attribute: SetAttribute = os.setxattr,
    ) -> None:
        """Touches nothing yet.

        Args:
            enforce: the kernel's files that say ``1`` where SELinux enforces.
            set_attribute: sets an extended attribute of a file.
        """
        self._enforce, self._set = enforce, set_attribute
        self._has_failed = False

    def is_enforcing(self) -> bool:
        """Returns whether SELinux enforces here; a node without it has no such file."""
        for path in self._enforce:
            try:
                return path.read_text().strip() == "1"
            except OSError:
                continue
        return False

    def mark(self, *tops: Path) -> None:
        """Labels files and directories with all that is in them, where that is needed.

        One that cannot be labelled is said once: it stays as it is, and containers that cannot
        open it are refused by the shim.
        """
        if not self.is_enforcing():
            return
        for path in (each for top in tops for each in _below(top)):
            try:
                self._set(path, _ATTRIBUTE, LABEL)
            except OSError as error:
                if error.errno == errno.ENOENT or self._has_failed:
                    continue  # removed a moment ago
                self._has_failed = True
                event(
                    logging.ERROR,
                    "a file cannot be labelled for containers, so SELinux keeps it from them",
                    file=path,
                    reason=error.strerror or error,
                    hint="mount the run directory's tmpfs with "
                    "rootcontext=system_u:object_r:container_file_t:s0",
                )


def _below(top: Path) -> Iterator[str]:
    yield str(top)
    for directory, names, files in os.walk(top):
        yield from (f"{directory}/{name}" for name in (*names, *files))
