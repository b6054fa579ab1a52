"""What users may write after --simulate, and what they are told about the rest."""

import pytest

from libvgpu.driver_releases import RELEASES
from libvgpu.errors import UsageError
from libvgpu.sim import Profile
from libvgpu.sim.profiles import PROFILES, find_profile
from libvgpu.sim.spec import MAX_GPUS, parse_spec

GIB = 1 << 30


def test_one_profile_is_one_gpu() -> None:
    spec = parse_spec("a100-80g")

    assert spec.profiles == (PROFILES["a100-80g"],)
    assert spec.name is None


def test_counts_lists_and_a_name() -> None:
    spec = parse_spec("a100-80g*2,t4@lab-1")

    assert [profile.name for profile in spec.profiles] == ["a100-80g", "a100-80g", "t4"]
    assert spec.name == "lab-1"


def test_a_driver_version() -> None:
    assert parse_spec("t4").driver_version is None
    assert parse_spec("t4*2/cuda12.4@lab").driver_version == 12040


def test_a_release_of_the_driver_brings_its_cuda() -> None:
    spec = parse_spec("h100*2,driver=535.54@lab")

    assert spec.release is RELEASES["535.54"]
    assert (len(spec.profiles), spec.driver_version, spec.name) == (2, 12020, "lab")
    assert parse_spec("h100/cuda12.4").release is None


def test_a_newer_cuda_may_come_with_a_release() -> None:
    for text in (
        "h100,driver=470/cuda12.4",
        "h100/cuda12.4,driver=470",
        "driver=470,h100/cuda12.4",
    ):
        spec = parse_spec(text)

        assert (spec.release, spec.driver_version) == (RELEASES["470"], 12040)


def test_gpus_in_mig_instances() -> None:
    spec = parse_spec("h100*2/mig=3g.40gb*2,a100-40g/mig=1g.5gb*7,t4/cuda12.4@lab")

    assert [len(profile.mig_layout or ()) for profile in spec.profiles] == [2, 2, 7, 0]
    assert spec.driver_version == 12040


def test_mig_mode_without_an_instance() -> None:
    spec = parse_spec("a100-40g/mig,a100-40g/mig=none,a100-40g")

    assert [profile.mig_layout for profile in spec.profiles] == [(), (), None]


def test_instances_of_several_kinds() -> None:
    spec = parse_spec("a100-40g/mig=3g.20gb+1g.5gb*2+1g.5gb+me/cuda12.4")

    assert [placed.profile for placed in spec.profiles[0].mig_layout or ()] == [
        "3g.20gb",
        "1g.5gb",
        "1g.5gb",
        "1g.5gb+me",
    ]


def test_alias_is_the_same_profile() -> None:
    assert find_profile("h100") is PROFILES["h100-80g"]


@pytest.mark.parametrize(
    ("text", "named", "allowed"),
    [
        ("v100", "'v100'", "t4"),
        ("", "''", "PROFILE"),
        ("t4,", "'t4,'", "PROFILE"),
        ("t4*0", "'t4*0'", f"1 to {MAX_GPUS}"),
        ("t4*-1", "'t4*-1'", f"1 to {MAX_GPUS}"),
        ("t4*two", "'t4*two'", f"1 to {MAX_GPUS}"),
        (f"t4*{MAX_GPUS + 1}", f"'t4*{MAX_GPUS + 1}'", f"at most {MAX_GPUS}"),
        ("t4/cuda9", "'9'", "12.0, 12.2"),
        ("t4/cuda", "''", "13.1"),
        ("t4,driver=999", "'999'", "470, 520, 525, 535.54"),
        ("t4,driver=", "''", "580, 590"),
        ("t4,driver=550,driver=570", "2 drivers", "a machine has one"),
        ("t4,driver=570/cuda12.4", "12.4", "brings CUDA 12.8"),
        ("driver=570", "'driver=570'", "PROFILE"),
        ("t4/mig=1g.5gb", "'t4'", "no MIG"),
        ("l40s/mig", "'l40s'", "no MIG"),
        ("h100/mig=", "''", "3g.40gb"),
        ("h100/mig=8g.80gb", "'8g.80gb'", "3g.40gb"),
        ("h100/mig=3g.40gb*3", "3 instances of 3g.40gb", "at most 2"),
        ("h100/mig=1g.20gb*5", "5 instances of 1g.20gb", "at most 4"),
        ("h100/mig=3g.40gb*0", "'3g.40gb*0'", "KIND*N"),
        ("h100/mig=3g.40gb+", "'3g.40gb+'", "3g.40gb"),
        ("h100/mig=1g.10gb+me*2", "2 instances of 1g.10gb+me", "at most 1"),
        ("h100/mig=4g.40gb*2", "2 instances of 4g.40gb", "at most 1"),
        ("h100/mig=7g.80gb+1g.10gb", "9 slices of memory", "it has 8"),
        ("a100-40g/mig=2g.10gb*3+2g.10gb", "4 instances of 2g.10gb", "at most 3"),
        ("a100-40g/mig=1g.5gb*7+1g.5gb+me", "1g.5gb+me at 0 or 1", "no room"),
        ("h100*17/mig=1g.10gb*7", "'h100*17/mig=1g.10gb*7'", f"at most {MAX_GPUS}"),
        ("t4\nt4", r"'t4\nt4'", "l40s"),
        ("t4@", "''", "letters"),
        ("t4@../../etc", "'../../etc'", "letters"),
        ("t4@a@b", "'a@b'", "letters"),
    ],
)
def test_wrong_specs_name_the_value_and_what_is_allowed(
    text: str, named: str, allowed: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_spec(text)

    assert named in str(caught.value)
    assert allowed in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_profiles_are_plausible(profile: Profile) -> None:
    assert profile is PROFILES[profile.name]
    assert 14 * GIB < profile.memory_bytes < 144 * GIB
    assert 0 < profile.context_bytes < GIB
    assert profile.shared_bytes_per_block <= profile.shared_bytes_per_sm
