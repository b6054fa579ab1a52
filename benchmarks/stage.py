"""Starts tenants of one simulated GPU together and watches them in the device's books.

Each window has a fresh simulated machine. What a tenant had of the device is what the books say of
its processes, never what the processes or the shim say of themselves.

With our shim an arbiter serves the slices, as it does on a node.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from libvgpu.arbitration import Arbiter
from libvgpu.artifacts import SIM_LIBRARY_DIR, shim_path
from libvgpu.errors import VgpuError
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.region import create, read_limits, write_limits
from libvgpu.sim import Machine, Profile, ideal_profile

from . import own_time
from .clients import read_line
from .nulldriver import built_client
from .tenant_programs import Tenant, TenantClient, TenantProgram, TenantReading, Window, shares

#: The model of GPU that tenants are measured on.
PROFILE = "h100-80g"
_START_SECONDS = 60.0
_END_SECONDS = 5.0
_SAMPLE_SECONDS = 0.05


@dataclass
class Running:
    """Tenants whose processes are loaded and wait to be told to go; made by `Stage.open`.

    Attributes:
        machine: the simulated one of these tenants alone.
        tenants: in the order of everything that is told per tenant.
        directories: their slices.
        log: what the processes write to stderr.
        processes: of each tenant.
        arbiter: the one that serves the slices, or None.
    """

    machine: Machine
    tenants: tuple[Tenant, ...]
    directories: tuple[Path, ...]
    log: Path
    processes: list[list["subprocess.Popen[str]"]] = field(default_factory=list)
    arbiter: Arbiter | None = None

    def go(self, index: int) -> None:
        """Lets the processes of one tenant begin."""
        self._tell(index, "go\n")

    def change(self, index: int, core_percent: int) -> None:
        """Changes the share of a running tenant."""
        limits = read_limits(self.directories[index]).limits
        (device,) = limits.devices
        changed = replace(device, core_percent=core_percent, weight=core_percent)
        write_limits(self.directories[index], replace(limits, devices=(changed,)))

    def look(self) -> TenantReading:
        """Reads the books.

        Raises:
            VgpuError: a process has ended by itself.
        """
        for process in (process for group in self.processes for process in group):
            if process.poll() is not None:
                raise VgpuError(
                    f"a client ended with status {process.returncode}: "
                    f"{' '.join(self.log.read_text()[-500:].split()) or 'nothing on stderr'}"
                )
        books = self.machine.books()[0]
        of = {client.pid: client for client in books.clients}
        return TenantReading(
            books.clock_ns,
            tuple(sum(of[p.pid].busy_ns for p in group) for group in self.processes),
            tuple(sum(of[p.pid].launches for p in group) for group in self.processes),
        )

    def watch(self, warm_up_seconds: float, seconds: float, *, sampled: bool = False) -> Window:
        """Lets all begin, and measures one window after a warm-up; then all are ended.

        Args:
            warm_up_seconds: before the window.
            seconds: its length.
            sampled: look every 50 ms, not only at both ends.

        Raises:
            VgpuError: a process has ended by itself.
        """
        for index in range(len(self.tenants)):
            self.go(index)
        time.sleep(warm_up_seconds)
        for index in range(len(self.tenants)):
            self._tell(index, "mark\n")
        looks = self.looks(seconds, sampled=sampled)
        return Window(shares(looks[0], looks[-1]), self._end(), looks)

    def looks(self, seconds: float, *, sampled: bool = False) -> tuple[TenantReading, ...]:
        """Looks at the books now and after some time, and every 50 ms meanwhile if `sampled`.

        Raises:
            VgpuError: a process has ended by itself.
        """
        looks = [self.look()]
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _SAMPLE_SECONDS) if sampled else left)
            looks.append(self.look())
        return tuple(looks)

    def answers(self, timeout_seconds: float) -> list[str]:
        """Returns the next line of each process, tenant by tenant.

        Raises:
            VgpuError: one has ended without it, or does not say it in time.
        """
        give_up_at = time.monotonic() + timeout_seconds
        lines = []
        for process in (process for group in self.processes for process in group):
            lines.append(read_line(process, give_up_at - time.monotonic()))
            if not lines[-1]:
                process.kill()
                process.wait()
                self.look()  # says why
        return lines

    def _tell(self, index: int, line: str) -> None:
        for process in self.processes[index]:
            assert process.stdin is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
            except BrokenPipeError:
                self.look()  # says why
                raise

    def _end(self) -> tuple[int | None, ...]:
        """Ends everybody's launching; what is queued then is not waited for."""
        for process in (process for group in self.processes for process in group):
            assert process.stdin is not None
            process.stdin.close()
        give_up_at = time.monotonic() + _END_SECONDS
        delays: list[int | None] = []
        for group in self.processes:
            lines = [read_line(p, give_up_at - time.monotonic()).split() for p in group]
            told = [int(words[3]) for words in lines if len(words) == 4]
            delays.append(max(told) if len(told) == len(group) else None)
        return tuple(delays)

    def kill(self) -> None:
        """Ends every process at once."""
        for process in (process for group in self.processes for process in group):
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                try:
                    pipe.close()
                except BrokenPipeError:  # a word to one that had ended was still kept
                    continue


@dataclass(frozen=True, slots=True)
class Stage:
    """What all windows of a run share: a directory and the client's program."""

    directory: Path
    program: Path
    profile: Profile

    @contextmanager
    def open(self, tenants: Sequence[Tenant], preload: Path | None) -> Iterator[Running]:
        """Starts the processes of some tenants, which then wait to be told to go.

        Args:
            tenants: at least one.
            preload: the library under which they run; None: no slice holds them.

        Raises:
            VgpuError: a process does not start.
        """
        with tempfile.TemporaryDirectory(dir=self.directory) as name, ExitStack() as stack:
            folder = Path(name)
            machine = Machine.create([self.profile], folder / "machine")
            running = Running(machine, tuple(tenants), (), folder / "log")
            if preload is not None:
                running.directories = tuple(
                    self._make_slice(folder / f"slice{i}", machine, tenant, len(tenants))
                    for i, tenant in enumerate(tenants)
                )
                if preload == shim_path():
                    _serve(stack, running)
            stack.callback(running.kill)
            with running.log.open("ab") as log:
                for index, tenant in enumerate(tenants):
                    environment = self._environment(running, index, preload)
                    command = [
                        str(self.program),
                        *tenant.client.arguments(self.profile.memory_bytes_per_second),
                    ]
                    running.processes.append([])
                    for _ in range(tenant.processes):
                        process = subprocess.Popen(
                            command,
                            env=environment,
                            text=True,
                            stderr=log,
                            stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE,
                        )
                        running.processes[-1].append(process)
            for process in (process for group in running.processes for process in group):
                if read_line(process, _START_SECONDS) != "ready\n":
                    process.kill()
                    process.wait()
                    running.look()  # says why
            yield running

    def measure(
        self,
        tenants: Sequence[Tenant],
        preload: Path | None,
        warm_up_seconds: float,
        seconds: float,
        *,
        sampled: bool = False,
    ) -> Window:
        """Measures one window.

        Raises:
            VgpuError: a process fails.
        """
        with self.open(tenants, preload) as running:
            return running.watch(warm_up_seconds, seconds, sampled=sampled)

    def alone(self, client: TenantClient, warm_up_seconds: float, seconds: float) -> float:
        """Returns the percentage of the device that one process takes alone, without any shim."""
        return self.measure([TenantProgram(client)], None, warm_up_seconds, seconds).shares[0]

    def _make_slice(self, directory: Path, machine: Machine, tenant: Tenant, count: int) -> Path:
        device = machine.devices[0]
        limit = DeviceLimit(
            device.uuid,
            device.profile.memory_bytes // count,
            context_bytes=device.profile.context_bytes,
            core_percent=tenant.core_percent,
            compute_mode=tenant.mode,
            weight=tenant.core_percent,
        )
        create(directory, ContainerLimits("bench", Family.VGPU, (limit,)))
        return directory

    def _environment(self, running: Running, index: int, preload: Path | None) -> Mapping[str, str]:
        # A rival is configured through its own variables, its cap through that of HAMi-core.
        passed = {k: v for k, v in os.environ.items() if k.startswith(("CUDA_", "GPU_"))}
        passed |= own_time.passed_on(preload)
        environment = running.machine.environment({"PATH": os.defpath, **passed})
        if preload is not None:
            environment["VGPU_DIR"] = str(running.directories[index])
            if preload != shim_path():
                environment["CUDA_DEVICE_SM_LIMIT"] = str(running.tenants[index].core_percent)
        return environment


def _serve(stack: ExitStack, running: Running) -> None:
    """Starts an arbiter for all slices until ``stack`` ends."""
    running.arbiter = stack.enter_context(Arbiter())
    for directory, tenant in zip(running.directories, running.tenants, strict=True):
        if tenant.mode is not ComputeMode.OFF:  # that one is not arbitrated
            running.arbiter.add(directory, 0)


@contextmanager
def open_stage(
    name: str = "share_client", *further: str, profile: Profile | None = None
) -> Iterator[Stage]:
    """Builds the tenants' program: ``native/<name>.c`` with ``further`` ones.

    Args:
        name: of the program.
        further: sources of it.
        profile: of the GPU; None: one without friction, where what is off is due to the shim.

    Raises:
        VgpuError: there is no compiler, or it fails.
    """
    with built_client(SIM_LIBRARY_DIR / "libcuda.so.1", name, *further) as program:
        yield Stage(program.parent, program, profile or ideal_profile(PROFILE))
