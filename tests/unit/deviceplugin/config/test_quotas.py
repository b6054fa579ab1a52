"""What the config says of quotas, which one counts, and the sentence for each mistake."""

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.model.quotas import Quota, quota_of
from libvgpu.errors import ConfigError
from libvgpu.limits import Family

GIB = 1 << 30
HEAD = "version: v1\nquotas:\n"


def quotas(*entries: str) -> tuple[Quota, ...]:
    return parse_config(HEAD + "".join(f"- {entry}\n" for entry in entries), "c.yaml").quotas


def test_an_entry_says_whom_it_is_for_and_how_much() -> None:
    (quota,) = quotas("{namespace: team-a, family: vgpu, core: 400, memory: 160Gi}")

    assert quota == Quota("team-a", (Family.VGPU,), 400, 160 * GIB, "$.quotas[0]", 3)


def test_what_is_left_out_is_no_ceiling_and_each_family() -> None:
    (quota,) = quotas("{namespace: team-a}")

    assert quota.families == tuple(Family)
    assert (quota.core_units, quota.memory_bytes) == (None, None)


def test_nothing_at_all_is_a_ceiling_too_and_a_cluster_has_more_than_one_container() -> None:
    none, number, much = quotas(
        '{namespace: a, core: 0, memory: "0"}',
        "{namespace: b, memory: 0}",
        '{namespace: c, core: "400%", memory: 40Ti}',
    )

    assert (none.core_units, none.memory_bytes) == (0, 0)
    assert number.memory_bytes == 0
    assert (much.core_units, much.memory_bytes) == (400, 40 << 40)


def test_a_file_without_quotas_has_none() -> None:
    assert parse_config("version: v1\n").quotas == ()


def test_of_each_family_the_first_entry_for_a_namespace_counts() -> None:
    found = quotas(
        "{namespace: dev-a, family: mps, core: 1}",
        '{namespace: "dev-*", core: 2}',
        '{namespace: "*", family: vgpu, core: 3}',
    )

    def core(namespace: str, family: Family) -> int | None:
        quota = quota_of(found, namespace, family)
        return quota.core_units if quota is not None else None

    assert core("dev-a", Family.MPS) == 1
    assert core("dev-a", Family.VGPU) == 2
    assert core("dev-b", Family.MPS) == 2
    assert core("prod", Family.VGPU) == 3
    assert core("prod", Family.MPS) is None


MISTAKES = {
    "no namespace": (["{core: 5}"], "c.yaml line 3: quotas[0] lacks the key 'namespace'"),
    "namespace": (
        ["{namespace: Team_A}"],
        "c.yaml line 3: quotas[0].namespace is 'Team_A', allowed are the names of namespaces",
    ),
    "family": (
        ["{namespace: a, family: gpu}"],
        "c.yaml line 3: quotas[0].family is 'gpu', allowed are: mps, vgpu",
    ),
    "core": (
        ["{namespace: a, core: -1}"],
        "c.yaml line 3: quotas[0].core is -1, allowed are 0 to 1000000000: whole percent",
    ),
    "core in words": (
        ["{namespace: a, core: much}"],
        "line 3: quotas[0].core is 'much', allowed are 0 to",
    ),
    "half a percent": (["{namespace: a, core: 0.5}"], "quotas[0].core is 0.5, allowed are 0 to"),
    "no unit": (
        ["{namespace: a, memory: 160}"],
        "line 3: quotas[0].memory '160' has no unit: 160 means bytes here; did you mean 160Gi?",
    ),
    "memory": (["{namespace: a, memory: much}"], "line 3: quotas[0].memory 'much' is not a size"),
    "too much": (["{namespace: a, memory: 1048577Ti}"], "is too large: at most 11529215046068469"),
    "key": (["{namespace: a, cores: 5}"], "unknown key 'cores' in quotas[0]"),
    "twice": (
        ["{namespace: a, family: mps}", "{namespace: b}", "{namespace: a, core: 5}"],
        "line 5: quotas[2] is for namespace 'a' and family mps, which have a quota on line 3",
    ),
}


@pytest.mark.parametrize(("entries", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_told_with_its_place(entries: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        quotas(*entries)

    assert said in caught.value.message
