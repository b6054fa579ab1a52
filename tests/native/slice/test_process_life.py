"""However a process ends, forks or stands still: its bytes return, and nobody waits for it.

Every test ends with the whole limit granted to a newcomer, at once and to the last byte.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu._native import ffi
from libvgpu.sim import Machine
from support import Compile
from support.shim.slices import Slice, SliceOf
from support.shim.talker import Talk, Talker
from support.waiting import PATIENCE_S, wait_until

LIMIT = 1 << 30
PIECE = 64 << 20
PIECES = LIMIT // PIECE
HALF = LIMIT // 2
NO_WAIT_S = 1.0
OUT_OF_MEMORY, NOT_READY = 2, 802


@pytest.fixture
def part(machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(machine, memory_bytes=LIMIT)


@pytest.fixture
def slow_claim(compile_program: Compile) -> Path:
    return compile_program("slow_claim.c", flags=("-shared", "-fPIC"))


@pytest.fixture
def orphans() -> Iterator[list[int]]:
    """Processes that outlive their parents, to be killed by the end of the test."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        assert pid > 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def pieces_for_a_newcomer(part: Slice, talk: Talk) -> int:
    newcomer = talk(part)
    begin = time.monotonic()
    assert newcomer.ask("init") == 0
    count = newcomer.ask(f"fill {PIECE}")
    assert time.monotonic() - begin < PATIENCE_S, "it waited for a process that does not go on"
    newcomer.kill()
    return count


def preloaded(part: Slice, library: Path, at: int, sleep_ms: int) -> dict[str, str]:
    return {
        "LD_PRELOAD": f"{library}:{part.environment()['LD_PRELOAD']}",
        "CLAIM_AT": str(at),
        "CLAIM_SLEEP_MS": str(sleep_ms),
    }


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the command, from the state (field 3) on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def wait_for_state(pid: int, state: str) -> None:
    """Returns when the process is in that state (T stopped, Z ended), or gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        wait_until(lambda: stat_fields(pid)[0] == state, f"process {pid} is in state {state}")


@pytest.mark.parametrize("how", ["SIGKILL", "exit 0", "exit 3", "abort", "quit 0"])
def test_an_end_of_any_kind_returns_all(part: Slice, talk: Talk, how: str) -> None:
    holder = talk(part).holds(LIMIT)
    assert talk(part).ask("init") == 0 and part.usage().devices[0].used_bytes == LIMIT

    holder.process.kill() if how == "SIGKILL" else holder.tell(how)
    holder.process.wait(PATIENCE_S)

    assert pieces_for_a_newcomer(part, talk) == PIECES


def test_an_exec_returns_all_and_the_new_program_begins_empty(part: Slice, talk: Talk) -> None:
    holder = talk(part).holds(LIMIT)

    holder.tell("become self")

    assert holder.ask("init") == 0
    assert holder.ask(f"fill {PIECE}") == PIECES
    assert part.usage().devices[0].used_bytes == LIMIT


def test_an_exec_of_another_program_returns_all(part: Slice, talk: Talk) -> None:
    holder = talk(part).holds(LIMIT)
    holder.tell("become other")
    wait_until(lambda: Path(f"/proc/{holder.pid}/comm").read_text() == "sleep\n", "the exec")

    assert pieces_for_a_newcomer(part, talk) == PIECES
    assert holder.process.poll() is None


@pytest.mark.parametrize("how", ["close", "close-gpu", "exec", "vfork", "spawn"])
def test_a_child_without_its_parents_descriptors_keeps_nothing_of_its_dead_parent(
    part: Slice, talk: Talk, orphans: list[int], how: str
) -> None:
    parent = talk(part).holds(LIMIT)
    orphans.append(parent.ask(f"leave {how}"))
    assert pieces_for_a_newcomer(part, talk) == 0

    parent.process.kill()
    parent.process.wait()

    wait_until(lambda: part.machine.books()[0].memory_used_bytes == 0, "the GPU is empty")
    assert pieces_for_a_newcomer(part, talk) == PIECES
    os.kill(orphans[0], 0)  # it lives


@pytest.mark.parametrize("when", ["at last", "before its context"])
@pytest.mark.parametrize("how", ["SIGKILL", "exit 0"])
def test_a_child_with_its_parents_descriptors_keeps_the_memory_in_the_gpu_and_charged(
    part: Slice, talk: Talk, orphans: list[int], when: str, how: str
) -> None:
    parent = talk(part)
    if when == "before its context":
        assert parent.ask("start") == 0
        orphans.append(parent.ask("leave plain"))
    parent.holds(HALF)
    if when == "at last":
        orphans.append(parent.ask("leave plain"))

    parent.process.kill() if how == "SIGKILL" else parent.tell(how)
    parent.process.wait(PATIENCE_S)

    assert pieces_for_a_newcomer(part, talk) == PIECES // 2
    assert part.machine.books()[0].memory_used_bytes == HALF
    (kept,) = (each for each in part.usage().processes if each.alive)
    assert (kept.pid, kept.ended, kept.devices[0].used_bytes) == (parent.pid, True, HALF)
    end(orphans[0])
    assert pieces_for_a_newcomer(part, talk) == PIECES
    assert part.machine.books()[0].memory_used_bytes == 0


def end(pid: int) -> None:
    """Kills a process that is not our child, and returns when it has let go of what it had."""
    os.kill(pid, signal.SIGKILL)
    wait_for_state(pid, "Z")


def test_a_child_begins_empty_and_leaves_its_parents_bytes_alone(part: Slice, talk: Talk) -> None:
    program = talk(part)

    assert program.ask("pass") == 0  # from here on the child speaks
    program.holds(HALF)
    assert program.ask(f"fill {PIECE}") == 1 + PIECES // 2
    program.tell("quit 0")

    assert program.answer() == 1  # its parent
    assert program.holds(LIMIT).ask(f"alloc {PIECE}") == OUT_OF_MEMORY
    assert program.ask("pass") == 0
    (seen,) = (each for each in part.usage().processes if each.alive)
    assert seen.pid == program.pid and seen.devices[0].used_bytes == LIMIT
    program.tell("exit 0")
    assert program.answer() == 1
    assert pieces_for_a_newcomer(part, talk) == 0
    assert program.ask("free") == 0
    assert pieces_for_a_newcomer(part, talk) == PIECES


def test_a_fork_before_the_first_allocation_gives_the_child_a_place_of_its_own(
    part: Slice, talk: Talk, orphans: list[int]
) -> None:
    program = talk(part)
    child = program.ask("fork")
    orphans.append(child)
    program.holds(HALF)
    program.process.kill()  # the parent, which has nothing
    program.process.wait()

    assert pieces_for_a_newcomer(part, talk) == PIECES // 2
    (seen,) = (each for each in part.usage().processes if each.alive)
    assert (seen.pid, seen.devices[0].used_bytes) == (child, HALF)

    os.kill(child, signal.SIGKILL)
    wait_for_state(child, "Z")
    assert pieces_for_a_newcomer(part, talk) == PIECES


def test_a_program_that_closes_all_its_descriptors_keeps_what_it_holds(
    part: Slice, talk: Talk
) -> None:
    guest = talk(part).holds(HALF)

    assert guest.ask("close") == 0

    assert pieces_for_a_newcomer(part, talk) == PIECES // 2
    guest.process.kill()
    guest.process.wait()
    assert pieces_for_a_newcomer(part, talk) == PIECES


def test_forks_in_the_midst_of_a_claim_keep_it_as_those_after_it_do(
    part: Slice, talk: Talk, slow_claim: Path, orphans: list[int]
) -> None:
    program = talk(part, **preloaded(part, slow_claim, at=2, sleep_ms=100))
    program.tell(f"beside {LIMIT}")
    while (pid := program.answer()) != 0:
        orphans.append(pid)
    assert len(orphans) >= 4
    assert pieces_for_a_newcomer(part, talk) == 0

    program.process.kill()
    program.process.wait()

    assert pieces_for_a_newcomer(part, talk) == 0
    for pid in orphans:
        end(pid)
    assert pieces_for_a_newcomer(part, talk) == PIECES


@pytest.mark.parametrize("then", ["resumed", "killed"])
@pytest.mark.parametrize("lock", [1, 2])
def test_a_claim_that_stops_half_way_holds_up_nobody(
    part: Slice, talk: Talk, slow_claim: Path, lock: int, then: str
) -> None:
    dead = talk(part).holds(HALF)  # its slot is what the next claim cleans
    dead.process.kill()
    dead.process.wait()
    stopped = talk(part, **preloaded(part, slow_claim, at=lock, sleep_ms=0))
    stopped.tell("init")  # its context is charged, so it claims here
    wait_for_state(stopped.pid, "T")

    assert pieces_for_a_newcomer(part, talk) == PIECES
    if then == "resumed":
        stopped.process.send_signal(signal.SIGCONT)
        assert (stopped.answer(), stopped.ask(f"alloc {PIECE}")) == (0, 0)
        assert pieces_for_a_newcomer(part, talk) == PIECES - 1
    stopped.process.kill()
    stopped.process.wait()
    assert pieces_for_a_newcomer(part, talk) == PIECES
    assert {each.slot for each in part.usage().processes} <= {0, 1, 2}  # no place is lost


@pytest.mark.parametrize("of", ["slice", "machine"])
def test_a_claim_that_loses_its_lock_is_refused(
    part: Slice, talk: Talk, compile_program: Compile, of: str
) -> None:
    library = compile_program("lost_lock.c", flags=("-shared", "-fPIC"))
    files = {"slice": part.directory / "usage", "machine": part.machine.directory / "machine"}
    preload = f"{library}:{part.environment()['LD_PRELOAD']}"
    program = talk(part, LD_PRELOAD=preload, LOSES=str(files[of]))

    assert program.ask("init") == {"slice": OUT_OF_MEMORY, "machine": NOT_READY}[of]

    said = f"no place in {files['slice']} for this process: its file system loses locks"
    assert (said in program.end()[1]) == (of == "slice")
    assert pieces_for_a_newcomer(part, talk) == PIECES


@pytest.mark.timing
def test_a_stopped_peer_delays_neither_an_allocation_nor_a_refusal(part: Slice, talk: Talk) -> None:
    peer = talk(part).holds(HALF)
    peer.process.send_signal(signal.SIGSTOP)
    wait_for_state(peer.pid, "T")
    other = talk(part)
    assert other.ask("init") == 0

    elapsed_ns = other.ask(f"elapsed {PIECE}")

    assert elapsed_ns < NO_WAIT_S * 1e9
    assert other.ask(f"fill {PIECE}") == PIECES // 2
    other.kill()
    peer.process.kill()  # also a stopped one
    peer.process.wait()
    assert pieces_for_a_newcomer(part, talk) == PIECES


def test_what_a_thread_allocated_stays_when_it_ends(part: Slice, talk: Talk) -> None:
    program = talk(part)
    assert program.ask("init") == 0

    assert program.ask(f"thread {LIMIT}") == 0

    assert program.ask(f"alloc {PIECE}") == OUT_OF_MEMORY
    assert program.ask("free") == 0
    assert program.ask(f"fill {PIECE}") == PIECES


def test_a_thread_that_is_cancelled_in_a_refusal_leaves_nothing_locked(
    costly_machine: Machine, slice_of: SliceOf, talk: Talk
) -> None:
    context_bytes = costly_machine.devices[0].profile.context_bytes
    part = slice_of(costly_machine, memory_bytes=2 * context_bytes)
    peer = talk(part).holds(PIECE)
    program = talk(part)  # whose context does not fit, for which the kernel is asked about its peer

    assert program.ask("cancelled") == 0

    assert program.ask("init") == OUT_OF_MEMORY
    assert (peer.ask("free"), program.ask("init")) == (0, 0)


def test_a_reused_pid_keeps_no_bytes(part: Slice, talk: Talk) -> None:
    dead = talk(part).holds(LIMIT)
    living = talk(part)
    assert living.ask("init") == 0
    slots = {each.pid: each.slot for each in part.usage().processes}
    dead.process.kill()
    dead.process.wait()

    rename(part, slots[dead.pid], dead.pid, living.pid)

    assert {each.pid for each in part.usage().processes} == {living.pid}
    assert living.ask(f"fill {PIECE}") == PIECES


def rename(part: Slice, slot: int, before: int, after: int) -> None:
    """Makes the slot that belonged to one process look like that of another, as pids recur."""
    path = part.directory / "usage"
    image = bytearray(path.read_bytes())
    header = ffi.from_buffer("struct vgpu_usage_header *", image)
    row = ffi.cast(
        "struct vgpu_usage_slot *",
        ffi.cast("char *", header) + header.slot_offset + slot * header.slot_stride,
    )
    assert row.pid == before
    row.pid = after
    row.start_time_ticks = int(
        Path(f"/proc/{after}/stat").read_text().rpartition(")")[2].split()[19]
    )
    with path.open("r+b") as file:
        file.write(image)


@pytest.mark.root
def test_processes_of_separate_pid_namespaces_share_one_account(part: Slice, talk: Talk) -> None:
    alone = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    first, second = talk(part, prefix=alone), talk(part, prefix=alone)
    if first.process.poll() is not None or not can_unshare():
        pytest.skip("no PID namespaces here")
    first.holds(HALF)
    second.holds(HALF // 2)
    assert {each.pid for each in part.usage().processes if each.alive} == {1}
    assert pieces_for_a_newcomer(part, talk) == PIECES // 4

    end_namespace(first)

    assert second.ask(f"fill {PIECE}") == 1 + PIECES * 3 // 4
    end_namespace(second)
    assert pieces_for_a_newcomer(part, talk) == PIECES


def can_unshare() -> bool:
    # A fixed command.
    return os.geteuid() == 0 and os.system("unshare --pid --fork true 2>/dev/null") == 0  # noqa: S605


def end_namespace(program: Talker) -> None:
    """Ends the process 1 of a namespace, whose parent is ``unshare``."""
    program.tell("exit 0")
    program.process.wait(PATIENCE_S)


def test_a_restarted_container_finds_a_clean_ledger(part: Slice, talk: Talk) -> None:
    before = [talk(part).holds(PIECE) for _ in range(5)]
    for each in before:
        each.process.kill()
    for each in before:
        each.process.wait()

    after = talk(part)

    assert after.ask("init") == 0
    assert after.ask(f"fill {PIECE}") == PIECES
    usage = part.usage()
    assert [each.pid for each in usage.processes if each.devices[0].used_bytes] == [after.pid]
    assert usage.devices[0].used_bytes == LIMIT
