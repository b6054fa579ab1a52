"""Many racing clients in one slice of a simulated GPU, and what is seen while they stand still.

The clients (``native/race_client.c``) take and give memory of every kind as fast as they can. All
map one board, on which they are told to stand still; then the ledger must say exactly what the GPU
says, the rest of the limit must be granted to the last byte, and one step more must be refused.
"""

import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from libvgpu.artifacts import SIM_LIBRARY_DIR, shim_path
from libvgpu.errors import VgpuError
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create, read_usage
from libvgpu.sim import Machine, ideal_profile

from .nulldriver import build_client

MIB = 1 << 20
#: Device memory is given in steps of this size.
CONTEXT_BYTES = 2 * MIB
STAND_STILL_SECONDS = 30.0
_PROFILE = "h100-80g"
_HEADER_BYTES = 128
_SEAT = struct.Struct("=QQQQII64s24x")
_SEATS = 128
_SLOWEST_AT = 24
_STANDS_AT = 32

# Asks for what it is told, then for one step more, and gives all back; the total first makes the
# shim look for dead processes.
_PROBE = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address, more = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
def must(code):
    assert code == 0, code
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
print("ready", flush=True)
for line in sys.stdin:
    must(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    if line == "look\\n":
        print(free.value, flush=True)
        continue
    asked = ctypes.c_size_t(int(line))
    exact = cuda.cuMemAlloc_v2(ctypes.byref(address), asked) if asked.value else 0
    beyond = cuda.cuMemAlloc_v2(ctypes.byref(more), ctypes.c_size_t(1))
    if beyond == 0:
        must(cuda.cuMemFree_v2(more))
    if exact == 0 and asked.value:
        must(cuda.cuMemFree_v2(address))
    print(exact, beyond, flush=True)
"""


@dataclass
class RaceReading:
    """What was seen while everybody stood still.

    Attributes:
        ledger_bytes: what the ledger says is held.
        device_bytes: what the simulated GPU says.
        exact_refused: the rest of the limit, to the last byte, was not granted.
        beyond_granted: one step more than the limit was.
        slowest_ns: the longest step of anybody since the last look.
    """

    ledger_bytes: int
    device_bytes: int
    exact_refused: bool
    beyond_granted: bool
    slowest_ns: int


@dataclass
class Race:
    """The clients of one slice; made by `open_race`."""

    machine: Machine
    directory: Path
    limit_bytes: int
    client: Path
    board: mmap.mmap
    board_path: Path
    probe: "subprocess.Popen[str]"
    log: Path
    pauses: int = 0
    processes: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        base = {"PATH": os.defpath, "VGPU_LOG": "error"}
        shim = {"LD_PRELOAD": str(shim_path()), "VGPU_DIR": str(self.directory)}
        return self.machine.environment(base) | shim

    def start(self, seat: int) -> None:
        """Starts the client of that seat."""
        at = _HEADER_BYTES + seat * _SEAT.size + _STANDS_AT
        self.board[at : at + 4] = bytes(4)
        with self.log.open("ab") as log:
            self.processes[seat] = subprocess.Popen(
                [self.client, str(self.board_path), str(seat)],
                env=self.environment(),
                stderr=log,
            )

    def kill(self, seat: int) -> None:
        """Kills the client of that seat, wherever it is."""
        process = self.processes.pop(seat)
        process.kill()
        process.wait()

    def check(self) -> None:
        """Raises VgpuError when a client has ended by itself with an error."""
        for seat, process in list(self.processes.items()):
            status = process.poll()
            if status is not None and status != 0:
                raise VgpuError(f"client {seat} ended with {status}: {self.log.read_text()[-500:]}")
            if status == 0:
                del self.processes[seat]

    def counts(self, seat: int) -> tuple[int, int, int, int, bool]:
        """Returns a seat's steps, grants, refusals, slowest step in ns, and whether it stands.

        The slowest step is that since the last look.
        """
        fields = _SEAT.unpack_from(self.board, _HEADER_BYTES + seat * _SEAT.size)
        return (*fields[:4], fields[4] == self.pauses)

    def _order(self, *, pause: bool, stop: bool = False) -> None:
        self.pauses += pause
        # whole words: pack_into writes zeros first, which the clients would see
        self.board[4:8] = int(stop).to_bytes(4, "little")
        self.board[:4] = (self.pauses if pause else 0).to_bytes(4, "little")

    def _ask(self, line: str) -> list[int]:
        assert self.probe.stdin
        assert self.probe.stdout
        self.probe.stdin.write(line + "\n")
        self.probe.stdin.flush()
        answer = self.probe.stdout.readline().split()
        if not answer:
            raise VgpuError(f"the probing client ended: {self.log.read_text()[-500:]}")
        return [int(word) for word in answer]

    def look(self) -> RaceReading:
        """Lets everybody stand still and looks.

        Raises:
            VgpuError: somebody does not come to a stand, or has failed.
        """
        self._order(pause=True)
        give_up_at = time.monotonic() + STAND_STILL_SECONDS
        while not all(self.counts(seat)[4] for seat in self.processes):
            self.check()
            if time.monotonic() > give_up_at:
                moving = [seat for seat in self.processes if not self.counts(seat)[4]]
                raise VgpuError(f"clients {moving} hang for more than {STAND_STILL_SECONDS:g} s")
            time.sleep(0.002)
        self._ask("look")
        ledger_bytes = read_usage(self.directory).devices[0].used_bytes
        device_bytes = self.machine.books()[0].memory_used_bytes
        exact, beyond = self._ask(str(max(0, self.limit_bytes - ledger_bytes)))
        slowest_ns = self._take_slowest()
        self._order(pause=False)
        return RaceReading(ledger_bytes, device_bytes, exact != 0, beyond == 0, slowest_ns)

    def _take_slowest(self) -> int:
        slowest_ns = 0
        for seat in range(_SEATS):
            slowest_ns = max(slowest_ns, self.counts(seat)[3])
            at = _HEADER_BYTES + seat * _SEAT.size + _SLOWEST_AT
            self.board[at : at + 8] = bytes(8)
        return slowest_ns

    def stop(self) -> None:
        """Lets every client end by itself."""
        self._order(pause=False, stop=True)
        for process in self.processes.values():
            process.wait(STAND_STILL_SECONDS)


@contextmanager
def open_race(limit_bytes: int) -> Iterator[Race]:
    """Makes a simulated GPU, a slice of it, and the clients' program.

    Raises:
        VgpuError: there is no compiler, or the probing client fails.
    """
    with tempfile.TemporaryDirectory(prefix="vgpu-race-") as name:
        folder = Path(name)
        driver = folder / "libcuda.so.1"
        driver.symlink_to(SIM_LIBRARY_DIR / "libcuda.so.1")
        client = build_client("race_client", driver, "race_kinds")
        profile = replace(ideal_profile(_PROFILE), context_bytes=CONTEXT_BYTES)
        machine = Machine.create([profile], folder / "machine")
        limit = DeviceLimit(
            uuid=machine.devices[0].uuid,
            memory_limit_bytes=limit_bytes,
            context_bytes=CONTEXT_BYTES,
        )
        create(folder / "slice", ContainerLimits("race", Family.VGPU, (limit,)))
        board_path = folder / "board"
        board_path.write_bytes(bytes(_HEADER_BYTES + _SEATS * _SEAT.size))
        log = folder / "log"
        with board_path.open("r+b") as file:
            board = mmap.mmap(file.fileno(), 0)
        race = Race(
            machine,
            folder / "slice",
            limit_bytes,
            client,
            board,
            board_path,
            probe=None,  # type: ignore[arg-type]  # which needs the environment of all the rest
            log=log,
        )
        race._order(pause=False)
        with log.open("ab") as errors:
            race.probe = subprocess.Popen(
                [sys.executable, "-c", _PROBE],
                env=race.environment(),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        try:
            assert race.probe.stdout
            if race.probe.stdout.readline() != "ready\n":
                raise VgpuError(f"the probing client does not start: {log.read_text()[-500:]}")
            yield race
        finally:
            race.probe.kill()
            race.probe.communicate()
            for process in race.processes.values():
                process.kill()
                process.wait()
            board.close()
