"""What the chart's policy adds to pods, judged by the API server's own plugin.

The plugin knows the policy as v1beta1; test_mutation_objects.py shows that v1 has the same form.
The webhook must do the same to every pod.
"""

import json

import msgspec
import pytest
import yaml

from deviceplugin.webhook.pod_patch import PodRules, patch
from support.cluster import install, mutation_pods
from support.cluster.json_patch import applied

pytestmark = install.MARKS


def test_the_policy_adds_what_a_pod_lacks_and_leaves_the_rest() -> None:
    pods = mutation_pods.ASKING
    found = {
        n: mutation_pods.told(pod)
        for n, pod in mutation_pods.admitted(
            install.render(*mutation_pods.ALL, *mutation_pods.BETA), pods
        ).items()
    }
    taint = mutation_pods.TAINT

    assert found["core"] == {
        "tolerations": [taint],
        "class": "nvidia",
        "scheduler": "gpus",
        "labels": {"nvidia.com/vgpu.slice": "true"},
        "limits": [{}, {"nvidia.com/vgpu-core": "1", mutation_pods.MARK: "0"}],
    }
    for name, each in found.items():
        assert each["tolerations"].count(taint) == 1, name
        own = pods[name]["spec"].get("tolerations", [])
        assert each["tolerations"][: len(own)] == own, name
    assert found["a class of its own"]["class"] == "mine"
    assert found["a scheduler of its own"]["scheduler"] == "mine"
    assert found["the default scheduler"]["scheduler"] == "gpus"
    assert found["labels"]["labels"] == {"a": "b", "nvidia.com/vgpu.slice": "true"}
    assert found["the label"]["labels"] == {"nvidia.com/vgpu.slice": "no"}
    assert found["an init container"]["limits"] == [{}]


def test_other_pods_stay_as_they_are() -> None:
    pods = mutation_pods.OTHERS
    without = mutation_pods.admitted(install.render(), pods)

    assert (
        mutation_pods.admitted(install.render(*mutation_pods.ALL, *mutation_pods.BETA), pods)
        == without
    )


def test_the_webhook_does_the_same_to_every_pod() -> None:
    pods = {**mutation_pods.ASKING, **mutation_pods.OTHERS}
    webhook = install.render(*mutation_pods.ALL, "--set", "mutation.mode=webhook")
    (rules,) = (
        json.loads(o["data"]["rules.json"])
        for o in yaml.safe_load_all(webhook)
        if o and o["kind"] == "ConfigMap" and o["metadata"]["name"] == "vgpu-webhook"
    )
    known = msgspec.convert(rules, PodRules)
    patched = {name: applied(pod, patch(pod, known)) for name, pod in pods.items()}
    by_policy = mutation_pods.admitted(
        install.render(*mutation_pods.ALL, *mutation_pods.BETA), pods
    )
    # What the API server fills in afterwards is the same then, too.
    by_webhook = mutation_pods.admitted(install.render(), patched)

    assert {n for n in pods if patched[n] != pods[n]} == set(mutation_pods.ASKING)
    assert by_webhook == by_policy


def test_values_change_what_is_added() -> None:
    values = [
        "mutation.resources={example.com/accelerator}",
        "mutation.tolerations[0].key=pool,mutation.tolerations[0].value=gpu",
        "mutation.tolerations[1].operator=Exists,mutation.tolerations[1].effect=NoExecute",
        "mutation.tolerations[1].tolerationSeconds=60",
        "mutation.labels.nvidia\\.com/vgpu\\.slice=null,mutation.runtimeClassName=kata",
    ]
    text = install.render(
        *mutation_pods.ON, *mutation_pods.BETA, *(a for v in values for a in ("--set", v))
    )
    pods = {
        "theirs": mutation_pods.pod("example.com/accelerator"),
        "ours": mutation_pods.pod("nvidia.com/gpu"),
    }
    found = {
        name: mutation_pods.told(pod) for name, pod in mutation_pods.admitted(text, pods).items()
    }

    assert found["theirs"] == {
        "tolerations": [
            {"key": "pool", "value": "gpu"},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        ],
        "class": "kata",
        "scheduler": "default-scheduler",
        "labels": {},
        "limits": [{}, {"example.com/accelerator": "1"}],
    }
    assert found["ours"]["tolerations"] == []


#: Parts of the policy, and what stands in their place when they are gone.
PARTS = {
    "whom it is about": ("name.startsWith('nvidia.com/mig-')", "false"),
    "init containers": ("has(object.spec.initContainers) &&", "false &&"),
    "tolerations that are there": ("(has(object.spec.tolerations) ? [] :", "(false ? [] :"),
    "the toleration that is there": ("(has(t.effect) ? t.effect : '') == 'NoSchedule'", "false"),
    "the effect": ("(has(t.effect) ? t.effect : '') == 'NoSchedule'", "true"),
    "the class that is there": ("has(object.spec.runtimeClassName) ?", "false ?"),
    "the scheduler that is there": (
        "object.spec.schedulerName != 'default-scheduler' ?",
        "false ?",
    ),
    "the default scheduler": ("object.spec.schedulerName != 'default-scheduler' ?", "true ?"),
    "labels that are there": ("(has(object.metadata.labels) ? [] :", "(false ? [] :"),
    "the label that is there": ("('nvidia.com/vgpu.slice' in variables.labels ?", "(false ?"),
    "which container is marked": (
        "[object.spec.containers[i]].exists(c,",
        "[object.spec.containers[0]].exists(c,",
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_the_policy_could_be_left_out(part: str) -> None:
    text, (old, new) = install.render(*mutation_pods.ALL, *mutation_pods.BETA), PARTS[part]
    assert old in text
    pods = mutation_pods.ASKING
    right = mutation_pods.admitted(text, pods)

    asked = [{"name": n, "namespace": "x", "manifest": pod} for n, pod in pods.items()]
    found = install.judge(text.replace(old, new), asked)
    assert {v.name: v.admitted for v in found} != right


def test_the_api_server_takes_the_policy_and_a_wrong_one_not() -> None:
    text = install.render(*mutation_pods.ALL, *mutation_pods.BETA)

    assert install.check(text, install.KUBERNETES[-1]) == ()
    wrong = install.check(
        text.replace("variables.labels", "variables.lables"), install.KUBERNETES[-1]
    )
    assert any("lables" in problem for problem in wrong)
