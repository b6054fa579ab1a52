"""The config that was last accepted, on disk."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.model.agent_config import ConfigText
from deviceplugin.policy.devices.gpu_numbers import NO_RECORD, GpuRecord, RecordedGpu
from deviceplugin.store.disk import Disk
from deviceplugin.store.kept_config import FILE, KeptConfig
from libvgpu.errors import ConfigError

FIRST = ConfigText("/etc/vgpu/config.yaml", "version: v1\n# é\r\n")
SECOND = ConfigText("/etc/vgpu/a100", "version: v1\nlimits: []\n", "a100", "label x")


def test_what_is_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    assert KeptConfig(tmp_path).load() is None
    for text in (FIRST, SECOND):
        KeptConfig(tmp_path).keep(text)

        assert KeptConfig(tmp_path).load() == text
    assert [each.name for each in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


RECORD = GpuRecord(frozenset("1"), (RecordedGpu(0, "GPU-a", "A"), RecordedGpu(1, "GPU-b", "B")))


def test_which_gpu_had_which_index_comes_back_too(tmp_path: Path) -> None:
    KeptConfig(tmp_path).keep(FIRST, RECORD)
    kept = KeptConfig(tmp_path)

    assert kept.load() == FIRST
    assert kept.record == RECORD
    KeptConfig(tmp_path).keep(FIRST)  # as an earlier version writes it
    assert kept.load() == FIRST
    assert kept.record == NO_RECORD


def test_an_index_that_is_no_number_is_damage(tmp_path: Path) -> None:
    KeptConfig(tmp_path).keep(FIRST, RECORD)
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(re.sub(r"(\"gpus\": \[\s*\[\s*)0", r"\1Infinity", text))

    with pytest.raises(ConfigError, match="is damaged"):
        KeptConfig(tmp_path).load()


class FailingDisk(Disk):
    """Fails the call of one name, with nothing or half of it done, and counts all."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0

    def __getattribute__(self, name: str) -> Any:
        if name != object.__getattribute__(self, "name"):
            return object.__getattribute__(self, name)

        def fail(*arguments: Any) -> None:
            self.calls += 1
            if name == "write":
                Disk.write(self, arguments[0], arguments[1][:9], arguments[2])
            raise OSError(28, "No space left on device")

        return fail


@pytest.mark.parametrize("name", ["create", "write", "sync", "rename"])
def test_a_full_disk_leaves_the_one_before_and_is_tried_again(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    KeptConfig(tmp_path).keep(FIRST)
    disk = FailingDisk(name)
    kept = KeptConfig(tmp_path, disk)

    kept.keep(SECOND)
    kept.look()

    assert disk.calls == 2
    assert KeptConfig(tmp_path).load() == FIRST
    assert len([m for m in caplog.messages if "not saved" in m]) == 1
    disk.name = ""
    kept.look()
    assert KeptConfig(tmp_path).load() == SECOND


def test_what_is_on_disk_is_not_written_again(tmp_path: Path) -> None:
    KeptConfig(tmp_path).keep(FIRST)
    disk = FailingDisk("create")
    kept = KeptConfig(tmp_path, disk)
    assert kept.found() == FIRST

    kept.keep(FIRST)

    assert disk.calls == 0


def change(content: bytes, **values: object) -> bytes:
    return json.dumps(json.loads(content) | values).encode()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: b"", "damaged"),
        (lambda content: content[:-20], "damaged"),
        (lambda content: b"\0" * len(content), "damaged"),
        (lambda content: b"[" * 100_000, "damaged"),
        (lambda content: b"[]", "is not an object"),
        (lambda content: b"{}", "lacks 'form'"),
        (lambda content: change(content, form=2), "its form is 2, this version reads form 1"),
        (lambda content: change(content, text="version: v1\n"), "its hash does not match"),
        (lambda content: change(content, name="b"), "its hash does not match"),
        (lambda content: change(content, text=None), "its hash does not match"),
        (lambda content: content.replace(b"limits", b"limit5"), "its hash does not match"),
        (lambda content: b" " * (9 << 20), "more than"),
        (lambda content: change(content, indexes=[]), "damaged"),
        (lambda content: change(content, indexes={}), "lacks 'gpus'"),
        (lambda content: change(content, indexes={"gpus": [[0]], "named": []}), "damaged"),
        (lambda content: change(content, indexes={"gpus": [], "named": 5}), "damaged"),
    ],
)
def test_a_damaged_one_is_said_and_not_used(
    tmp_path: Path, damage: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    KeptConfig(tmp_path).keep(SECOND)
    path = tmp_path / FILE
    path.write_bytes(damage(path.read_bytes()))

    found = KeptConfig(tmp_path).found()

    assert isinstance(found, ConfigError)
    assert said in found.message
    assert "the kept config cannot be used" in caplog.messages
    KeptConfig(tmp_path).keep(FIRST)
    assert KeptConfig(tmp_path).load() == FIRST


def test_one_that_cannot_be_read_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "deviceplugin")

    found = KeptConfig(tmp_path, FailingDisk("read")).found()

    assert isinstance(found, ConfigError)
    assert "cannot be read: No space left" in found.message
