"""The config file: what is accepted, and the one sentence for each thing that is not."""

from pathlib import Path

import pytest

from deviceplugin.config.loading import load_config, parse_config
from deviceplugin.inventory.nvml import Gpu
from deviceplugin.model.agent_config import AgentConfig, WatchPolicy
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.policy.devices.layout import Layout, absent_devices, lay_out
from libvgpu.errors import ConfigError
from libvgpu.limits import ComputeMode, Family
from support import ROOT

GIB = 1 << 30
EXAMPLE = ROOT / "deploy/examples/config.yaml"
GPUS = tuple(Gpu(i, f"GPU-{i}{i}{i}", "test", 80 * GIB) for i in range(3))


def laid_out(text: str) -> Layout:
    return lay_out(parse_config(text, "config.yaml"), GPUS)


def fractional(*entries: str) -> str:
    rows = "".join(f"  - {entry}\n" for entry in entries)
    return f"version: v1\nsharing:\n  fractional:\n{rows}"


def test_the_example_shares_gpu_0_by_mps_and_gpu_1_by_vgpu() -> None:
    layout = lay_out(load_config(EXAMPLE), GPUS)

    assert [(g.gpu.index, g.family, g.memory_units) for g in layout.gpus] == [
        (0, Family.MPS, 80),
        (1, Family.VGPU, 80),
    ]


MATCHES = {
    "nothing": ("{}", "match selects nothing; give product, minMemory, maxMemory or mig"),
    "size": ("{minMemory: much}", "minMemory"),
    "profile": ("{mig: big}", "match.mig is 'big', allowed are true, false and a profile"),
    "key": ("{model: x}", "unknown key 'model'"),
}


@pytest.mark.parametrize(("match", "said"), MATCHES.values(), ids=MATCHES.keys())
def test_a_wrong_match_is_refused(match: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(fractional(f"{{family: vgpu, match: {match}}}"))

    assert said in caught.value.message


def test_rules_keep_their_order_and_units() -> None:
    config = parse_config(
        "version: v1\nlimits:\n"
        '- {match: {namespace: team-a}, core: "60%", memory: 6Gi, compute: elastic}\n'
        "- {match: {container: job-*, podLabels: {tier: batch}}, core: 30}\n"
    )

    first, second = config.rules
    assert (first.namespace, first.core_part_of_asked, first.core_percent) == ("team-a", 0.6, None)
    assert (first.memory_bytes, first.compute) == (6 * GIB, ComputeMode.ELASTIC)
    assert (second.container, second.core_percent, second.needs_labels) == ("job-*", 30, True)
    assert second.pod_labels == (("tier", "batch"),)
    assert (second.path, second.line) == ("$.limits[1]", 4)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("{family: vgpu}", Concurrency.TIME_SLICES),
        ("{family: vgpu, concurrency: time-slices}", Concurrency.TIME_SLICES),
        ("{family: vgpu, concurrency: mps}", Concurrency.MPS),
        ("{family: mps}", Concurrency.TIME_SLICES),
    ],
)
def test_containers_run_side_by_side_only_where_an_entry_says_so(
    entry: str, expected: Concurrency
) -> None:
    (found,) = parse_config(f"version: v1\nsharing: {{fractional: [{entry}]}}\n").fractional
    (gpu, *_) = lay_out(
        parse_config(f"version: v1\nsharing: {{fractional: [{entry}]}}\n"), GPUS
    ).gpus

    assert found.concurrency is gpu.concurrency is expected
    assert gpu.served_by_mps is ("mps" in entry)


def test_a_rule_may_only_allow_a_raise() -> None:
    config = parse_config("version: v1\nlimits:\n- {match: {namespace: a}, allowRaise: true}\n")

    assert config.rules[0].allow_raise
    assert config.rules[0].core_percent is config.rules[0].memory_bytes is None


@pytest.mark.parametrize("word", ["off", "'off'"])
def test_off_is_a_mode_with_and_without_quotes(word: str) -> None:
    text = fractional(f"{{family: vgpu, compute: {word}}}")

    config = parse_config(text + f"limits:\n- {{compute: {word}}}\n")

    assert config.fractional[0].compute is ComputeMode.OFF
    assert config.rules[0].compute is ComputeMode.OFF


def test_uuid_and_all_name_gpus_too() -> None:
    by_uuid = laid_out(fractional("{family: vgpu, devices: [GPU-111]}"))
    everything = laid_out(fractional("{family: vgpu, devices: all, memoryUnit: 256Mi}"))

    assert [g.gpu.index for g in by_uuid.gpus] == [1]
    assert [g.memory_units for g in everything.gpus] == [320, 320, 320]


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", WatchPolicy.REPORT),
        ("watch: {}\n", WatchPolicy.REPORT),
        ("watch: {unaccounted: report}\n", WatchPolicy.REPORT),
        ("watch: {unaccounted: terminate}\n", WatchPolicy.TERMINATE),
    ],
)
def test_a_bypassing_process_is_reported_unless_the_file_says_more(
    text: str, policy: WatchPolicy
) -> None:
    assert parse_config("version: v1\n" + text).watch is policy


WRONG = {
    "no version": ("sharing: {}\n", "lacks the key 'version'"),
    "other version": ("version: v2\n", "line 1: version is 'v2', allowed is: v1"),
    "empty": ("", "must be a mapping"),
    "a list": ("- v1\n", "must be a mapping"),
    "not yaml": ("version: v1\na: [\n", "not YAML"),
    "tab": ("version: v1\n\tflags: {}\n", "line 2: not YAML"),
    "key twice": ("version: v1\nlimits: []\nlimits: []\n", "line 3: key 'limits' occurs twice"),
    "unknown key": ("version: v1\nsharring: {}\n", "line 2: unknown key 'sharring' in the file"),
    "unknown deep key": (
        "version: v1\nflags:\n  plugin:\n    deviceIdStrategy: uuid\n",
        "line 4: unknown key 'deviceIdStrategy' in flags.plugin; allowed are: passDeviceSpecs",
    ),
    "misplaced key": (
        (
            "version: v1\nsharing:\n  timeSlicing:\n    resources:\n"
            "    - {name: a, replicas: 2, renameByDefault: true}\n"
        ),
        "line 5: unknown key 'renameByDefault'",
    ),
    "wrong type": ("version: v1\nlimits: 3\n", "line 2: limits must be a list, not a whole number"),
    "several types": (
        "version: v1\nlimits: [{core: []}]\n",
        "limits[0].core must be a whole number, a number or a text, not a list",
    ),
    "domain": ("version: v1\nresourceDomain: nvidia\n", "resourceDomain 'nvidia' is not a domain"),
    "family": (
        fractional("{family: mig, devices: [0]}"),
        "line 4: sharing.fractional[0].family is 'mig', allowed are: mps, vgpu",
    ),
    "no family": (fractional("{devices: [0]}"), "line 4: sharing.fractional[0] lacks the key"),
    "compute": (
        fractional("{family: vgpu, compute: fair}"),
        "compute is 'fair', allowed are: strict, elastic, off",
    ),
    "compute on": (
        fractional("{family: vgpu, compute: on}"),
        "compute is 'True', allowed are: strict, elastic, off",
    ),
    "compute of mps": (
        fractional("{family: mps, compute: strict}"),
        "compute belongs to family vgpu",
    ),
    "concurrency": (
        fractional("{family: vgpu, concurrency: threads}"),
        "line 4: sharing.fractional[0].concurrency is 'threads', allowed are: time-slices, mps",
    ),
    "concurrency of mps": (
        fractional("{family: mps, concurrency: time-slices}"),
        (
            "line 4: concurrency 'time-slices' cannot be set for family mps: its containers are "
            "clients of one MPS server in any case; leave it out, or use family vgpu, where "
            "time-slices and mps are allowed"
        ),
    ),
    "unit": (fractional("{family: mps, memoryUnit: 8 bananas}"), "'8 bananas' is not a size"),
    "unit of nothing": (fractional("{family: mps, memoryUnit: 0}"), "'0' is nothing"),
    "odd unit": (fractional("{family: mps, memoryUnit: 1.5MB}"), "not a multiple of 1Mi"),
    "bare unit": (
        fractional("{family: mps, memoryUnit: 2}"),
        "memoryUnit '2' has no unit: 2 means bytes here; did you mean 2Gi?",
    ),
    "bare match": (
        fractional("{family: mps, match: {minMemory: 40}}"),
        "line 4: sharing.fractional[0].match.minMemory '40' has no unit",
    ),
    "bare rule": (
        "version: v1\nlimits:\n- core: 3\n  memory: 6\n",
        "line 4: limits[0].memory '6' has no unit: 6 means bytes here; did you mean 6Gi?",
    ),
    "bare rule in quotes": (
        'version: v1\nlimits:\n- {memory: "6442450944"}\n',
        "limits[0].memory '6442450944' has no unit",
    ),
    "bare rule with a part": ("version: v1\nlimits:\n- {memory: 1.5}\n", "did you mean 1.5Gi?"),
    "rule memory in percent": (
        'version: v1\nlimits:\n- {memory: "50%"}\n',
        "line 3: limits[0].memory '50%' is not a size: '%' is not a unit of memory",
    ),
    "small unit": (fractional("{family: vgpu, memoryUnit: 1Mi}"), "makes 245760 units"),
    "large unit": (fractional("{family: vgpu, memoryUnit: 128Gi}"), "does not fit GPU 0"),
    "two units": (
        fractional("{family: vgpu, devices: [0]}", "{family: vgpu, devices: [1], memoryUnit: 2Gi}"),
        "line 5: family vgpu has memoryUnit 2Gi here and another on line 4",
    ),
    "two families": (
        fractional("{family: vgpu, devices: [0, 1]}", "{family: mps, devices: [1]}"),
        "line 5: GPU 1 is already shared on line 4",
    ),
    "two families by uuid": (
        fractional("{family: vgpu, devices: [1]}", "{family: mps, devices: [GPU-111]}"),
        "line 5: GPU 1 (GPU-111) is already shared on line 4",
    ),
    "two families by all": (
        fractional("{family: vgpu}", "{family: mps}"),
        "line 5: GPU all is already shared on line 4",
    ),
    "no such gpu": (
        fractional("{family: vgpu, devices: [0, 7]}"),
        "line 4: GPU 7 does not exist; this node has: 0 (GPU-000), 1 (GPU-111), 2 (GPU-222)",
    ),
    "negative gpu": (fractional("{family: vgpu, devices: [-1]}"), "GPU index -1 is below 0"),
    "gpu twice": (fractional("{family: vgpu, devices: [1, 1]}"), "GPU 1 is named twice"),
    "no gpus": (fractional("{family: vgpu, devices: []}"), "is an empty list"),
    "some gpus": (fractional("{family: vgpu, devices: some}"), "devices is 'some', allowed are"),
    "overcommit": (
        fractional("{family: vgpu, memoryOvercommit: 1.5}"),
        "memoryOvercommit is 1.5; only 1.0 is served yet",
    ),
    "rule core 0": (
        "version: v1\nlimits:\n- {core: 0}\n",
        "line 3: limits[0].core 0 must be 1 to 100",
    ),
    "rule core 101": ("version: v1\nlimits:\n- {core: 101}\n", "core 101 must be 1 to 100"),
    "rule core 0%": ('version: v1\nlimits:\n- {core: "0%"}\n', "core '0%' must be"),
    "rule core 5.5": ("version: v1\nlimits:\n- {core: 5.5}\n", "core 5.5 must be 1 to 100"),
    "rule core 101%": ('version: v1\nlimits:\n- {core: "101%"}\n', "core '101%' must be"),
    "rule memory": ("version: v1\nlimits:\n- {memory: -1}\n", "'-1' is not a size"),
    "rule of nothing": ("version: v1\nlimits:\n- {match: {}}\n", "limits[0] changes nothing"),
    "rule match": (
        "version: v1\nlimits:\n- {match: {pod: x}, core: 3}\n",
        "unknown key 'pod' in limits[0].match; allowed are: namespace, container, podLabels",
    ),
    "watch policy": (
        "version: v1\nwatch:\n  unaccounted: kill\n",
        "line 3: watch.unaccounted is 'kill', allowed are: report, terminate",
    ),
    "watch key": (
        "version: v1\nwatch: {policy: report}\n",
        "unknown key 'policy' in watch; allowed are: unaccounted",
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        laid_out(text)

    assert said in caught.value.message
    assert caught.value.message.startswith("config.yaml")
    assert "\n" not in caught.value.message
    assert caught.value.exit_status == 2


def test_devices_that_are_not_there_are_left_out_where_that_is_allowed() -> None:
    config = parse_config(fractional("{family: vgpu, devices: [1, 7, GPU-x]}"), "config.yaml")
    absent, problem = absent_devices(config, GPUS)

    assert absent == {7, "GPU-x"}
    assert problem is not None
    assert "GPU 7 and GPU GPU-x do not exist" in problem.message
    assert [g.gpu.index for g in lay_out(config, GPUS, absent).gpus] == [1]
    with pytest.raises(ConfigError, match="GPU GPU-x does not exist"):
        lay_out(config, GPUS, {7})


def test_a_near_miss_is_hinted_at() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(fractional("{family: vgpu, memoryUnt: 1Gi}"))

    assert caught.value.hint == "did you mean 'memoryUnit'?"


def test_a_long_value_is_shown_in_part_and_what_is_allowed_whole() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"version: v1\nresourceDomain: {'v' * 100_000}\n")

    assert len(caught.value.message) < 1000
    assert caught.value.message.endswith("kubernetes.io at the end")


def test_a_missing_or_binary_file_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "config.yaml"
    binary.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match=r"nothing\.yaml cannot be read: No such file"):
        load_config(tmp_path / "nothing.yaml")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_config(binary)


def test_a_chain_of_aliases_is_cheap() -> None:
    bomb = "a: &a0 [x]\n" + "".join(f"b{n}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(40))

    with pytest.raises(ConfigError):
        parse_config(bomb)


def test_the_digest_tells_texts_apart() -> None:
    configs: list[AgentConfig] = [parse_config("version: v1\n"), parse_config("version: v1 \n")]

    assert configs[0].digest != configs[1].digest


def test_an_mps_root_that_is_no_absolute_path_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"line 2: flags.mpsRoot is .* allowed is an absolute"):
        parse_config("version: v1\nflags: {mpsRoot: mps}\n")


def test_an_mps_root_is_kept_as_it_is() -> None:
    assert parse_config("version: v1\nflags: {mpsRoot: /run/mps}\n").mps_root == "/run/mps"
    assert parse_config("version: v1\n").mps_root == ""
