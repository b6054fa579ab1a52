"""The memory watch with a fake NVML and a fake ``/proc`` around it, and the files of real slices.

The locks of its processes' slots are not asked for: who is written into a ledger lives.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.model.agent_config import WatchPolicy
from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.notices import Notice
from deviceplugin.policy.limits.learnt_sizes import MeasuredSizes
from deviceplugin.store.slice_peaks import SlicePeaks
from deviceplugin.watch import process_attribution, procfs, watcher
from deviceplugin.watch.comparison import Charges, ComparedAllocation
from deviceplugin.watch.nvml_processes import GpuReading
from deviceplugin.watch.process_attribution import ProcessAttribution
from deviceplugin.watch.procfs import MountPoint
from deviceplugin.watch.watcher import MemoryWatch
from libvgpu._native import ffi, lib
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from support.node.fake_proc import DEVICE, OTHER_UID, UID, FakeProc, mount_line, pod_path

GPU, OTHER_GPU = "GPU-a", "GPU-b"
GIB, MIB = 1 << 30, 1 << 20
KNOWN, STRAY = 11, 12  # pids


class WatchWorld:
    """A watch whose surroundings are plain values."""

    def __init__(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "deviceplugin")
        self.log = caplog
        self.proc = FakeProc(path / "proc")
        self.proc.path.mkdir()
        self.allocations = path / "run" / "allocations"
        self.allocations.mkdir(parents=True)
        self.now_s = 100.0
        self.readings: dict[str, GpuReading] = {}
        self.gpus = [GPU]
        self.mps_daemons: dict[str, int] = {}
        self.slices: dict[str, tuple[ContainerLimits, ContainerLimits]] = {}  # asked, in force
        self.broken: Exception | None = None
        self.memory: dict[int, int | None] = {}
        self.used_bytes: int | None = None
        self.sizes: list[MeasuredSizes] = []
        self.reads = 0
        self.on_read: Callable[[], object] = lambda: None
        real = procfs.read_mounts

        def read_mounts(pid: int | str, proc: Path = procfs.PROC) -> object:
            here = [MountPoint(DEVICE, "/", str(path / "run"), False)]
            return here if pid == "self" else real(pid, proc)

        monkeypatch.setattr(process_attribution, "read_mounts", read_mounts)
        monkeypatch.setattr(watcher, "has_own_pid_namespace", lambda: False)
        monkeypatch.setattr("libvgpu.ledger_view.is_slot_held", lambda descriptor, slot: True)
        pods = {"a": {UID}, "b": {OTHER_UID}}
        self.watch = MemoryWatch(
            self,
            ProcessAttribution(self.allocations, lambda: pods, self.proc.path),
            WatchPolicy.REPORT,
            SlicePeaks(path),
            self.read,
            lambda: self.now_s,
            mps_daemons=lambda: self.mps_daemons,
        )

    def read(self, uuids: Sequence[str]) -> dict[str, GpuReading]:
        self.reads += 1
        self.on_read()
        if self.broken is not None:
            raise self.broken
        return {u: self.readings.get(u, GpuReading({}, None)) for u in uuids}

    def watched(self) -> list[ComparedAllocation]:
        return [
            ComparedAllocation(
                Allocation(name, Family.VGPU, GPU, GIB, owner=Owner("ns", f"pod-{name}", "c")),
                self.allocations / name,
                asked,
                limits,
            )
            for name, (asked, limits) in self.slices.items()
        ]

    def shared_gpus(self) -> list[str]:
        return self.gpus

    def set_unaccounted(self, charges: Charges) -> None:
        for name, by_gpu in charges.items():
            asked, limits = self.slices[name]
            devices = tuple(
                replace(d, unaccounted_bytes=by_gpu.get(d.uuid, d.unaccounted_bytes))
                for d in limits.devices
            )
            self.slices[name] = asked, replace(limits, devices=devices)

    def note_sizes(self, found: Sequence[MeasuredSizes]) -> None:
        self.sizes.extend(found)

    def add(self, name: str = "a", limit_bytes: int = 8 * GIB, gpu: str = GPU) -> None:
        limits = ContainerLimits(name, Family.VGPU, (DeviceLimit(gpu, limit_bytes),))
        create(self.allocations / name, limits)
        self.slices[name] = limits, limits

    def write_ledger(
        self, used_bytes: int, *pids: int, name: str = "a", start: int = 0, namespace: int = 0
    ) -> None:
        """Writes a ledger with processes that count as living (their locks are not asked for)."""
        path = self.allocations / name / "usage"
        image = bytearray(path.read_bytes())
        file = ffi.from_buffer("unsigned char[]", image)
        ffi.cast("struct vgpu_usage_header *", file).hi_slot = len(pids)
        lib.usage_device(file, 0).total_low = used_bytes
        for slot, pid in enumerate(pids):
            lib.usage_slot(file, slot).gen = 1
            lib.usage_slot(file, slot).pid = pid
            lib.usage_slot(file, slot).start_time_ticks = start
            lib.usage_slot(file, slot).pid_namespace = namespace
        path.write_bytes(image)

    def write_sizes(
        self, context_bytes: int, measured_ns: int, block_bytes: int, name: str = "a"
    ) -> None:
        """Writes what the container says that contexts and blocks take."""
        path = self.allocations / name / "usage"
        image = bytearray(path.read_bytes())
        row = lib.usage_device(ffi.from_buffer("unsigned char[]", image), 0)
        row.context_bytes, row.context_measured_ns = context_bytes, measured_ns
        row.block_bytes = block_bytes
        path.write_bytes(image)

    def put(self, pid: int, memory_bytes: int | None, name: str = "a", **more: Any) -> None:
        """Puts a process of a slice onto the GPU."""
        if name:
            uid = UID if name == "a" else OTHER_UID
            more.setdefault("mounts", mount_line(f"/allocations/{name}/limits"))
            more.setdefault("cgroup", pod_path(uid))
        self.proc.put(pid, **more)
        self.memory[pid] = memory_bytes
        self.tell_nvml()

    def tell_nvml(self) -> None:
        self.readings[GPU] = GpuReading(dict(self.memory), self.used_bytes)

    def look(self, count: int = 4) -> None:
        for _ in range(count):
            self.watch.look()
            self.now_s += 1.05

    def charged(self, name: str = "a") -> int:
        return self.slices[name][1].devices[0].unaccounted_bytes

    @property
    def messages(self) -> list[str]:
        """What was logged."""
        return [record.message for record in self.log.records]

    @property
    def notices(self) -> list[Notice | None]:
        """What of the log becomes Events."""
        return [record.__dict__["notice"] for record in self.log.records]
