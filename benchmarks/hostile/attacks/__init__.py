"""The table of attacks: one row is one attack, run over all kinds of attackers.

It runs inside of a container (`run`).
An attack is a generator: what stands before its first ``yield`` prepares it, and each step after
that repeats its worst. One that ends there goes on existing until it is told to end.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import books, escapes, files, leases, locks, memory, pipes, rings


@dataclass(frozen=True, slots=True)
class Attack:
    """One row.

    Attributes:
        name: of the test.
        needs: what of a slice it goes at.
        steps: prepares, then does its worst at each step.
    """

    name: str
    needs: str
    steps: Callable[[], Iterator[None]]


ROWS = (
    Attack("leases for reading", "limits, usage, library", leases.for_reading),
    Attack("leases for writing", "limits, usage, library", leases.for_writing),
    Attack("signals of changed directories", "limits, usage", leases.directory_signals),
    Attack("locks of all kinds", "all files", locks.of_all_kinds),
    Attack("thousands of byte locks", "usage", locks.thousands),
    Attack("locks of a stopped process", "usage, limits", locks.of_a_stopped_process),
    Attack("locks of the device nodes", "/dev", locks.of_device_nodes),
    Attack("locks that wait in a ring", "usage", locks.that_wait_for_each_other),
    Attack("usage emptied and cut off", "usage", files.truncate),
    Attack("usage filled to ENOSPC", "usage", files.fill),
    Attack("blocks beyond the end", "usage", files.reserve_beyond_the_end),
    Attack("holes", "usage", files.punch),
    Attack("attributes", "all files", files.attributes),
    Attack("modes, owners and times", "all files", files.modes_and_owners),
    Attack("names", "/run/vgpu", files.names),
    Attack("usage as a program", "usage", files.run_as_program),
    Attack("inode flags", "all files", files.inode_flags),
    Attack("floods of inotify", "all files", files.watch_all),
    Attack("sync without end", "usage", files.sync_without_end),
    Attack("a ring of another size", "ring", rings.of_another_size),
    Attack("a ring flooded", "ring", rings.flood),
    Attack("a ring opened and never read", "ring", rings.open_many),
    Attack("a ring read by its tenant", "ring", rings.read_away),
    Attack("a ring of packets", "ring", rings.of_packets),
    Attack("a ring with signals", "ring", rings.with_signals),
    Attack("a ring written from memory that moves", "ring", rings.from_memory_that_moves),
    Attack("a mapped usage cut off", "usage", memory.cut_off_under_a_map),
    Attack("maps made and removed", "usage, limits", memory.maps_come_and_go),
    Attack("usage written from memory that moves", "usage", memory.write_from_moving_memory),
    Attack("limits mapped for writing", "limits", memory.write_limits),
    Attack("a zeroed book", "usage", books.zeroed),
    Attack("a doubled book", "usage", books.doubled),
    Attack("a book of another layout", "usage", books.of_another_layout),
    Attack("a book of another tenant", "usage", books.of_another_tenant),
    Attack("a book of noise", "usage", books.of_noise),
    Attack("a book with all bits set", "usage", books.with_all_bits),
    Attack("a book with all slots taken", "usage", books.with_all_slots),
    Attack("a forged demand", "usage, ring", books.forged_demand),
    Attack("other processes by /proc", "/proc", escapes.look_through_proc),
    Attack("a user namespace", "limits", escapes.user_namespace),
    Attack("chroot", "usage", escapes.change_root),
    Attack("mounts", "limits, usage", escapes.mount_over),
    Attack("device nodes of its own", "/dev", escapes.make_nodes),
    Attack("ptrace of a child", "usage, ring", escapes.trace_a_child),
    Attack("every descriptor closed", "usage, limits", escapes.close_everything),
    Attack("signals to everybody", "", escapes.signal_everybody),
)
#: Of a client of MPS.
PIPE_ROWS = (
    Attack("the pipe directory filled by a file", "pipe directory", pipes.fill),
    Attack(
        "the pipe directory filled by a file without a name", "pipe directory", pipes.fill_unseen
    ),
    Attack("the pipe directory filled by names", "pipe directory", pipes.fill_by_names),
)
#: Of an arbiter, without those that need a process of their own.
RING_ROWS = tuple(
    row
    for row in ROWS
    if row.steps.__module__ == rings.__name__
    and row.steps not in (rings.with_signals, rings.from_memory_that_moves)
)
ATTACKS = {row.name: row for row in ROWS + PIPE_ROWS}
