"""The agent's memory on disk, the container's files, and the config file being followed."""

import json
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.overrides import Override
from deviceplugin.policy.limits.asked import asked_limits
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.disk import Disk
from deviceplugin.store.slice_files import SliceStore
from libvgpu import allocation_dirs, artifacts, region
from libvgpu.errors import VgpuError
from libvgpu.limits import ComputeMode, Family
from support.waiting import PATIENCE_S

HELD = Allocation(
    "id", Family.MPS, "GPU-0", 1 << 30, core=("GPU-0::c0", "GPU-0::c7"), memory=("GPU-0::m0",),
    settled=True, changed_at=5.5, owner=Owner("a", "b", "c"), shim_build="ab12",
)  # fmt: skip
LONE = Allocation(
    "id2", Family.VGPU, "GPU-1", 1 << 30, core=("GPU-1::c0",), implicit_units=("GPU-1::m9",)
)

#: As every agent since version 2 has it, whichever wrote it.
VERSION_2 = (
    b'413d9698 {"version":2,"snapshot":1}\n'
    b'8c6c3d0a {"put":[{"allocation_id":"id","family":"MPS","uuid":"GPU-0",'
    b'"memory_unit_bytes":1024}]}\n'
    b'c3dd977f {"put":[{"allocation_id":"id2","family":"VGPU","uuid":"GPU-1",'
    b'"memory_unit_bytes":1073741824,"core":["GPU-1::c0"],"implicit_units":["GPU-1::m9"]}],'
    b'"drop":["id"]}\n'
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SliceStore:
    source, shim = tmp_path / "shim.c", tmp_path / "libvgpu.so"
    source.write_text("int nothing;\n")
    command = ["cc", "-shared", "-Wl,--build-id=sha1", "-o", str(shim), str(source)]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    monkeypatch.setattr(artifacts, "SHIM_PATH", shim)
    store = SliceStore(tmp_path / "run", tmp_path / "state")
    store.prepare()
    return store


def test_no_file_is_the_empty_state(tmp_path: Path) -> None:
    loaded = Checkpoint(tmp_path).load()

    assert loaded.allocations == ()
    assert loaded.problem is None
    assert not loaded.trusted, "what a lost checkpoint does not name must not be removed"


#: A name that is no text: it cannot be written again.
SURROGATE = {**asdict(LONE), "family": LONE.family.name, "uuid": "\ud800"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version": 9, "allocations": []}',
        '{"version": 1, "allocations": [{"family": "X"}]}',
        json.dumps({"version": 1, "allocations": [SURROGATE]}),
        '{"version": ' + "[" * 100_000,
        f"{zlib.crc32(b'[' * 100_000):08x} {'[' * 100_000}\n",
    ],
)
def test_a_damaged_file_is_put_aside_and_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "checkpoint.json").write_text(content)

    loaded = Checkpoint(tmp_path).load()

    assert "is damaged" in str(loaded.problem)
    assert (tmp_path / "checkpoint.damaged").read_text() == content
    assert not loaded.trusted


def test_a_file_of_the_first_version_is_read_and_written_anew(tmp_path: Path) -> None:
    twice = (HELD, LONE, HELD)
    rows = [{**asdict(h), "family": h.family.name, "of_a_newer_agent": [1]} for h in twice]
    del rows[1]["shim_build"], rows[1]["missing_since"]  # of an older one
    path = tmp_path / "checkpoint.json"
    path.write_text(json.dumps({"version": 1, "allocations": rows}))

    assert Checkpoint(tmp_path).load().allocations == (HELD, LONE)
    assert not path.read_bytes().startswith(b"{")
    assert Checkpoint(tmp_path).load().allocations == (HELD, LONE)


def test_a_file_of_another_agents_is_read_and_written_in_the_same_form(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.path.write_bytes(VERSION_2)

    loaded = checkpoint.load()

    assert (loaded.allocations, loaded.problem, loaded.trusted) == ((LONE,), None, True)
    assert checkpoint.path.read_bytes().splitlines()[0] == VERSION_2.splitlines()[0]


def test_what_was_set_is_kept_in_words_as_every_version_has_it(tmp_path: Path) -> None:
    said = {"core_percent": None, "memory_bytes": 5, "compute": "off"}
    rows = [{**asdict(HELD), "family": HELD.family.name, "override": said}]
    checkpoint = Checkpoint(tmp_path)
    checkpoint.path.write_text(json.dumps({"version": 1, "allocations": rows}))

    (found,) = checkpoint.load().allocations

    assert found == replace(HELD, override=Override(None, 5, ComputeMode.OFF))
    assert b'"override":{"memory_bytes":5,"compute":"off"}' in checkpoint.path.read_bytes()
    assert Checkpoint(tmp_path).load().allocations == (found,)


def test_moments_of_a_monotonic_clock_are_not_kept(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.record([replace(HELD, changed_at=7.0, changed_s=9.0, missing_since=9.5)])

    assert Checkpoint(tmp_path).load().allocations == (replace(HELD, changed_at=7.0),)
    # An agent of before kept when one was missed first, by the wall clock.
    rows = [{**asdict(LONE), "family": LONE.family.name, "missing_since": 1.7e9}]
    checkpoint.path.write_text(json.dumps({"version": 1, "allocations": rows}))
    assert Checkpoint(tmp_path).load().allocations == (LONE,)


def test_a_change_of_one_costs_no_rewriting_of_a_thousand(tmp_path: Path) -> None:
    many = [replace(HELD, allocation_id=str(n)) for n in range(1000)]
    checkpoint = Checkpoint(tmp_path)
    checkpoint.record(many)
    before = checkpoint.path.stat()

    checkpoint.record([LONE])

    after = checkpoint.path.stat()
    assert after.st_ino == before.st_ino
    assert after.st_size - before.st_size < 1000
    assert not checkpoint.compact(), "it was not due"


class DiskInUse(Disk):
    """Has something happen while a checkpoint is compacted."""

    meanwhile: Callable[[], object]

    def create(self, path: Path) -> int:
        if path.suffix == ".compact":
            self.meanwhile()
        return super().create(path)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_long_journal_is_made_short_while_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    monkeypatch.setattr("deviceplugin.store.checkpoint.COMPACT_SLACK_BYTES", 30_000)
    disk = DiskInUse()
    checkpoint = Checkpoint(tmp_path, disk)
    checkpoint.record([HELD])
    for n in range(200):
        checkpoint.record([replace(LONE, changed_at=float(n))])
    length = checkpoint.path.stat().st_size

    def write() -> None:
        checkpoint.record([replace(HELD, allocation_id="busy")])
        if is_replaced:
            checkpoint.load()

    disk.meanwhile = write
    assert checkpoint.compact() is not is_replaced

    last = Checkpoint(tmp_path).load().allocations
    assert [h.allocation_id for h in last] == ["id", "id2", "busy"]
    assert last == tuple(checkpoint._live.values())
    assert checkpoint.path.stat().st_size < length
    assert not checkpoint.compact()


@pytest.mark.process
def test_a_changed_limit_keeps_the_files_and_a_damaged_one_is_made_anew(
    store: SliceStore,
) -> None:
    directory = store.directory(HELD.allocation_id)
    store.put(HELD, asked_limits(HELD, ComputeMode.STRICT))
    inode = (directory / "limits").stat().st_ino
    more = replace(HELD, memory=("GPU-0::m0", "GPU-0::m1"))

    before = store.put(more, asked_limits(more, ComputeMode.STRICT))

    assert before == asked_limits(HELD, ComputeMode.STRICT)
    assert (directory / "limits").stat().st_ino == inode
    assert allocation_dirs.read_meta(directory).pod == "b"
    (directory / "limits").chmod(0o600)
    (directory / "limits").write_bytes(b"x" * 100)
    store.put(more, asked_limits(more, ComputeMode.STRICT))
    assert region.read_limits(directory).limits == asked_limits(more, ComputeMode.STRICT)


@pytest.mark.process
def test_files_of_a_build_without_rings_get_one_and_stay(store: SliceStore) -> None:
    directory = store.directory(HELD.allocation_id)
    limits = asked_limits(HELD, ComputeMode.STRICT)
    store.put(HELD, limits)
    (directory / "ring").unlink()
    inodes = [(directory / name).stat().st_ino for name in ("limits", "usage")]

    store.put(HELD, limits)

    assert (directory / "ring").is_fifo()
    assert [(directory / name).stat().st_ino for name in ("limits", "usage")] == inodes
    store.remove(HELD.allocation_id)
    assert not directory.exists()


@pytest.mark.process
def test_an_old_build_of_the_shim_that_is_gone_stops_the_start(store: SliceStore) -> None:
    with pytest.raises(VgpuError, match="build ab12 of libvgpu"):
        store.put_back(HELD, asked_limits(HELD, ComputeMode.STRICT))


@pytest.mark.process
def test_only_the_kubelets_unknown_allocations_are_swept(store: SliceStore) -> None:
    for allocation_id, source in (("old", "kubelet"), ("known", "kubelet"), ("mine", "run")):
        directory = store.directory(allocation_id)
        allocation = replace(HELD, allocation_id=allocation_id)
        region.create(directory, asked_limits(allocation, ComputeMode.STRICT))
        meta = allocation_dirs.AllocationMeta(allocation_id, "mps", source, 1.0)
        allocation_dirs.write_meta(directory, meta)

    half_made = ("0123456789ab", "cafecafecafe", "run-7-0123abcd")  # the last by vgpuctl run
    for allocation_id in half_made:
        store.directory(allocation_id).mkdir()
        (store.directory(allocation_id) / "lock").touch()

    assert store.sweep({"known", "cafecafecafe"}) == ["0123456789ab", "old"]
    left = {each.name for each in (store.run_dir / "allocations").iterdir()}
    assert left == {"known", "mine", "cafecafecafe", "run-7-0123abcd"}
