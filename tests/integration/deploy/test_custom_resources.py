"""Examples of other programs' kinds against the definitions that those programs install."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from support import ROOT
from support.cluster import go_modules, kube_schemas

EXAMPLES = ROOT / "deploy/examples"
REQUIRED = ROOT / "tests/e2e/releases"
KUEUE, RAY = "sigs.k8s.io/kueue", "github.com/ray-project/kuberay/ray-operator"
#: Where each module has the definition of a kind, by the plural of its name.
DEFINITIONS = {
    "ResourceFlavor": (KUEUE, "config/components/crd/bases/kueue.x-k8s.io_resourceflavors.yaml"),
    "ClusterQueue": (KUEUE, "config/components/crd/bases/kueue.x-k8s.io_clusterqueues.yaml"),
    "LocalQueue": (KUEUE, "config/components/crd/bases/kueue.x-k8s.io_localqueues.yaml"),
    "RayCluster": (RAY, "config/crd/bases/ray.io_rayclusters.yaml"),
}


def objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields what the examples have of these kinds, with the file's name."""
    for file in sorted(EXAMPLES.rglob("*.yaml")):
        if "values" in file.name:
            continue
        for document in yaml.safe_load_all(file.read_text()):
            if document and document.get("kind") in DEFINITIONS:
                yield f"{file.relative_to(EXAMPLES)} {document['kind']}", document


OBJECTS = dict(objects())


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Returns the schema of each version of each kind, by apiVersion and kind."""
    found = {}
    for kind, (module, name) in DEFINITIONS.items():
        try:
            definition = go_modules.folder_of(REQUIRED, module) / name
        except go_modules.NotHere as error:
            pytest.skip(str(error))
        folder = tmp_path_factory.mktemp(kind)
        kube_schemas.write_custom(definition, folder)
        group = name.rpartition("/")[2].partition("_")[0]
        for file in folder.iterdir():
            version = file.stem.rpartition("-")[2]
            found[f"{group}/{version} {kind}"] = json.loads(file.read_text())
    return found


def problems(schemas: dict[str, dict[str, Any]], document: dict[str, Any]) -> list[str]:
    schema = schemas[f"{document['apiVersion']} {document['kind']}"]
    return [
        error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)
    ]


def test_there_is_an_example_of_each() -> None:
    assert {name.rpartition(" ")[2] for name in OBJECTS} == set(DEFINITIONS)


@pytest.mark.parametrize("name", OBJECTS)
def test_it_has_the_form_of_its_definition(schemas: dict[str, dict[str, Any]], name: str) -> None:
    assert problems(schemas, OBJECTS[name]) == []


@pytest.mark.parametrize(
    ("kind", "old", "new", "says"),
    [
        ("ClusterQueue", "nominalQuota", "quota", "quota"),
        ("ClusterQueue", "400", "[400]", "not valid under any"),
        ("ResourceFlavor", "nodeLabels", "labels", "labels"),
        ("LocalQueue", "clusterQueue", "queue", "queue"),
        ("RayCluster", "replicas: 4", "replicas: four", "'four' is not of type 'integer'"),
        ("RayCluster", "rayStartParams", "startParams", "startParams"),
        ("RayCluster", "groupName: quarter", "group: quarter", "groupName"),
    ],
)
def test_what_a_definition_does_not_take_is_found(
    schemas: dict[str, dict[str, Any]], kind: str, old: str, new: str, says: str
) -> None:
    (document,) = (each for each in OBJECTS.values() if each["kind"] == kind)
    text = yaml.safe_dump(document)
    assert old in text

    found = problems(schemas, yaml.safe_load(text.replace(old, new)))

    assert any(says in each for each in found), found


def test_the_snippet_of_the_readme_says_which_version_its_definitions_are_of() -> None:
    text = (REQUIRED / "go.mod").read_text()
    kueue = re.search(r"kueue v(\d+\.\d+)", text)
    ray = re.search(r"ray-operator v(\d+\.\d+)", text)
    assert kueue is not None
    assert ray is not None
    assert f"Kueue {kueue[1]}" in (EXAMPLES / "scheduler/kueue/README.md").read_text()
    assert f"KubeRay {ray[1]}" in (EXAMPLES / "workloads/README.md").read_text()


def test_a_module_with_another_content_is_no_reason_to_skip(tmp_path: Path) -> None:
    """But an error: somebody changed what the hash was taken of."""
    try:
        go_modules.folder_of(REQUIRED, RAY)
    except go_modules.NotHere as error:
        pytest.skip(str(error))
    (tmp_path / "go.mod").write_text((REQUIRED / "go.mod").read_text())
    text = (REQUIRED / "go.sum").read_text()
    (tmp_path / "go.sum").write_text(re.sub(r"(ray-operator \S+ h1:).", r"\g<1>7", text))

    with pytest.raises(AssertionError, match="SECURITY ERROR"):
        go_modules.folder_of(tmp_path, RAY)
