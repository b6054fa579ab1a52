"""What the pods of each namespace hold in all, kept up to date node by node.

A node whose pods or inventory changed is counted again when somebody asks next. Not synchronised:
`cluster` is.
"""

from deviceplugin.scheduler.search.plans import Planner
from libvgpu.limits import Family

from .node_book import NodeBook
from .quotas import Held, Usage

_Sums = dict[Family, Held]
_NOTHING = Held()
_FAMILIES = {family.name.lower(): family for family in Family}


class NamespaceUsage:
    """The sums."""

    def __init__(self, planner: Planner) -> None:
        """Counts nothing yet; the planner is that of the cluster."""
        self._planner = planner
        self._counted: dict[str, dict[str, _Sums]] = {}
        self._sums: dict[str, _Sums] = {}
        self._changed: dict[str, NodeBook] = {}

    def outdate(self, book: NodeBook) -> None:
        """Says that a node has changed."""
        self._changed[book.name] = book

    def of(self, namespace: str) -> Usage:
        """Returns what the pods of a namespace hold."""
        changed, self._changed = self._changed, {}
        for name, book in changed.items():
            self._add(self._counted.pop(name, {}), -1)
            held = _held(book, self._planner)
            if held:
                self._counted[name] = held
                self._add(held, 1)
        return dict(self._sums.get(namespace, {}))

    def _add(self, held: dict[str, _Sums], sign: int) -> None:
        for namespace, sums in held.items():
            into = self._sums.setdefault(namespace, {})
            for family, each in sums.items():
                more = Held(sign * each.core_units, sign * each.memory_bytes)
                into[family] = into.get(family, _NOTHING) + more
                if into[family] == _NOTHING:
                    del into[family]
            if not into:
                del self._sums[namespace]


def _held(book: NodeBook, planner: Planner) -> dict[str, _Sums]:
    """Returns what each namespace has of a node: what is shown, and what is reserved."""
    if book.published is None:
        return {}
    found: dict[str, _Sums] = {}
    gpus = {each.uuid: each.sharing for each in book.published.gpus}

    def take(namespace: str, uuid: str, core: int, memory: int) -> None:
        sharing = gpus.get(uuid)
        family = _FAMILIES.get(sharing.family) if sharing is not None else None
        if sharing is not None and family is not None:
            into = found.setdefault(namespace, {})
            more = Held(core, memory * sharing.memory_unit_bytes)
            into[family] = into.get(family, _NOTHING) + more

    for each in book.published.slices:
        if each.pod is not None:
            for uuid, (core, memory) in each.units.items():
                take(each.pod[0], uuid, core, memory)
    for uid, pod in book.pods.items():
        if not book.shows(pod.request):
            for uuid, taken in book.held(uid, planner).gpus.items():
                take(pod.request.namespace, uuid, taken.core, taken.memory)
    return found
