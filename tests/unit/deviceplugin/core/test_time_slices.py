"""When the driver's tool is asked to set a time slice, and when it is left alone."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.core.time_slices import TimeSlices, run_tool
from deviceplugin.model.gpus import Gpu
from deviceplugin.policy.devices.layout import lay_out
from libvgpu.errors import VgpuError

GPUS = tuple(Gpu(i, f"GPU-{i}", "test", 1 << 34) for i in range(2))
SHARED = "sharing: {timeSlicing: {%sresources: [{name: gpu, replicas: 2, devices: [0]}]}}\n"


class Node:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.now_s, self.fails = 0.0, False
        self.service = SimpleNamespace()
        self.slices = TimeSlices(self.service, self.run, lambda: self.now_s)  # type: ignore[arg-type]

    def run(self, arguments: Sequence[str]) -> None:
        assert arguments[0] == "compute-policy" and arguments[3] == "--set-timeslice"
        self.asked.append((arguments[2], arguments[4]))
        if self.fails:
            raise VgpuError("no permission")

    def look(self, text: str) -> list[tuple[str, str]]:
        config = parse_config("version: v1\n" + text)
        self.service.layout = lay_out(config, GPUS)
        self.service.devices = SimpleNamespace(whole=config.whole)
        self.asked.clear()
        self.slices.look()
        return self.asked


def test_a_gpu_is_left_alone_unless_the_config_names_a_length() -> None:
    node = Node()

    assert node.look("") == node.look(SHARED % "") == []
    assert node.look("sharing: {fractional: [{family: vgpu}]}\n") == []


def test_the_length_is_set_once_on_gpus_with_replicas_and_given_back() -> None:
    node = Node()

    assert node.look(SHARED % "timeSlice: long, ") == [("GPU-0", "3")]
    assert node.look(SHARED % "timeSlice: long, ") == []
    assert node.look(SHARED % "timeSlice: short, ") == [("GPU-0", "1")]
    assert node.look("") == [("GPU-0", "0")]
    assert node.look("") == []


def test_a_tool_that_fails_is_asked_again_later() -> None:
    node = Node()
    node.fails = True

    assert node.look(SHARED % "timeSlice: long, ") == [("GPU-0", "3")]
    assert node.look(SHARED % "timeSlice: long, ") == []
    node.now_s, node.fails = 61.0, False
    assert node.look(SHARED % "timeSlice: long, ") == [("GPU-0", "3")]
    assert node.look(SHARED % "timeSlice: long, ") == []


@pytest.mark.process
def test_the_tools_own_words_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tools")
    tool = folder / "nvidia-smi"
    refuses = "echo Insufficient Permissions >&2; exit 4"
    tool.write_text(f'#!/bin/sh\n[ "$5" = 1 ] && exit 0\n{refuses}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))

    run_tool(["compute-policy", "-i", "GPU-0", "--set-timeslice", "1"])
    with pytest.raises(VgpuError, match="status 4: Insufficient Permissions"):
        run_tool(["compute-policy", "-i", "GPU-0", "--set-timeslice", "2"])
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(VgpuError, match="nvidia-smi is not there"):
        run_tool([])
