"""Files that NVIDIA's plugin reads are read alike: null is not set, whole floats are numbers."""

import jsonschema
import msgspec
import pytest
import yaml

from deviceplugin.config import schema
from deviceplugin.config.effective import DEFAULT, effective
from deviceplugin.config.json_schema import json_schema
from deviceplugin.config.loading import parse_config
from deviceplugin.model.agent_config import AgentConfig
from libvgpu.errors import ConfigError

V1 = "version: v1\n"
NVIDIA_NULLS = """\
version: v1
flags:
  migStrategy: null
  plugin:
    deviceListStrategy: null
sharing:
  timeSlicing:
    renameByDefault: null
    resources:
      - name: nvidia.com/gpu
        replicas: 4
"""


def replicas(count: str) -> str:
    entry = f"{{name: nvidia.com/gpu, replicas: {count}}}"
    return f"{V1}sharing: {{timeSlicing: {{resources: [{entry}]}}}}\n"


def meaning(config: AgentConfig) -> dict[str, object]:
    return {value.key: value.value for value in effective(config)}


def test_null_in_a_file_of_nvidias_is_a_key_that_is_not_set() -> None:
    assert meaning(parse_config(NVIDIA_NULLS)) == meaning(parse_config(replicas("4")))


def _sections() -> dict[str, str]:
    """Returns for each section a text with one key of it, to be filled in, by the key's path."""
    needs = {
        "ReplicatedResource": "name: gpu, replicas: 2, ",
        "Fractional": "family: vgpu, ",
        "Rule": "",
        "Quota": "namespace: a, ",
        "MigLayout": "profiles: {1g.5gb: 1}, ",
    }
    around = {
        "ConfigFile": "{{version: v1, {}}}",
        "Flags": "{{version: v1, flags: {{{}}}}}",
        "PluginFlags": "{{version: v1, flags: {{plugin: {{{}}}}}}}",
        "GfdFlags": "{{version: v1, flags: {{gfd: {{{}}}}}}}",
        "Resources": "{{version: v1, resources: {{{}}}}}",
        "Sharing": "{{version: v1, sharing: {{{}}}}}",
        "TimeSlicing": "{{version: v1, sharing: {{timeSlicing: "
        "{{resources: [{{name: gpu, replicas: 2}}], {}}}}}}}",
        "ReplicatedResource": "{{version: v1, sharing: {{timeSlicing: {{resources: [{{{}}}]}}}}}}",
        "Fractional": "{{version: v1, sharing: {{fractional: [{{{}}}]}}}}",
        "DeviceMatch": "{{version: v1, sharing: {{fractional: "
        "[{{family: vgpu, match: {{minMemory: 1Gi, {}}}}}]}}}}",
        "Rule": "{{version: v1, limits: [{{allowRaise: true, {}}}]}}",
        "Match": "{{version: v1, limits: [{{core: 5, match: {{{}}}}}]}}",
        "Quota": "{{version: v1, quotas: [{{{}}}]}}",
        "Watch": "{{version: v1, watch: {{{}}}}}",
        "Labels": "{{version: v1, labels: {{{}}}}}",
        "Imex": "{{version: v1, imex: {{{}}}}}",
        "MigLayout": "{{version: v1, mig: [{{{}}}]}}",
    }
    found = {}
    for name, text in around.items():
        for each in msgspec.structs.fields(getattr(schema, name)):
            filled = text.format(needs.get(name, "") + f"{each.encode_name}: null")
            if not each.required and filled.count(f"{each.encode_name}:") == 1:
                found[f"{name}.{each.encode_name}"] = filled
    return found


@pytest.mark.parametrize("text", _sections().values(), ids=_sections().keys())
def test_null_is_not_set_for_every_key_that_need_not_be_there(text: str) -> None:
    key = text[: text.index(": null")].rpartition(" ")[2].lstrip("{")
    parsed = effective(parse_config(text))

    assert meaning(parse_config(text)) == meaning(parse_config(text.replace(f"{key}: null", "")))
    assert all(value.value is not None for value in parsed)
    jsonschema.validate(yaml.safe_load(text), json_schema())


@pytest.mark.parametrize(
    "section", ["flags", "sharing", "limits", "quotas", "mig", "watch", "imex"]
)
def test_a_section_may_be_null(section: str) -> None:
    config = parse_config(f"{V1}{section}: null\n")

    assert meaning(config) == meaning(parse_config(V1))
    assert {value.origin for value in effective(config)} == {"line 1", DEFAULT}


NULLS_WITH_NO_MEANING = {
    "version: null": "lacks the key 'version'",
    f"{V1}limits: [null]": "limits[0] must be a mapping, not null",
    f"{V1}sharing: {{fractional: [~]}}": "sharing.fractional[0] must be a mapping, not null",
    f"{V1}sharing: {{fractional: [{{family: null}}]}}": "lacks the key 'family'",
    f"{V1}sharing: {{fractional: [{{family: vgpu, devices: [null]}}]}}": "devices[0] must be",
    f"{V1}limits: [{{core: 5, match: {{podLabels: {{team: null}}}}}}]": "podLabels",
    f"{V1}flag: null": "unknown key 'flag'",
}


@pytest.mark.parametrize(("text", "said"), NULLS_WITH_NO_MEANING.items())
def test_null_where_something_must_be_is_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)

    assert said in caught.value.message


@pytest.mark.parametrize("count", ["4.0", "4", "4e0", "40e-1", "0x4", "0o4"])
def test_whole_numbers_are_taken_however_they_are_written(count: str) -> None:
    assert parse_config(replicas(count)).whole.replicas[0].replicas == 4


@pytest.mark.parametrize(
    "count", ["4.5", "'4'", "true", ".nan", ".inf", "1e400", "1.0e+400", "four"]
)
def test_what_is_no_whole_number_is_not(count: str) -> None:
    with pytest.raises(ConfigError, match="replicas must be a whole number"):
        parse_config(replicas(count))


def test_booleans_are_those_of_yaml_1_1_but_no_texts() -> None:
    assert not parse_config(f"{V1}flags: {{failOnInitError: n}}").fail_on_init_error
    assert parse_config(f"{V1}flags: {{failOnInitError: Yes}}").fail_on_init_error
    with pytest.raises(ConfigError, match="must be true or false, not a text"):
        parse_config(f"{V1}flags: {{failOnInitError: 'true'}}")


def test_a_duration_may_be_a_whole_float_and_has_an_end() -> None:
    text = V1 + "flags: {{gfd: {{sleepInterval: {}}}}}\n"

    assert parse_config(text.format("60.0")).labels.interval_s == 60
    for endless in ("9" * 400 + "s", "9999999999h"):
        with pytest.raises(ConfigError, match="longer than 292 years"):
            parse_config(text.format(endless))
