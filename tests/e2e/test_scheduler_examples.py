"""deploy/examples/scheduler as the schedulers and API servers read it.

Kubernetes' own kinds and Kueue's are held against their schemas by kubeconform; kube-scheduler's
configuration and Volcano's jobs are read by their own code (tests/e2e/scheduling: 12 s to build
where Kubernetes' modules are compiled already, minutes where they are not). No proxy has Volcano's
module with the reader of its configuration, so that file's form is written down here.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import ROOT
from support.cluster import go_modules, install, kube_schemas
from support.cluster.go_programs import BUILD_TIMEOUT_S, DOWNLOAD_TIMEOUT_S, GoPrograms

EXAMPLES = ROOT / "deploy/examples/scheduler"
READERS = GoPrograms("scheduling", "the readers of schedulers' files", ("./scheduling",))
KUEUE = "sigs.k8s.io/kueue"
REQUIRED = ROOT / "tests/e2e/releases"
SCHEDULERS = (
    "kubescheduler.config.k8s.io/v1",
    "batch.volcano.sh/v1alpha1",
    "scheduling.volcano.sh/v1beta1",
)

pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(DOWNLOAD_TIMEOUT_S + BUILD_TIMEOUT_S),
]


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    why_not = install.missing() or READERS.missing()
    if why_not:
        pytest.skip(why_not)


def documents() -> dict[str, str]:
    """Returns every document of the examples, by its file and number; those in a ConfigMap too."""
    found = {}
    for file in sorted(EXAMPLES.rglob("*.yaml")):
        for number, text in enumerate(re.split(r"^---$", file.read_text(), flags=re.M)):
            found[f"{file.relative_to(EXAMPLES)} {number}"] = text
            document = yaml.safe_load(text)
            if document["kind"] == "ConfigMap":
                for key, inner in document["data"].items():
                    found[f"{file.relative_to(EXAMPLES)} {number} {key}"] = inner
    return found


def read(texts: list[str]) -> list[str]:
    """Returns what the schedulers find wrong with each."""
    program = READERS.build() / "scheduling"
    result = subprocess.run(
        [str(program)], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    return list(json.loads(result.stdout))


def test_schedulers_read_their_files() -> None:
    texts = {
        name: text
        for name, text in documents().items()
        if yaml.safe_load(text).get("apiVersion") in SCHEDULERS
    }

    assert dict(zip(texts, read(list(texts.values())), strict=True)) == dict.fromkeys(texts, "")
    assert [yaml.safe_load(text)["kind"] for text in texts.values()] == [
        "KubeSchedulerConfiguration",
        "KubeSchedulerConfiguration",
        "Job",
        "Queue",
    ]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("weight: 10", "weight: 0", "must have a positive weight"),
        ("prioritizeVerb:", "prioritiseVerb:", "prioritiseVerb"),
        ("nvidia.com/mps-core,", "nvidia.com/vgpu-core,", "duplicate"),
        ("percentageOfNodesToScore: 100", "percentageOfNodesToScore: 101", "0-100"),
        ("httpTimeout: 3s", "httpTimeout: 3 seconds", "duration"),
    ],
)
def test_what_kube_scheduler_does_not_take_is_found(old: str, new: str, says: str) -> None:
    text = (EXAMPLES / "kube-scheduler/scheduler-config.yaml").read_text()
    assert old in text

    (found,) = read([text.replace(old, new)])

    assert says in found


def test_a_wrong_key_of_a_gang_job_is_found() -> None:
    text = (EXAMPLES / "volcano/gang-job.yaml").read_text()

    (found,) = read([text.replace("minAvailable:", "minMember:")])

    assert "minMember" in found


def test_a_wrong_key_of_a_queue_is_found() -> None:
    text = (EXAMPLES / "volcano/queue.yaml").read_text()

    (found,) = read([text.replace("capability:", "capacity:")])

    assert "capacity" in found


@pytest.mark.parametrize("version", install.KUBERNETES)
def test_every_object_has_the_form_that_its_api_asks_for(version: str, tmp_path: Path) -> None:
    named = {name: yaml.safe_load(text) for name, text in documents().items()}
    objects = [o for o in named.values() if "kind" in o and o["apiVersion"] not in SCHEDULERS]
    kinds = {(o["apiVersion"], o["kind"]) for o in objects}
    custom = {kind for kind in kinds if "kueue" in kind[0]}
    kube_schemas.write(install.swagger(version), tmp_path, kinds - custom)
    for part in ("resourceflavors", "clusterqueues", "localqueues"):
        definitions = go_modules.folder_of(REQUIRED, KUEUE) / "config/components/crd/bases"
        kube_schemas.write_custom(definitions / f"kueue.x-k8s.io_{part}.yaml", tmp_path)
    text = yaml.safe_dump_all(objects)
    (tmp_path / "all.yaml").write_text(text)
    (tmp_path / "core.yaml").write_text(text.replace("readOnlyRootFilesystem", "readOnlyRoot"))
    (tmp_path / "queue.yaml").write_text(text.replace("nominalQuota", "quota"))
    (tmp_path / "flavor.yaml").write_text(text.replace("nodeLabels", "labels"))

    result = install.kubeconform(tmp_path, tmp_path / "all.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Skipped: 0" in result.stdout
    assert len(custom) == 3
    for wrong in ("core", "queue", "flavor"):
        assert install.kubeconform(tmp_path, tmp_path / f"{wrong}.yaml").returncode == 1, wrong


#: What Volcano's reader and its plugin `extender` know (pkg/scheduler/conf/scheduler_conf.go,
#: pkg/scheduler/plugins/extender/extender.go), as far as the example uses it.
ACTIONS = {"enqueue", "allocate", "backfill", "preempt", "reclaim"}
ARGUMENTS: dict[str, type] = {
    "extender.urlPrefix": str,
    "extender.httpTimeout": str,
    "extender.predicateVerb": str,
    "extender.prioritizeVerb": str,
    "extender.preemptableVerb": str,
    "extender.reclaimableVerb": str,
    "extender.ignorable": bool,
}


def test_volcanos_plugin_knows_its_arguments() -> None:
    file = yaml.safe_load((EXAMPLES / "volcano/volcano-scheduler-configmap.yaml").read_text())
    config: dict[str, Any] = yaml.safe_load(file["data"]["volcano-scheduler.conf"])
    plugins = [plugin for tier in config["tiers"] for plugin in tier["plugins"]]
    (extender,) = (plugin for plugin in plugins if plugin["name"] == "extender")
    arguments = extender["arguments"]

    assert set(config) == {"actions", "tiers"}
    assert {action.strip() for action in config["actions"].split(",")} <= ACTIONS
    assert all(set(p) <= {"name", "arguments", "enablePreemptable"} for p in plugins)
    assert {key: type(value) for key, value in arguments.items()} == {
        key: ARGUMENTS[key] for key in arguments
    }
    assert re.fullmatch(r"\d+(ms|s)", arguments["extender.httpTimeout"])
    # It is asked last, of nodes that have the units in sum.
    names = [plugin["name"] for plugin in plugins]
    assert names.index("extender") > names.index("predicates")
