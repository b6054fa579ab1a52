"""An index of the config means the GPU that it meant when the config was accepted."""

from dataclasses import replace

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.config.source import parse_text
from deviceplugin.model.agent_config import AgentConfig, ConfigText
from deviceplugin.model.gpus import Gpu, GpuListing, MigPart
from deviceplugin.policy.devices.first_config import Candidates, FirstConfig
from deviceplugin.policy.devices.gpu_numbers import NO_RECORD, GpuRecord, named_indexes, record_of
from deviceplugin.policy.devices.known_gpus import known_at_start, known_now

GIB = 1 << 30
A, B, C = (Gpu(i, f"GPU-{letter}", "test", 16 * GIB) for i, letter in enumerate("abc"))
NEW = Gpu(0, "GPU-new", "test", 16 * GIB)


def config(text: str) -> AgentConfig:
    return parse_config(f"version: v1\n{text}\n", "c")


def vgpu(*devices: object) -> str:
    return f"sharing: {{fractional: [{{family: vgpu, devices: [{', '.join(map(str, devices))}]}}]}}"


def accepted(text: str, *gpus: Gpu) -> GpuRecord:
    return record_of(config(text), gpus, (), NO_RECORD)


def listed(*gpus: Gpu) -> tuple[Gpu, ...]:
    """Returns GPUs as NVML counts them."""
    return tuple(replace(gpu, index=index) for index, gpu in enumerate(gpus))


def started(text: str, record: GpuRecord, *gpus: Gpu) -> FirstConfig:
    present = ConfigText("c", f"version: v1\n{text}\n")
    return Candidates(present, None, parse_text, record).fit(listed(*gpus))


def shared(first: FirstConfig) -> list[str]:
    return [each.gpu.uuid for each in first.layout.gpus]


STARTS = {
    "all are there": ((A, B, C), {"a": 0, "b": 1, "c": 2}),
    "the first is lost": ((B, C), {"b": 1, "c": 2}),
    "the middle one is lost": ((A, C), {"a": 0, "c": 2}),
    "the last is lost": ((A, B), {"a": 0, "b": 1}),
    "two are lost": ((C,), {"c": 2}),
    "one was replaced in its place": ((A, NEW, C), {"a": 0, "new": 1, "c": 2}),
    "the first is lost and one came at the end": ((B, C, NEW), {"b": 1, "c": 2, "new": 3}),
    "two are lost and one came": ((NEW, C), {"c": 2, "new": 3}),
    "one came in front": ((NEW, A, B, C), {"a": 0, "b": 1, "c": 2, "new": 3}),
    "none is known": ((NEW,), {"new": 0}),
    "they are counted the other way round": ((C, B, A), {"a": 0, "b": 1, "c": 2}),
}


@pytest.mark.parametrize(("there", "expected"), STARTS.values(), ids=STARTS.keys())
def test_each_gpu_keeps_its_index_over_a_restart(
    there: tuple[Gpu, ...], expected: dict[str, int]
) -> None:
    text = vgpu(0, 1, 2)
    known = known_at_start(listed(*there), accepted(text, A, B, C), config(text))

    assert {gpu.uuid.removeprefix("GPU-"): gpu.index for gpu in known.here} == expected
    assert [gpu.runtime_index for gpu in sorted(known.here, key=lambda g: g.runtime_index)] == list(
        range(len(there))
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (vgpu(0), []),
        (vgpu(1), ["GPU-b"]),
        (vgpu(0, 2), ["GPU-c"]),
        (vgpu("'1'", "GPU-c"), ["GPU-b", "GPU-c"]),
    ],
)
def test_a_lost_gpu_hands_its_index_to_no_other(text: str, expected: list[str]) -> None:
    text = text.replace("'", "")
    record = accepted(text, A, B, C)

    assert shared(started(text, record, B, C)) == expected


def test_an_edit_of_something_else_or_of_fewer_indexes_keeps_them() -> None:
    record = accepted(vgpu(0, 1), A, B, C)

    edited = vgpu(0, 1) + "\nlimits: [{core: 5}]\nwatch: {unaccounted: terminate}"
    assert shared(started(edited, record, B, C)) == ["GPU-b"]
    assert shared(started(vgpu(1), record, B, C)) == ["GPU-b"]


def test_a_config_that_names_another_index_goes_by_nvmls() -> None:
    record = accepted(vgpu(0), A, B, C)

    assert shared(started(vgpu(0, 1), record, B, C)) == ["GPU-b", "GPU-c"]
    assert shared(started(vgpu(0), NO_RECORD, B, C)) == ["GPU-b"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        (vgpu("GPU-a", "GPU-b"), set()),
        (vgpu(0, "1:2", "GPU-b"), {"0", "1"}),
        ("mig: [{profiles: {1g.5gb: 7}, devices: [3]}]", {"3"}),
        ("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: ['4']}]}}", {"4"}),
        ("sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: 2}]}}", {"first 2"}),
        ("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}", set()),
    ],
)
def test_every_key_that_takes_an_index_counts(text: str, names: set[str]) -> None:
    assert named_indexes(config(text)) == names


@pytest.mark.parametrize("devices", ["[0, 1]", "2"])
def test_replicas_stay_on_the_gpus_that_they_were_on(devices: str) -> None:
    entry = f"{{name: nvidia.com/gpu, replicas: 2, devices: {devices}, rename: half}}"
    text = f"sharing: {{timeSlicing: {{resources: [{entry}]}}}}"

    first = started(text, accepted(text, A, B, C), B, C)

    found = {each.name: [d.gpu.uuid for d in each.devices] for each in first.layout.resources}
    assert found == {"nvidia.com/half": ["GPU-b"], "nvidia.com/gpu": ["GPU-c"]}


def test_mig_devices_have_the_index_of_their_gpu() -> None:
    def cut(gpu: Gpu, index: int) -> Gpu:
        part = Gpu(index, f"MIG-{gpu.uuid}", "MIG", GIB, mig=MigPart(gpu.uuid, 0, "1g.5gb", 1, 0))
        return replace(gpu, index=index, is_mig_enabled=True, mig_devices=(part,))

    text = vgpu("0:0", "1:0")
    record = accepted(text, cut(A, 0), cut(B, 1), C)
    present = ConfigText("c", f"version: v1\n{text}\n")

    first = Candidates(present, None, parse_text, record).fit((cut(B, 0), replace(C, index=1)))

    assert [(s.gpu.index, s.gpu.runtime_index, s.gpu.uuid) for s in first.layout.gpus] == [
        (1, 0, "MIG-GPU-b")
    ]


def test_a_lost_gpu_that_comes_back_while_the_agent_runs_is_itself() -> None:
    text = vgpu(0, 1)
    known = known_at_start(listed(B, C), accepted(text, A, B, C), config(text))
    assert [each.uuid for each in known.lost] == ["GPU-a"]

    known = known_now(known, GpuListing(listed(A, B, C)), lambda uuid: False)

    assert [(gpu.index, gpu.uuid) for gpu in known.here] == [
        (0, "GPU-a"),
        (1, "GPU-b"),
        (2, "GPU-c"),
    ]
    assert known.lost == ()


def test_what_is_kept_grows_and_still_names_what_is_lost() -> None:
    text = vgpu(0, 1)
    record = accepted(text, A, B, C)
    known = known_at_start(listed(B, C, NEW), record, config(text))

    again = record_of(config(text), known.here, known.lost, record)

    assert {each.uuid: each.index for each in again.gpus} == {
        "GPU-a": 0,
        "GPU-b": 1,
        "GPU-c": 2,
        "GPU-new": 3,
    }
    assert again.named == {"0", "1"}
