"""`ps` and `status` show what the files say, and survive what a tenant writes into them."""

import fcntl
import json
import mmap
import os
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu import _native
from libvgpu.limits import ComputeMode, DeviceLimit, Family
from libvgpu.slices import read_slices
from support.made_slices import make_slice
from support.shim.grants import Grants
from vgpuctl.__main__ import main
from vgpuctl.observe import SeenGpu, gpu_rows, process_rows
from vgpuctl.run.requests import GpuCandidate

ffi, lib = _native.ffi, _native.lib
MIB, GIB = 1 << 20, 1 << 30
A, B = "GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-0000"
FLOCK = struct.Struct("hhxxxxqqixxxx")


class UsedSlot:
    """One process's slot in a `usage` file, alive as long as this holds its lock."""

    def __init__(self, directory: Path, slot: int, pid: int, name: bytes) -> None:
        self.descriptor = os.open(directory / "usage", os.O_RDWR)
        self.slot = slot
        self._lock(fcntl.F_WRLCK, lib.VGPU_LOCK_CLAIM)
        self._lock(fcntl.F_WRLCK, lib.VGPU_LOCK_LIFE)
        self.area = mmap.mmap(self.descriptor, 0)
        view = ffi.from_buffer("unsigned char[]", self.area, require_writable=True)
        header = ffi.cast("struct vgpu_usage_header *", view)
        header.hi_slot = max(header.hi_slot, slot + 1)
        row = lib.usage_slot(view, slot)
        row.gen, row.pid, row.command = 1, pid, name
        self.view = view

    def _lock(self, kind: int, which: int) -> None:
        at = lib.VGPU_LOCK_BASE + 2 * self.slot + which
        lock = FLOCK.pack(kind, os.SEEK_SET, at, 1, 0)
        fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLK, lock)

    def ends_before_its_children(self) -> None:
        self._lock(fcntl.F_UNLCK, lib.VGPU_LOCK_CLAIM)

    def uses(self, device: int, used_bytes: int, refused: int = 0) -> None:
        row = lib.usage_slot_device(self.view, self.slot, device)
        row.bytes = row.peak_bytes = used_bytes
        row.launches, row.gpu_time_ns, row.held_ns = 10, 1_500_000_000, 250_000_000
        row.refused_count = refused
        if refused:
            row.refused_asked_bytes, row.refused_used_bytes = 64 * MIB, used_bytes
            row.refused_limit_bytes, row.refused_kind = GIB, 1
            row.refused_at_ns = time.time_ns()
        lib.usage_device(self.view, device).total_low += used_bytes

    def had_lately(self, device: int, gpu_time_ns: int, of_ns: int) -> None:
        """Lets a sample have been taken ``of_ns`` ago, and the rest be used since."""
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        lib.utilisation_sample(self.view, device, now_ns - of_ns)
        lib.usage_slot_device(self.view, self.slot, device).gpu_time_ns += gpu_time_ns

    def dies(self) -> None:
        if self.descriptor >= 0:
            ffi.release(self.view)
            self.area.close()
            os.close(self.descriptor)
            self.descriptor = -1


@pytest.fixture
def tenants() -> Iterator[list[UsedSlot]]:
    made: list[UsedSlot] = []
    yield made
    for tenant in made:
        tenant.dies()


def test_each_process_on_each_gpu_it_uses_is_a_row(tmp_path: Path, tenants: list[UsedSlot]) -> None:
    # GIVEN a container with two GPUs, one process on both and one on the second
    directory = make_slice(
        tmp_path,
        "pod-1",
        DeviceLimit(A, GIB, core_percent=30),
        DeviceLimit(B, 2 * GIB, core_percent=70),
        namespace="team-a",
        pod="train",
        container="main",
    ).directory
    tenants += [UsedSlot(directory, 0, 7, b"python3"), UsedSlot(directory, 1, 8, b"helper")]
    tenants[0].uses(0, 64 * MIB, refused=3)
    tenants[0].uses(1, 32 * MIB)
    tenants[1].uses(1, 16 * MIB)

    # WHEN looked at
    rows = process_rows(read_slices(tmp_path))

    # THEN each pair is one row with its own bytes and the container's
    seen = [
        (r["gpu_uuid"], r["pid"], r["memory_used_bytes"], r["container_memory_used_bytes"])
        for r in rows
    ]
    assert seen == [
        (A, 7, 64 * MIB, 64 * MIB),
        (B, 7, 32 * MIB, 48 * MIB),
        (B, 8, 16 * MIB, 48 * MIB),
    ]
    first = rows[0]
    assert (first["namespace"], first["pod"], first["container"]) == ("team-a", "train", "main")
    assert (first["process"], first["state"], first["core_percent"]) == ("python3", "running", 30)
    assert (first["gpu_time_seconds"], first["held_seconds"]) == (1.5, 0.25)
    assert first["refused_count"] == 3
    refusal = first["last_refusal"]
    assert isinstance(refusal, dict)
    assert (refusal["asked_bytes"], refusal["limit_bytes"], refusal["kind"]) == (
        64 * MIB,
        GIB,
        "async",
    )


def test_a_dead_process_is_no_row_and_its_bytes_are_free(
    tmp_path: Path, tenants: list[UsedSlot]
) -> None:
    directory = make_slice(tmp_path, "pod-1", DeviceLimit(A, GIB)).directory
    tenants += [UsedSlot(directory, 0, 7, b"dead"), UsedSlot(directory, 1, 8, b"alive")]
    tenants[0].uses(0, 512 * MIB)
    tenants[1].uses(0, 16 * MIB)
    tenants[0].dies()

    (row,) = process_rows(read_slices(tmp_path))

    assert (row["pid"], row["container_memory_used_bytes"]) == (8, 16 * MIB)


def test_a_slice_without_a_process_is_one_idle_row_per_gpu(tmp_path: Path) -> None:
    make_slice(tmp_path, "pod-1", DeviceLimit(A, GIB), DeviceLimit(B, GIB))

    rows = process_rows(read_slices(tmp_path))

    assert [(r["gpu_uuid"], r["pid"], r["state"]) for r in rows] == [
        (A, None, "idle"),
        (B, None, "idle"),
    ]


def test_the_share_shown_is_the_one_that_holds_in_its_family(tmp_path: Path) -> None:
    limit = DeviceLimit(
        A, GIB, core_percent=100, compute_mode=ComputeMode.OFF, mps_thread_percentage=50
    )
    make_slice(tmp_path, "pod-1", limit, family=Family.MPS)

    (row,) = process_rows(read_slices(tmp_path))

    assert (row["family"], row["core_percent"], row["compute"]) == ("mps", 50, "off")


@pytest.mark.parametrize(("pipe", "shown"), [("", "free"), ("/run/vgpu/mps", "free, mps")])
def test_clients_of_an_mps_server_are_told_from_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pipe: str, shown: str
) -> None:
    directory = make_slice(
        tmp_path, "pod-1", DeviceLimit(A, GIB, mps_pipe_directory=pipe)
    ).directory
    with Grants(directory) as grants:
        grants.publish("free")
        (row,) = process_rows(read_slices(tmp_path))
        assert main(["ps", "--run-dir", str(tmp_path)]) == 0
    assert row["concurrency"] == ("mps" if pipe else "time-slices")
    assert f"  {shown}  " in capsys.readouterr().out

    (gpu,) = gpu_rows([], read_slices(tmp_path))
    assert gpu["concurrency"] == row["concurrency"]


def test_the_books_of_compute_are_shown(
    tmp_path: Path, tenants: list[UsedSlot], capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a capped process that had 60 of the last 200 ms, and 1 of 50 held launches waited long
    directory = make_slice(tmp_path, "pod-1", DeviceLimit(A, GIB, core_percent=30)).directory
    tenants.append(UsedSlot(directory, 0, 7, b"python3"))
    tenants[0].uses(0, MIB)
    counters = lib.usage_slot_device(tenants[0].view, 0, 0)
    counters.gpu_time_ns -= 60_000_000
    tenants[0].had_lately(0, 60_000_000, of_ns=200_000_000)
    counters.windows = 77
    for waited_ms in [2] * 48 + [90] * 2:
        lib.wait_histogram_note(counters, waited_ms * 1_000_000)

    (row,) = process_rows(read_slices(tmp_path))
    assert main(["ps", "--run-dir", str(tmp_path)]) == 0

    assert (row["launches"], row["windows"], row["estimated"]) == (10, 77, False)
    assert row["share_percent"] in range(20, 31)  # it is read a moment later
    assert isinstance(row["delay_p99_seconds"], float)
    assert 0.045 <= row["delay_p99_seconds"] <= 0.18
    shown = capsys.readouterr().out
    assert "1.5s" in shown and "~" not in shown


@pytest.mark.parametrize(
    ("granted", "age_s", "shown"),
    [
        (lib.VGPU_GRANT_NONE, 0, "none"),
        (lib.VGPU_GRANT_FREE, 60, "free"),  # an idle GPU has no beat
        (lib.VGPU_GRANT_SHARED, 0, "shared"),
        (lib.VGPU_GRANT_WINDOWS, 0, "windows"),
        (lib.VGPU_GRANT_WINDOWS, 2, "none"),  # the arbiter has died
    ],
)
def test_how_a_gpu_is_shared_is_what_its_arbiter_granted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], granted: int, age_s: int, shown: str
) -> None:
    limits = DeviceLimit(A, GIB, core_percent=30), DeviceLimit(B, GIB, core_percent=30)
    directory = make_slice(tmp_path, "pod-1", *limits).directory
    image = bytearray((directory / "limits").read_bytes())
    header = ffi.cast("struct vgpu_limits_header *", ffi.from_buffer(image))
    at = header.grant_offset + header.grant_stride  # the second device's
    grant = ffi.cast("struct vgpu_grant *", ffi.from_buffer(image) + at)
    grant.mode, grant.beat_ns = granted, time.monotonic_ns() - age_s * 10**9
    (directory / "limits").chmod(0o600)
    (directory / "limits").write_bytes(image)

    rows = process_rows(read_slices(tmp_path))
    assert main(["ps", "--run-dir", str(tmp_path)]) == 0

    assert [row["mode"] for row in rows] == ["none", shown]
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("family", "limit", "is_flagged", "estimated"),
    [
        (Family.VGPU, DeviceLimit(A, GIB), True, True),
        (Family.VGPU, DeviceLimit(A, GIB), False, True),  # no cap: not all of it is measured
        (Family.VGPU, DeviceLimit(A, GIB, core_percent=30), True, True),  # uncapped for a while
        (Family.VGPU, DeviceLimit(A, GIB, core_percent=30), False, False),
        (Family.MPS, DeviceLimit(A, GIB, core_percent=30), True, True),
    ],
)
def test_estimates_are_flagged(
    tmp_path: Path,
    tenants: list[UsedSlot],
    capsys: pytest.CaptureFixture[str],
    family: Family,
    limit: DeviceLimit,
    is_flagged: bool,
    estimated: bool,
) -> None:
    directory = make_slice(tmp_path, "pod-1", limit, family=family).directory
    tenants.append(UsedSlot(directory, 0, 7, b"python3"))
    tenants[0].uses(0, MIB)
    lib.usage_slot_device(tenants[0].view, 0, 0).books = int(is_flagged)

    (row,) = process_rows(read_slices(tmp_path))
    assert main(["ps", "--run-dir", str(tmp_path)]) == 0

    assert (row["gpu_time_seconds"], row["estimated"]) == (1.5, estimated)
    assert ("~1.5s" in capsys.readouterr().out) == estimated


def test_gpu_time_that_nobody_sampled_is_unknown_and_not_zero(
    tmp_path: Path, tenants: list[UsedSlot]
) -> None:
    directory = make_slice(tmp_path, "pod-1", DeviceLimit(A, GIB)).directory
    tenants.append(UsedSlot(directory, 0, 7, b"python3"))
    tenants[0].uses(0, MIB)
    lib.usage_slot_device(tenants[0].view, 0, 0).gpu_time_ns = 0

    (row,) = process_rows(read_slices(tmp_path))

    assert [row[key] for key in ("launches", "gpu_time_seconds", "share_percent", "estimated")] == [
        None
    ] * 4


def test_a_run_whose_owner_is_dead_is_abandoned(tmp_path: Path) -> None:
    make_slice(tmp_path, "run-1", DeviceLimit(A, GIB), source="run")

    (row,) = process_rows(read_slices(tmp_path))

    assert row["state"] == "abandoned"


@pytest.mark.parametrize("name", ["limits", "usage"])
@pytest.mark.parametrize("content", [b"", b"\xff" * 4096, None])
def test_a_damaged_file_is_a_row_that_says_so(
    tmp_path: Path, name: str, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = make_slice(
        tmp_path, "pod-1", DeviceLimit(A, GIB), namespace="n", pod="p", container="c"
    ).directory
    (directory / name).unlink()
    if content is not None:
        (directory / name).write_bytes(content)

    assert main(["ps", "--run-dir", str(tmp_path)]) == 0

    captured = capsys.readouterr()
    assert "n/p/c" in captured.out
    assert "damaged" in captured.out
    assert f"damaged: {directory / name}" in captured.err


def test_no_garbage_in_usage_makes_ps_or_status_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a usage file that keeps its header and holds random bytes behind it, slots in use
    directory = make_slice(tmp_path, "pod-1", DeviceLimit(A, GIB)).directory
    usage = directory / "usage"
    whole = usage.read_bytes()
    header_bytes = ffi.sizeof("struct vgpu_usage_header")
    randomness = random.Random(7)
    for _ in range(5):
        garbage = bytearray(whole[:header_bytes] + randomness.randbytes(len(whole) - header_bytes))
        header = ffi.cast("struct vgpu_usage_header *", ffi.from_buffer(garbage))
        header.hi_slot = 0xFFFFFFFF
        usage.write_bytes(garbage)
        for verb in ("ps", "status"):
            for output in ("table", "json"):
                # WHEN looked at, THEN it is only wrong, and shows no control characters
                assert main([verb, "--run-dir", str(tmp_path), "-o", output]) == 0
                out = capsys.readouterr().out
                assert out.replace("\n", "").isprintable()


def test_status_adds_up_what_is_given_away_on_each_gpu(
    tmp_path: Path, tenants: list[UsedSlot]
) -> None:
    first = make_slice(tmp_path, "pod-1", DeviceLimit(A, 16 * GIB, core_percent=30)).directory
    make_slice(tmp_path, "pod-2", DeviceLimit(A, 32 * GIB, core_percent=70))
    make_slice(tmp_path, "pod-3", DeviceLimit(B, GIB, core_percent=5))
    tenants.append(UsedSlot(first, 0, 7, b"x"))
    tenants[0].uses(0, 3 * MIB)

    rows = gpu_rows(
        [SeenGpu(GpuCandidate(0, A, "NVIDIA X", 80 * GIB), "driver")], read_slices(tmp_path)
    )

    assert [
        (r["uuid"], r["source"], r["containers"], r["core_allocated_percent"]) for r in rows
    ] == [
        (A, "driver", 2, 100),
        (B, "limits", 1, 5),
    ]
    assert (rows[0]["memory_allocated_bytes"], rows[0]["memory_used_bytes"]) == (48 * GIB, 3 * MIB)
    assert (rows[1]["index"], rows[1]["memory_total_bytes"]) == (None, None)


def test_ps_of_a_directory_that_is_not_there_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ps", "--run-dir", str(tmp_path / "absent"), "-o", "json"]) == 0

    assert json.loads(capsys.readouterr().out) == []
    assert not (tmp_path / "absent").exists()


def test_memory_that_several_processes_hold_is_a_row_marked_by_its_maker(
    tmp_path: Path, tenants: list[UsedSlot], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = make_slice(tmp_path, "pod-1", DeviceLimit(A, GIB)).directory
    tenants += [UsedSlot(directory, 0, 7, b"maker"), UsedSlot(directory, 1, 7, b"maker")]
    tenants[0].uses(0, 64 * MIB)
    tenants[1].uses(0, 32 * MIB)
    lib.usage_slot(tenants[1].view, 1).pieces_device = 1

    rows = process_rows(read_slices(tmp_path))
    assert main(["ps", "--run-dir", str(tmp_path)]) == 0

    assert [(r["pid"], r["shared_memory"], r["memory_used_bytes"]) for r in rows] == [
        (7, False, 64 * MIB),
        (7, True, 32 * MIB),
    ]
    assert "7 (shared)" in capsys.readouterr().out


def test_what_children_keep_of_a_process_that_has_ended_is_in_use_and_says_so(
    tmp_path: Path, tenants: list[UsedSlot], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = make_slice(tmp_path, "pod-1", DeviceLimit(A, GIB)).directory
    tenants += [UsedSlot(directory, 0, 7, b"parent"), UsedSlot(directory, 1, 8, b"other")]
    tenants[0].uses(0, 64 * MIB)
    tenants[1].uses(0, 32 * MIB)
    tenants[0].ends_before_its_children()

    rows = process_rows(read_slices(tmp_path))
    assert main(["ps", "--run-dir", str(tmp_path)]) == 0

    seen = [(r["pid"], r["ended"], r["container_memory_used_bytes"]) for r in rows]
    assert seen == [(7, True, 96 * MIB), (8, False, 96 * MIB)]
    assert "7 (ended)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("percent", "pinned_mib", "pending"),
    [
        (50, 1024, []),
        (80, 1024, ["core"]),
        (80, 512, ["core", "memory"]),
        (50, 2048, []),  # less holds at once, by the shim
        (0, 0, []),  # began before anybody wrote it down
    ],
)
def test_what_waits_for_the_next_start_of_a_client_of_mps_is_pending(
    tmp_path: Path,
    tenants: list[UsedSlot],
    capsys: pytest.CaptureFixture[str],
    percent: int,
    pinned_mib: int,
    pending: list[str],
) -> None:
    limit = DeviceLimit(A, GIB, mps_thread_percentage=50, mps_pinned_bytes=GIB)
    directory = make_slice(tmp_path, "pod-1", limit, family=Family.MPS).directory
    tenants.append(UsedSlot(directory, 0, 7, b"python3"))
    row = lib.usage_slot(tenants[0].view, 0)
    row.mps_thread_percentage, row.mps_pinned_mib = percent, pinned_mib

    (shown,) = process_rows(read_slices(tmp_path))
    assert main(["ps", "--run-dir", str(tmp_path)]) == 0

    assert shown["pending"] == pending
    said = capsys.readouterr().out
    assert ("50% pending" in said) == ("core" in pending)
    assert ("1 GiB pending" in said) == ("memory" in pending)


def test_json_keeps_the_documented_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from vgpuctl.commands import ps, status

    make_slice(tmp_path, "pod-1", DeviceLimit(A, GIB))
    for verb, module in (("ps", ps), ("status", status)):
        assert main([verb, "--run-dir", str(tmp_path), "-o", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        (row,) = [r for r in rows if A in (r.get("gpu_uuid"), r.get("uuid"))]
        documented = module.__doc__ or ""
        assert [key for key in row if key not in documented.replace("\n", " ")] == []
