"""When labels are written, where to, and what a fault does."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from deviceplugin.labels.feature_file import FeatureFile
from deviceplugin.labels.offered import FreeSlice, Machine, Offered, SharingStrategy
from deviceplugin.labels.outputs import output_of
from deviceplugin.labels.publisher import LEAST_BETWEEN_S, LabelOutput, LabelPublisher
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.label_settings import LabelSettings, LabelTarget
from libvgpu.errors import VgpuError

GPU = Gpu(0, "GPU-0", "test", 1 << 30)
FREE = "nvidia.com/vgpu.free-core.0"


@dataclass
class Output:
    """Keeps what is done with it; `fault` is raised by the next writes."""

    fault: str = ""
    written: list[Mapping[str, str]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def write(self, labels: Mapping[str, str]) -> None:
        if self.fault:
            raise VgpuError(self.fault)
        self.written.append(labels)

    def end(self, keep: bool) -> None:
        self.done.append(f"end keep={keep}")

    def remove(self) -> None:
        self.done.append("remove")


class World:
    """A publisher, and what it looks at."""

    def __init__(self, settings: LabelSettings | None = None) -> None:
        self.settings = settings or LabelSettings(is_named=True)
        self.free = 100
        self.gpus: Sequence[Gpu] = (GPU,)
        self.outputs: list[Output] = []
        self.epoch_s = 1000.0
        self.machines_read = 0
        self.publisher = LabelPublisher(
            lambda: self.settings, self.look_at, self.make, self.machine, lambda: self.epoch_s
        )

    def look_at(self, settings: LabelSettings) -> tuple[Sequence[Gpu], Offered]:
        part = FreeSlice("GPU-0", "0", "vgpu", SharingStrategy.TIME_SLICING, self.free, 0, 1)
        return self.gpus, Offered(slices=(part,), mig_strategy=settings.mig_strategy)

    def make(self, settings: LabelSettings) -> LabelOutput | None:
        if settings.target is LabelTarget.NONE:
            return None
        self.outputs.append(Output())
        return self.outputs[-1]

    def machine(self, path: str) -> Machine:
        self.machines_read += 1
        return Machine(path)

    @property
    def output(self) -> Output:
        return self.outputs[-1]


def test_labels_are_written_when_they_change_but_not_each_time() -> None:
    world = World()
    for now_s in (0, 4.2, 8.4):
        world.publisher.look(now_s)
    assert len(world.output.written) == 1

    world.free = 60
    world.publisher.look(9.0)
    assert len(world.output.written) == 1, "sooner than LEAST_BETWEEN_S"
    world.publisher.look(LEAST_BETWEEN_S)
    assert [labels[FREE] for labels in world.output.written] == ["100", "60"]


def test_labels_that_stay_are_written_again_after_the_interval() -> None:
    world = World(LabelSettings(interval_s=90))
    world.publisher.look(0)

    world.publisher.look(89.9)
    assert len(world.output.written) == 1
    world.publisher.look(90)
    assert len(world.output.written) == 2
    assert world.machines_read == 1


def test_once_is_once_and_its_labels_are_kept() -> None:
    world = World(LabelSettings(oneshot=True))
    world.publisher.look(0)
    world.free = 10
    world.publisher.look(1000)
    world.publisher.stop()

    assert [labels[FREE] for labels in world.output.written] == ["100"]
    assert world.output.done == ["end keep=True"]


def test_once_that_fails_is_tried_again() -> None:
    world = World(LabelSettings(oneshot=True))
    failing = Output(fault="full")
    world.publisher = LabelPublisher(
        lambda: world.settings, world.look_at, lambda _: failing, world.machine
    )
    world.publisher.look(0)
    failing.fault = ""
    world.publisher.look(LEAST_BETWEEN_S)
    world.publisher.look(1000)

    assert len(failing.written) == 1


def test_the_time_of_the_start_is_told_unless_it_is_not_wanted() -> None:
    key, world = "nvidia.com/gfd.timestamp", World()
    world.publisher.look(0)
    world.epoch_s = 2000.0
    world.publisher.look(60)
    assert [labels[key] for labels in world.output.written] == ["1000", "1000"]

    world.settings = replace(world.settings, timestamp=False)
    world.publisher.look(120)
    assert key not in world.output.written[-1]


def test_a_fault_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    world = World()
    world.publisher.look(0)
    world.output.fault = "no room"
    for turn in range(1, 6):
        world.publisher.look(60.0 * turn)
    world.output.fault = "another fault"
    world.publisher.look(400)
    world.output.fault = ""
    world.publisher.look(460)
    world.output.fault = "no room"
    world.publisher.look(520)

    told = [
        getattr(record, "fields", {}).get("reason")
        for record in caplog.records
        if record.getMessage() == "labels of the node are not written"
    ]
    assert told == ["no room", "another fault", "no room"]
    assert len(world.output.written) == 2


def test_a_config_that_sends_them_elsewhere_takes_them_away_first() -> None:
    world = World()
    world.publisher.look(0)
    first = world.output

    world.settings = replace(world.settings, target=LabelTarget.NODE)
    world.publisher.look(1)
    assert first.done == ["remove"]
    assert len(world.output.written) == 1
    second = world.output

    world.settings = replace(world.settings, target=LabelTarget.NONE)
    world.publisher.look(2)
    world.publisher.look(200)
    assert (second.done, len(world.outputs)) == (["remove"], 2)


def test_a_cut_that_single_cannot_serve_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    world = World(LabelSettings(mig_strategy="single"))
    world.gpus = (replace(GPU, uuid="GPU-1", is_mig_enabled=True),)
    for now_s in (0, 60, 120):
        world.publisher.look(now_s)

    assert world.output.written[-1]["nvidia.com/gpu.product"] == "test-MIG-INVALID"
    told = [r for r in caplog.records if "MIG strategy single" in r.getMessage()]
    assert len(told) == 1


def test_the_config_chooses_the_output(tmp_path: Path) -> None:
    make = output_of(None, "node-1", "nvidia.com")

    file = make(LabelSettings(output_file=str(tmp_path / "gfd")))
    assert isinstance(file, FeatureFile)
    assert make(LabelSettings(target=LabelTarget.NONE)) is None
    for target in (LabelTarget.NODE, LabelTarget.NODE_FEATURE):
        with pytest.raises(VgpuError, match=rf"\({target}\), but the agent has no service account"):
            make(LabelSettings(target=target))
