"""How much of a family the pods of a namespace may hold in all.

Of each family the first quota that is for a namespace counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from libvgpu.limits import Family


@dataclass(frozen=True, slots=True)
class Quota:
    """One entry of ``quotas``.

    Attributes:
        namespace: a pattern, ``*`` for any text.
        families: each of which has this ceiling of its own.
        core_units: that pods may hold together, 100 a GPU; None: no ceiling.
        memory_bytes: the same of memory.
        path: where it stands in the file.
        line: on which line.
    """

    namespace: str
    families: tuple[Family, ...]
    core_units: int | None = None
    memory_bytes: int | None = None
    path: str = ""
    line: int = 0

    def is_for(self, namespace: str, family: Family) -> bool:
        """Returns whether it is for the pods of a namespace, in one family."""
        return family in self.families and fnmatchcase(namespace, self.namespace)


def quota_of(quotas: Iterable[Quota], namespace: str, family: Family) -> Quota | None:
    """Returns the quota that counts for a namespace in one family; None where none is for it."""
    return next((quota for quota in quotas if quota.is_for(namespace, family)), None)
