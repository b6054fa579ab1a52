"""What users may write after --simulate, and what they are told about the rest."""

import pytest

from libvgpu.errors import UsageError
from libvgpu.sim.profiles import PROFILES, find_profile
from libvgpu.sim.spec import MAX_DEVICES, parse_spec

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


def test_alias_is_the_same_profile() -> None:
    assert find_profile("h100") is PROFILES["h100-80g"]


@pytest.mark.parametrize(
    ("text", "named", "allowed"),
    [
        ("v100", "'v100'", "t4"),
        ("", "''", "PROFILE"),
        ("t4,", "'t4,'", "PROFILE"),
        ("t4*0", "'t4*0'", f"1 to {MAX_DEVICES}"),
        ("t4*-1", "'t4*-1'", f"1 to {MAX_DEVICES}"),
        ("t4*two", "'t4*two'", f"1 to {MAX_DEVICES}"),
        (f"t4*{MAX_DEVICES + 1}", f"'t4*{MAX_DEVICES + 1}'", f"at most {MAX_DEVICES}"),
        ("t4/cuda9", "'9'", "13.0"),
        ("t4/cuda", "''", "12.4"),
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
def test_profiles_are_plausible(profile: object) -> None:
    assert profile is PROFILES[profile.name]  # type: ignore[attr-defined]
    assert 14 * GIB < profile.memory_bytes < 144 * GIB  # type: ignore[attr-defined]
    assert 0 < profile.context_bytes < GIB  # type: ignore[attr-defined]
    assert profile.shared_bytes_per_block <= profile.shared_bytes_per_sm  # type: ignore[attr-defined]
