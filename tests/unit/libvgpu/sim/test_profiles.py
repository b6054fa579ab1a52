"""GPU profiles: the files of the project and those that users write."""

import re
from pathlib import Path

import pytest

from libvgpu.errors import UsageError
from libvgpu.sim import profiles
from libvgpu.sim.profiles import MODELS, PROFILES, find_profile, read_profile
from libvgpu.sim.spec import parse_spec

T4 = MODELS / "t4.yaml"


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_model_is_named_as_its_file(path: Path) -> None:
    assert read_profile(path).name == path.stem
    assert PROFILES[path.stem] == read_profile(path)


def test_only_the_model_that_is_asked_for_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noted(path: Path) -> profiles.Profile:
        asked.append(path.stem)
        return read_profile(path)

    monkeypatch.setattr(profiles, "read_profile", noted)
    fresh = profiles._Profiles()

    assert len(fresh) == len(PROFILES)
    assert fresh["t4"] is fresh["t4"]
    assert asked == ["t4"]


def test_a_file_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = T4.read_text().replace("name: t4", "name: mine").replace("15360", "1000")
    (tmp_path / "my.yaml").write_text(changed)
    monkeypatch.chdir(tmp_path)

    spec = parse_spec("./my.yaml*2,t4@lab")

    assert [profile.name for profile in spec.profiles] == ["mine", "mine", "t4"]
    assert spec.profiles[0].memory_bytes == 1000 << 20
    assert find_profile("my.yaml") == spec.profiles[0]


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("memory_mib: 15360", "memory_mib: lots", ["line 6", "memory_mib", "'lots'", "int"]),
        ("memory_mib: 15360", "memory_mib: 0", ["line 6", "memory_mib is 0", ">= 1"]),
        ("memory_mib: 15360", "memory_mib: 99999999", ["line 6", "99999999", "<="]),
        ("memory_mib: 15360", "memory_mb: 15360", ["line 6", "'memory_mb'", "memory_mib"]),
        ("sm_count: 40", "", ["lacks the key 'sm_count'"]),
        ("sm_count: 40", "sm_count: 40\nsm_count: 41", ["'sm_count' occurs twice"]),
        ("name: t4", "name: t 4", ["line 1", "'t 4'"]),
        ("name: t4", "name: [", ["not YAML"]),
        ("architecture: turing", "architecture: tesla", ["line 3", "'tesla'", "turing"]),
        ("[7, 5]", "[8, 0]", ["line 4", "[8, 0]", "turing", "[7, 5]"]),
        ("[7, 5]", "[7]", ["line 4", "compute_capability", "length 2"]),
        ("context_mib: 104", "context_mib: 20000", ["line 7", "20000", "memory_mib", "15360"]),
        ("per_block: 64", "per_block: 65", ["shared_kib_per_block is 65", "64"]),
    ],
)
def test_a_wrong_file_is_told_in_one_sentence(
    tmp_path: Path, line: str, instead: str, said: list[str]
) -> None:
    text = T4.read_text()
    assert line in text
    path = tmp_path / "my.yaml"
    path.write_text(text.replace(line, instead, 1))

    with pytest.raises(UsageError) as caught:
        find_profile(str(path))

    assert str(path) in str(caught.value)
    for words in said:
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "- t4\n", "t4\n"])
def test_what_is_no_mapping_is_no_profile(tmp_path: Path, content: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(content)

    with pytest.raises(UsageError, match=re.escape(f"{path} line 1")):
        read_profile(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{tmp_path}/my.yaml cannot be read")):
        find_profile(f"{tmp_path}/my.yaml")
