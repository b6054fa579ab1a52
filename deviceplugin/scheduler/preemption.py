"""Who would have to go."""

from dataclasses import dataclass

from .node_view import Reservation


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod of a node, and what it takes of it."""

    uid: str
    priority: int
    created_at: float
    reservation: Reservation
