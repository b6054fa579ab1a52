"""What is read of the machine: names, sizes and counts, never a content."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.bundle import machine
from vgpuctl.bundle.parts import Sources, collect
from vgpuctl.bundle.readme import FILES, readme
from vgpuctl.progress import Progress


def test_directories_have_names_sizes_and_modes_only(tmp_path: Path) -> None:
    directory = tmp_path / "allocations" / "a1"
    directory.mkdir(parents=True, mode=0o700)
    (directory / "usage").write_text("content of a tenant")
    (directory / "usage").chmod(0o666)
    (found,) = machine.directories(tmp_path)
    assert (found["allocation"], found["mode"]) == ("a1", "0700")
    (file,) = found["files"]
    assert (file["name"], file["bytes"], file["mode"]) == ("usage", 19, "-rw-rw-rw-")
    assert "content" not in str(found)


def test_of_the_kernels_log_only_xids_are_taken(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("6,1,2,-;usb: a stick\n4,2,3,-;NVRM: Xid (PCI:0000:01:00): 79, GPU lost\n")
    assert machine.kernel_lines(log) == ["4,2,3,-;NVRM: Xid (PCI:0000:01:00): 79, GPU lost"]


def test_the_kubelets_checkpoint_is_counted(tmp_path: Path) -> None:
    entry = {
        "PodUID": "uid-of-a-pod",
        "ContainerName": "c",
        "ResourceName": "nvidia.com/vgpu-core",
        "DeviceIDs": {"0": ["a", "b"]},
    }
    data = {
        "PodDeviceEntries": [entry, entry | {"ResourceName": "other/one"}],
        "RegisteredDevices": {"nvidia.com/vgpu-core": ["a", "b", "c"], "other/one": ["x"]},
    }
    path = tmp_path / "device-plugins" / "kubelet_internal_checkpoint"
    path.parent.mkdir()
    path.write_text(json.dumps({"Data": data}))
    assert machine.kubelet_counts(tmp_path, "nvidia.com") == {
        "registered_devices": {"nvidia.com/vgpu-core": 3, "other/one": 1},
        "containers": {"nvidia.com/vgpu-core": 1},
        "units": {"nvidia.com/vgpu-core": 2},
    }


def test_of_a_log_the_end_is_taken(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x" * (64 << 10) + "the end")
    assert machine.tail(tmp_path / "log").endswith("xthe end")
    assert len(machine.tail(tmp_path / "log")) == 64 << 10


def test_a_part_that_breaks_keeps_no_other_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("x")

    def denied(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied", "/dev/kmsg")

    monkeypatch.setattr(machine, "versions", broken)
    monkeypatch.setattr(machine, "kernel_lines", denied)
    sources = Sources(tmp_path, tmp_path, tmp_path / "k", tmp_path / "s")
    with Progress() as progress:
        found = collect(sources, anonymise=False, progress=progress)
    assert "KeyError" in found.left_out["versions.json"]
    assert found.left_out["kernel.txt"] == "/dev/kmsg: Permission denied"
    assert "no node agent answers" in found.left_out["state.json"]
    assert found.values["ps.json"] == []
    assert not (found.values.keys() | found.texts.keys()) - FILES.keys()


def test_the_page_says_what_is_there_and_what_not() -> None:
    page = readme(["README.txt", "ps.json"], {"kernel.txt": "it may not be read"}, "now", True)
    assert FILES["ps.json"] in page
    assert FILES["state.json"] not in page
    assert "it may not be read" in page
    assert "SHA-256" in page
    assert "Left out" not in readme(["README.txt"], {}, "now", False)


def test_what_takes_long_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(silent_s=0.02) as progress:
        progress.begin("reading state.json")
        time.sleep(0.2)
    assert "reading state.json" in capsys.readouterr().err
    with Progress(silent_s=60) as progress:
        progress.begin("reading state.json")
    assert capsys.readouterr().err == ""


def test_versions_are_told_without_an_agent() -> None:
    told = machine.versions(None)
    assert told["kernel"] == os.uname().release
    assert told["agent"] is None
