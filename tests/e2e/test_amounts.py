"""The chart's policy about amounts that no node can give, judged by an API server's admission."""

import pytest
import yaml

from support import ROOT
from support.cluster import amount_pods, install

pytestmark = install.MARKS
#: What an API server spends on one expression at most, and how much of it ours may take.
EXPRESSION_BUDGET = 1_000_000
SHARE = 0.25
_POD = {"apiVersion": "v1", "kind": "Pod"}
FORBID = "policy.loneHalves.vgpu=forbid"


def test_what_no_node_can_give_is_refused_with_what_is_allowed() -> None:
    wrong = install.wrong_rows(install.MANIFESTS.read_text(), amount_pods.ROWS)

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("version", install.KUBERNETES)
def test_the_rule_about_lone_halves_fits_the_types_of_a_pod(version: str) -> None:
    both = f"{FORBID},policy.loneHalves.mps=forbid"
    assert install.check(install.render("--set", both), version) == ()


def test_lone_halves_are_refused_where_the_values_say_so() -> None:
    wrong = install.wrong_rows(install.render("--set", FORBID), amount_pods.LONE_ROWS)

    assert not wrong, "\n".join(wrong)


def test_the_examples_are_let_in() -> None:
    pods = []
    for file in sorted((ROOT / "deploy/examples").rglob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text()):
            if manifest.get("kind") == "Pod":
                pods.append(manifest)
            for task in manifest.get("spec", {}).get("tasks", ()):  # of a Volcano job
                pods.append(task["template"] | {"metadata": {"name": "p"}})
            if manifest.get("kind") == "Job" and "template" in manifest["spec"]:
                pods.append(manifest["spec"]["template"] | {"metadata": {"name": "p"}})
    asked = [
        {"name": p["metadata"]["name"], "namespace": "team-a", "manifest": {**_POD, **p}}
        for p in pods
    ]
    both = install.render("--set", f"{FORBID},policy.loneHalves.mps=forbid")

    found = install.judge(both, asked)
    assert {pod.name: (pod.refused, pod.invalid) for pod in found} == {
        one["name"]: ("", "") for one in asked
    }
    assert len(asked) >= 10


def config(*entries: str) -> str:
    return "version: v1\nsharing: {fractional: [" + ", ".join(entries) + "]}\n"


VGPU, MPS = "{family: vgpu, devices: [0]", "{family: mps, devices: [1]"
NO = ", loneHalves: forbid}"


@pytest.mark.parametrize(
    ("values", "forbidden"),
    [
        ({"config": config(VGPU + "}")}, set()),
        ({"config": config(VGPU + NO)}, {"vgpu"}),
        ({"config": config(VGPU + "}", MPS + NO)}, {"mps"}),
        ({"config": config(VGPU + NO, MPS + NO)}, {"vgpu", "mps"}),
        # A pod may go to the GPU, or to the node, whose config allows it.
        ({"config": config(VGPU + NO, VGPU + "}")}, set()),
        ({"configs.a": config(VGPU + NO), "configs.b": config(VGPU + "}")}, set()),
        ({"configs.a": config(VGPU + NO), "configs.b": config(MPS + "}")}, {"vgpu"}),
        ({"configs.a": config(VGPU + NO, VGPU + NO), "configs.b": config(VGPU + NO)}, {"vgpu"}),
        ({"config": config(VGPU + NO), "policy.loneHalves.vgpu": "allow"}, set()),
        ({"existingConfigMap": "mine"}, set()),
        ({"config": "version: v1\nsharing:\n"}, set()),
    ],
)
def test_what_the_configs_say_of_lone_halves_is_the_policys(
    values: dict[str, str], forbidden: set[str]
) -> None:
    given = [f"{key}={value}".replace(",", "\\,") for key, value in values.items()]
    text = install.render(*(argument for one in given for argument in ("--set", one)))
    rows = [amount_pods.Row(f, {"train": {f"{f}-core": 30}}) for f in ("vgpu", "mps")]
    asked = [{"name": r.name, "namespace": "x", "manifest": r.pod} for r in rows]

    assert {pod.name for pod in install.judge(text, asked) if pod.refused} == forbidden


def test_debug_containers_come_into_pods_from_before_the_policy() -> None:
    pod = amount_pods.Row("", {"train": {"vgpu-core": 150}}).pod
    pod["spec"]["ephemeralContainers"] = [
        {"name": "debug", "image": "i", "terminationMessagePolicy": "File"}
    ]
    (found,) = install.judge(
        install.MANIFESTS.read_text(), [{"name": "p", "namespace": "x", "manifest": pod}]
    )

    assert (found.refused, found.invalid) == ("", "")


def test_actions_and_exempt_namespaces_are_those_of_the_values() -> None:
    pod = amount_pods.Row("", {"train": {"vgpu-core": 150}}).pod
    undone = amount_pods.Row("", {"train": {"vgpu-core": 50}}).pod
    undone["spec"]["containers"][0]["env"] = [{"name": "VGPU_DIR", "value": "x"}]
    asked = [
        {"name": f"{namespace} {kind}", "namespace": namespace, "manifest": manifest}
        for namespace in ("team-a", "lab")
        for kind, manifest in (("amount", pod), ("undone", undone))
    ]
    exempt = install.judge(install.render("--set", "policy.exemptNamespaces={lab,other}"), asked)
    warned = install.judge(
        install.render("--set", "policy.validationActions={Warn,Audit}"), asked[:2]
    )

    assert [bool(p.refused) for p in exempt] == [True, True, False, False]
    assert [p.refused for p in warned] == ["", ""]
    (amount,), (words,) = (p.warnings for p in warned)
    assert "vgpu-core: 150: core is percent" in amount
    assert "container train sets VGPU_DIR" in words
    assert all(p.warnings == () for p in exempt)


#: Parts of the policy, and what stands in their place when they are gone.
PARTS = {
    "more than one GPU": ("r.core[f] > 100 &&", "r.core[f] > 200 &&"),
    "whole GPUs": ("&& r.core[f] % 100 != 0", ""),
    "core of mps": (
        "['vgpu', 'mps']\n            .filter(f, r.core[f] > 100",
        "['vgpu']\n            .filter(f, r.core[f] > 100",
    ),
    "core of vgpu": (
        "['vgpu', 'mps']\n            .filter(f, r.core[f] > 100",
        "['mps']\n            .filter(f, r.core[f] > 100",
    ),
    "memory of mps alone": ("&& r.core['mps'] == 0", "&& r.core['mps'] < 0"),
    "memory of mps with core": ("&& r.core['mps'] == 0", ""),
    "both families": ("['vgpu', 'mps'].all(f, r.core[f]", "['vgpu', 'mps'].exists(f, r.core[f]"),
    "either half": (".all(f, r.core[f] + r.memory[f] > 0)", ".all(f, r.core[f] > 0)"),
    "whole devices": ("'nvidia.com/gpu', ", ""),
    "replicas": (", 'nvidia.com/gpu.shared'", ""),
    "MIG devices": ("name.startsWith('nvidia.com/mig-')", "false"),
    "none of the devices": ("isGreaterThan(quantity('0'))", "isGreaterThan(quantity('-1'))"),
    "with a slice": (".exists(f, r.core[f] + r.memory[f] > 0)", ".exists(f, r.core[f] >= 0)"),
    "with a slice of one family": ("['vgpu', 'mps'].exists(f, r.", "['vgpu'].exists(f, r."),
    "with a slice of memory": (
        ".exists(f, r.core[f] + r.memory[f] > 0)",
        ".exists(f, r.core[f] > 0)",
    ),
    "init containers": ("(has(object.spec.initContainers) ? object", "(false ? object"),
    "amounts of vgpu-core": (
        "quantity(c.resources.limits['nvidia.com/vgpu-core']).asInteger()",
        "0",
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_the_rules_could_be_left_out(part: str) -> None:
    text, (old, new) = install.MANIFESTS.read_text(), PARTS[part]
    assert old in text

    assert install.wrong_rows(text.replace(old, new), amount_pods.ROWS)


def test_pods_of_many_containers_stay_far_below_the_budget() -> None:
    asked = [{"name": "many", "namespace": "x", "manifest": amount_pods.many(300)}]
    (found,) = install.judge(install.MANIFESTS.read_text(), asked)

    assert found.refused == ""
    assert 1000 < found.cost < SHARE * EXPRESSION_BUDGET
