"""What a file says of whole devices and replicas, in NVIDIA's words."""

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.model.device_match import NamePattern
from deviceplugin.model.whole_devices import (
    MigStrategy,
    ReplicaKind,
    Spread,
    TimeSlice,
    WholeDevices,
)
from libvgpu.errors import ConfigError


def said(text: str) -> WholeDevices:
    return parse_config("version: v1\n" + text, "config.yaml").whole


def test_an_empty_file_gives_gpus_whole() -> None:
    assert said("") == WholeDevices()


def test_the_example_of_nvidias_guide_is_five_replicas() -> None:
    (entry,) = said(
        "sharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 5\n"
    ).replicas

    assert (entry.kind, entry.resource, entry.advertised) == (
        ReplicaKind.TIME_SLICING,
        "gpu",
        "gpu",
    )
    assert (entry.replicas, entry.devices, entry.refuses_more_than_one) == (5, None, False)


def test_every_key_has_its_meaning() -> None:
    found = said(
        "flags: {migStrategy: mixed, plugin: {sharedDevicesAllocationPolicy: packed}}\n"
        "resources:\n"
        "  gpus: [{pattern: '*A100*', name: nvidia.com/a100}, {pattern: T4, name: t4}]\n"
        "  migs: [{pattern: 1g.*, name: small}]\n"
        "  mig: [{pattern: 7g.*, name: nvidia.com/large}]\n"
        "sharing:\n"
        "  timeSlicing:\n"
        "    renameByDefault: true\n"
        "    failRequestsGreaterThanOne: true\n"
        "    timeSlice: short\n"
        "    resources:\n"
        "    - {name: a100, replicas: 2, devices: [0, '1:2', GPU-0123]}\n"
        "    - {name: nvidia.com/mig-1g.5gb, replicas: 3, devices: 2, rename: tiny}\n"
        "  mps:\n"
        "    resources: [{name: t4, replicas: 4}]\n"
    )

    assert (found.mig_strategy, found.spread) == (MigStrategy.MIXED, Spread.PACKED)
    assert found.time_slice is TimeSlice.SHORT
    assert [each.name for each in (*found.gpu_names, *found.mig_names)] == [
        "a100",
        "t4",
        "small",
        "large",
    ]
    first, second, third = found.replicas
    assert (first.advertised, first.devices) == ("a100.shared", ("0", "1:2", "GPU-0123"))
    assert (second.advertised, second.devices) == ("tiny", 2)
    assert first.refuses_more_than_one and third.refuses_more_than_one
    assert (third.kind, third.advertised) == (ReplicaKind.MPS, "t4")


def test_a_name_may_have_nvidias_domain_or_the_files() -> None:
    text = (
        "resourceDomain: example.com\n"
        "sharing: {timeSlicing: {resources: [{name: %s/gpu, replicas: 2}]}}\n"
    )

    assert said(text % "nvidia.com").replicas == said(text % "example.com").replicas


@pytest.mark.parametrize(
    ("pattern", "product", "fits"),
    [
        ("*", "anything", True),
        ("A100", "NVIDIA A100-SXM4-40GB", True),
        ("*A100*40GB", "NVIDIA A100-SXM4-40GB", True),
        ("*A100*80GB", "NVIDIA A100-SXM4-40GB", False),
        ("1g.5gb", "1gx5gb", False),
    ],
)
def test_a_star_is_any_text(pattern: str, product: str, fits: bool) -> None:
    assert NamePattern(pattern, "x").fits(product) is fits


RESOURCE = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, %s}]}}\n"
SLICED = "sharing: {timeSlicing: {%s, resources: [{name: gpu, replicas: 2}]}}\n"
MPS = "sharing: {mps: {%sresources: [{name: gpu, replicas: %d}]}}\n"
TWICE = """\
sharing:
  timeSlicing: {resources: [{name: gpu, replicas: 2}]}
  mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}
"""
WRONG = {
    "replicas": (RESOURCE % "replicas: 1", "replicas is 1, allowed is 2 or more"),
    "no replicas": (RESOURCE % "devices: all", "lacks the key 'replicas'"),
    "devices": (RESOURCE % "replicas: 2, devices: none", "devices is 'none', allowed are: all"),
    "count": (RESOURCE % "replicas: 2, devices: 0", "devices is 0, allowed is 1 or more"),
    "no devices": (RESOURCE % "replicas: 2, devices: []", "is an empty list"),
    "device": (RESOURCE % "replicas: 2, devices: [a]", "'a' is not a device: allowed are an index"),
    "no resources": ("sharing: {timeSlicing: {}}\n", "sharing.timeSlicing names no resources"),
    "strategy": (SLICED % "strategy: packed", "sharing.timeSlicing.strategy is 'packed'"),
    "time slice": (
        SLICED % "timeSlice: tiny",
        "timeSlice is 'tiny', allowed are: default, short, medium, long",
    ),
    "place of renameByDefault": (
        "sharing: {renameByDefault: true}\n",
        "unknown key 'renameByDefault' in sharing",
    ),
    "twice": (TWICE, "line 4: gpu is replicated on line 3 already"),
    "mps of more than one": (
        MPS % ("failRequestsGreaterThanOne: false, ", 2),
        "failRequestsGreaterThanOne is false in sharing.mps, allowed is true",
    ),
    "mps clients": (MPS % ("", 49), "replicas is 49, allowed are 2 to 48"),
    "domain": (
        "sharing: {timeSlicing: {resources: [{name: example.com/gpu, replicas: 2}]}}\n",
        "name is 'example.com/gpu', which is not a resource of nvidia.com",
    ),
    "name": (
        "resources: {gpus: [{pattern: '*', name: Big_GPU}]}\n",
        "resources.gpus[0].name is 'Big_GPU'",
    ),
    "mig strategy": ("flags: {migStrategy: all}\n", "migStrategy is 'all', allowed are: none"),
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_value_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        said(text)

    assert sentence in caught.value.message
    assert caught.value.message.startswith("config.yaml line ")


LONGEST = "g" * 63
NAMES = {
    "too long by renameByDefault": (
        (
            f"resources: {{gpus: [{{pattern: '*', name: {LONGEST}}}]}}\n"
            "sharing: {timeSlicing: {renameByDefault: true, resources: "
            f"[{{name: {LONGEST}, replicas: 2}}]}}}}\n"
        ),
        "which has 70 characters, allowed are 63; give rename",
    ),
    "too long": (
        f"resources: {{gpus: [{{pattern: '*', name: {LONGEST}g}}]}}\n",
        "up to 63 lower-case",
    ),
    "a fraction's": (
        "sharing: {mps: {resources: [{name: gpu, rename: vgpu-core, replicas: 2}]}}\n",
        "'vgpu-core', which is the name of a fraction's resource",
    ),
    "one for two ways": (
        (
            "sharing:\n"
            "  timeSlicing: {resources: [{name: a, rename: both, replicas: 2}]}\n"
            "  mps: {resources: [{name: b, rename: both, replicas: 2}]}\n"
        ),
        "its replicas are called both, as those on line 3",
    ),
    "domain too long": (f"resourceDomain: {'a.' * 122}a\n", "of at most 244 characters"),
    "domain of Kubernetes": ("resourceDomain: gpu.kubernetes.io\n", "kubernetes.io at the end"),
    "domain of quotas": ("resourceDomain: requests.example.com\n", "without requests. in front"),
}


@pytest.mark.parametrize(("text", "wrong"), NAMES.values(), ids=NAMES.keys())
def test_a_name_that_no_kubelet_takes_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        said(text)

    assert wrong in caught.value.message


def test_the_longest_names_are_taken() -> None:
    (entry,) = said(
        f"resourceDomain: {'a.' * 121}ab\n"
        "sharing: {timeSlicing: {renameByDefault: true, resources: "
        f"[{{name: gpu, rename: {LONGEST}, replicas: 2}}]}}}}\n"
    ).replicas

    assert entry.advertised == LONGEST


def test_a_pattern_of_many_stars_is_held_against_a_name_at_once() -> None:
    assert NamePattern("*" * 40 + "A100*80*", "a").fits("NVIDIA A100-SXM4-80GB")
    assert not NamePattern("*N" * 40 + "*", "a").fits("N" * 39)
    assert not NamePattern("a*" * 30 + "b", "a").fits("a" * 64)
