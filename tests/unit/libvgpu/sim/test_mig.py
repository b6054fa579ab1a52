"""What GPUs can be cut into, and where instances are placed."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu.errors import ConfigError, UsageError
from libvgpu.sim.mig import MigProfile, parse_layout
from libvgpu.sim.profiles import MIB, MODELS, PROFILES, read_profile

CUT = ("a100-40g", "a100-80g", "h100-80g", "h200-141g")


def starts(gpu: str, layout: str) -> list[int]:
    placed = parse_layout(layout, PROFILES[gpu].mig_profiles, gpu)
    return [each.start for each in placed]


def test_which_models_have_mig() -> None:
    assert tuple(name for name in PROFILES if PROFILES[name].mig_profiles) == CUT


@pytest.mark.parametrize(
    ("gpu", "name", "sms", "memory_gib", "engines"),
    [  # copy engines, decoders, encoders, JPEG, optical flow, as `nvidia-smi mig -lgip` prints them
        ("a100-40g", "1g.5gb", 14, 4.75, (1, 0, 0, 0, 0)),
        ("a100-40g", "1g.5gb+me", 14, 4.75, (1, 1, 0, 1, 1)),
        ("a100-40g", "1g.10gb", 14, 9.625, (1, 1, 0, 0, 0)),
        ("a100-40g", "2g.10gb", 28, 9.625, (2, 1, 0, 0, 0)),
        ("a100-40g", "3g.20gb", 42, 19.5, (3, 2, 0, 0, 0)),
        ("a100-40g", "4g.20gb", 56, 19.5, (4, 2, 0, 0, 0)),
        ("a100-40g", "7g.40gb", 98, 39.25, (7, 5, 0, 1, 1)),
        ("a100-80g", "3g.40gb", 42, 39.25, (3, 2, 0, 0, 0)),
        ("h100-80g", "1g.10gb", 16, 9.75, (1, 1, 0, 1, 0)),
        ("h100-80g", "1g.20gb", 26, 19.625, (1, 1, 0, 1, 0)),
        ("h100-80g", "3g.40gb", 60, 39.5, (3, 3, 0, 3, 0)),
        ("h100-80g", "7g.80gb", 132, 79.25, (8, 7, 0, 7, 1)),
        ("h200-141g", "1g.18gb", 16, 16, (1, 1, 0, 1, 0)),
        ("h200-141g", "3g.71gb", 60, 69.5, (3, 3, 0, 3, 0)),
    ],
)
def test_what_an_instance_has(
    gpu: str, name: str, sms: int, memory_gib: float, engines: tuple[int, ...]
) -> None:
    (kind,) = (each for each in PROFILES[gpu].mig_profiles if each.name == name)

    assert (kind.sm_count, kind.memory_mib) == (sms, memory_gib * 1024)
    assert engines == (
        kind.copy_engines,
        kind.decoders,
        kind.encoders,
        kind.jpeg_engines,
        kind.optical_flow_engines,
    )


@pytest.mark.parametrize("gpu", CUT)
def test_the_driver_numbers_the_kinds_of_all_models_alike(gpu: str) -> None:
    kinds = PROFILES[gpu].mig_profiles

    assert [kind.id for kind in kinds] == [19, 20, 15, 14, 9, 5, 0]
    assert [kind.number for kind in kinds] == [0, 7, 9, 1, 2, 3, 4]
    assert [kind.instances for kind in kinds] == [7, 1, 4, 3, 2, 1, 1]


@pytest.mark.parametrize("gpu", CUT)
def test_instances_together_are_within_the_gpu(gpu: str) -> None:
    profile = PROFILES[gpu]
    for kind in profile.mig_profiles:
        assert kind.memory_mib * MIB * kind.instances <= profile.memory_bytes
        assert kind.sm_count * kind.instances <= profile.sm_count


@pytest.mark.parametrize(
    ("gpu", "layout", "expected"),
    [  # the user guide's "Instance Geometry", and outputs that others published
        ("a100-40g", "3g.20gb*2", [4, 0]),
        ("a100-40g", "1g.5gb+2g.10gb+4g.20gb", [6, 4, 0]),
        ("a100-40g", "3g.20gb+1g.5gb+2g.10gb+1g.5gb", [4, 0, 2, 1]),
        ("a100-40g", "2g.10gb+1g.5gb*5", [4, 6, 0, 1, 2, 3]),
        ("a100-80g", "2g.20gb*3+1g.10gb+me", [4, 0, 2, 6]),
        ("h100-80g", "3g.40gb+2g.20gb", [4, 0]),
        # the driver finds no room for the last one in this order: the biggest first
        ("a100-40g", "1g.5gb*2+2g.10gb+3g.20gb", [4, 0, 2, 3]),
    ],
)
def test_instances_are_placed_as_the_driver_does(
    gpu: str, layout: str, expected: list[int]
) -> None:
    assert starts(gpu, layout) == expected


def layouts(kinds: tuple[MigProfile, ...], most: int) -> Iterator[tuple[MigProfile, ...]]:
    for count in range(1, most + 1):
        yield from itertools.combinations_with_replacement(kinds, count)


def fits_somehow(wanted: tuple[MigProfile, ...], occupied: int = 0) -> bool:
    if not wanted:
        return True
    masks = (((1 << wanted[0].size) - 1) << start for start in wanted[0].starts)
    return any(fits_somehow(wanted[1:], occupied | mask) for mask in masks if not mask & occupied)


def test_what_fits_in_any_way_is_placed_and_nothing_else() -> None:
    kinds = PROFILES["a100-40g"].mig_profiles
    accepted = refused = 0
    for wanted in layouts(kinds, 5):
        text = "+".join(kind.name for kind in wanted)
        possible = fits_somehow(wanted) and all(
            wanted.count(kind) <= kind.instances for kind in set(wanted)
        )
        try:
            placed = parse_layout(text, kinds, "a100-40g")
        except UsageError:
            assert not possible, text
            refused += 1
            continue
        assert possible, text
        occupied = 0
        for each in placed:
            (kind,) = (kind for kind in kinds if kind.name == each.profile)
            mask = ((1 << kind.size) - 1) << each.start
            assert each.start in kind.starts
            assert not occupied & mask, text
            occupied |= mask
        accepted += 1
    assert accepted > 100 < refused


def test_a_table_that_cannot_be_is_refused(tmp_path: Path) -> None:
    text = (MODELS / "a100-40g.yaml").read_text()
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("starts: [0, 2, 4]}", "starts: [0, 1]}"))

    with pytest.raises(ConfigError, match=r"starts of 2g\.10gb is \[0, 1\]"):
        read_profile(mine)
