"""The kubelet's checkpoint as a witness: what it says, and what is no witness."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deviceplugin.kubelet.answer_codec import mounts_of
from deviceplugin.recovery import kubelet_checkpoint as module
from deviceplugin.recovery.kubelet_checkpoint import KubeletCheckpoint, KubeletEntry
from support.node.kubelet_file import content, row, write

CORE, MEMORY = "nvidia.com/vgpu-core", "nvidia.com/vgpu-memory"


class Moment:
    """A monotonic clock that a test sets."""

    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def reader(tmp_path: Path, clock: Callable[[], float] = time.monotonic) -> KubeletCheckpoint:
    return KubeletCheckpoint(tmp_path, "nvidia.com", mounts_of, clock)


def test_our_entries_are_read_with_their_mounts(tmp_path: Path) -> None:
    rows = [
        row(CORE, {"1": ["GPU-0::c2", "GPU-0::c1"]}),
        row("example.com/nic", ["nic-0"], response=b"\xff\xff"),
        row(MEMORY, {"0": ["GPU-0::m0"], "1": ["GPU-0::m0", "GPU-0::m1"]}, container="init"),
    ]
    write(tmp_path, content(rows, BootID="of a newer kubelet"))

    found = reader(tmp_path).read()

    assert found.problem is None
    assert found.entries == (
        KubeletEntry(
            "pod-1",
            "c0",
            CORE,
            ("GPU-0::c1", "GPU-0::c2"),
            {
                "/run/vgpu/limits": "/run/vgpu/allocations/x1/limits",
                "/run/vgpu/lib/ab12/libvgpu.so": "/var/lib/vgpu/lib/ab12/libvgpu.so",
            },
        ),
        KubeletEntry("pod-1", "init", MEMORY, ("GPU-0::m0", "GPU-0::m1"), found.entries[0].mounts),
    )


def test_units_of_old_kubelets_are_a_plain_list(tmp_path: Path) -> None:
    entry = row(CORE, [])
    entry["DeviceIDs"] = ["GPU-0::c1", "GPU-0::c0"]
    write(tmp_path, content([entry]))

    (found,) = reader(tmp_path).read().entries

    assert found.units == ("GPU-0::c0", "GPU-0::c1")


@pytest.mark.parametrize("rows", [None, []])
def test_a_kubelet_without_devices_is_a_witness_of_nothing(tmp_path: Path, rows: object) -> None:
    write(tmp_path, content(rows))  # type: ignore[arg-type]

    assert reader(tmp_path).read() == module.CheckpointReading(())


def test_an_answer_that_is_none_has_no_mounts(tmp_path: Path) -> None:
    missing = row(CORE, ["GPU-0::c0"])
    missing["AllocResp"] = None
    write(tmp_path, content([row(CORE, ["GPU-0::c1"], response=b"\xff\xff\xff"), missing]))

    assert [dict(e.mounts) for e in reader(tmp_path).read().entries] == [{}, {}]


WHOLE = content([row(CORE, ["GPU-0::c1"])])


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0" * 100, b"[]", b"{}", b'{"Data":null}', b'{"Data":{"PodDeviceEntries":{}}}',
        b"\xff\xfe", b'{"x":' + b"[" * 100_000, WHOLE.replace(b'"c0"', b"7"),
        WHOLE.replace(b'"AllocResp": "', b'"AllocResp": "!'),
        WHOLE.replace(b"GPU-0::c1", b"\xff"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_no_witness_and_says_why(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, data)

    found = reader(tmp_path).read()

    assert found.entries == ()
    assert "kubelet_internal_checkpoint is not a kubelet checkpoint: " in str(found.problem)


def test_a_torn_file_is_no_witness_wherever_it_ends(tmp_path: Path) -> None:
    for length in range(len(WHOLE)):
        write(tmp_path, WHOLE[:length])
        assert reader(tmp_path).read().problem is not None, length


def test_a_missing_file_a_directory_a_fifo_and_a_flood_are_no_witness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = reader(tmp_path)
    assert "cannot be read: No such file" in str(there.read().problem)
    path = write(tmp_path, WHOLE)
    assert there.read().problem is None

    path.unlink()
    assert "cannot be read: No such file" in str(there.read().problem)
    os.mkfifo(path)
    assert "is not a plain file" in str(there.read().problem)
    path.unlink()
    path.mkdir()
    assert "is not a plain file" in str(there.read().problem)
    path.rmdir()
    monkeypatch.setattr(module, "MOST_BYTES", len(WHOLE) - 1)
    write(tmp_path, WHOLE)
    assert f"more than the {len(WHOLE) - 1} bytes" in str(there.read().problem)


def test_a_file_that_has_not_changed_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, WHOLE)
    moment = Moment()
    asked = reader(tmp_path, moment)
    asked.read()
    moment.now_s += 2 * module.SETTLED_AFTER_S
    first = asked.read()
    reads = []
    monkeypatch.setattr(module, "_read", lambda path: reads.append(path))

    assert asked.read() is first
    assert not reads


@pytest.mark.parametrize("age_s", [0, 3600, -3600], ids=["now", "an hour ago", "in an hour"])
def test_a_change_is_seen_and_one_of_the_same_moment_too(tmp_path: Path, age_s: int) -> None:
    path = write(tmp_path, WHOLE)
    # The time of the file is the wall clock's, which may have been set since it was written.
    stamp_ns = path.stat().st_mtime_ns - age_s * 1_000_000_000
    os.utime(path, ns=(stamp_ns, stamp_ns))
    moment = Moment()
    asked = reader(tmp_path, moment)
    assert asked.read().entries[0].pod_uid == "pod-1"

    # The same inode, size and time: what two writes within one tick of the clock leave.
    path.write_bytes(WHOLE.replace(b"pod-1", b"pod-2"))
    os.utime(path, ns=(stamp_ns, stamp_ns))

    assert asked.read().entries[0].pod_uid == "pod-2"
    moment.now_s += 2 * module.SETTLED_AFTER_S
    assert asked.read().entries[0].pod_uid == "pod-2"
    write(tmp_path, content([]))
    assert asked.read().entries == ()
