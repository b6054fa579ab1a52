"""The values for managed clusters: what the chart's schema takes, and what the page says of them.

tests/e2e/test_managed_values.py has helm render them.
"""

import re

import jsonschema
import pytest
import yaml

from deviceplugin.config.device_forms import ListStrategy
from deviceplugin.config.loading import parse_config
from support import ROOT
from support.cluster.chart_values import laid_over, values_of

EXAMPLES = ROOT / "deploy/examples/managed"
FILES = sorted(EXAMPLES.glob("*-values.yaml"))
PAGE = (ROOT / "docs/managed-clusters.md").read_text()


def test_there_is_one_for_each_section() -> None:
    titles = re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)
    assert [f"{title.lower()}-values.yaml" for title in titles if title.isupper()] == [
        "eks-values.yaml", "aks-values.yaml", "gke-values.yaml",
    ]  # fmt: skip
    for file in FILES:
        assert f"deploy/examples/managed/{file.name}" in PAGE


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_charts_schema_takes_it_and_the_agent_its_config(file: object) -> None:
    values = values_of(EXAMPLES / str(file))

    parse_config(values["config"])
    for label in values["nodeSelector"]:
        assert f"`{label}" in PAGE or label == "kubernetes.io/arch"
    # What the agent tolerates pods must tolerate, too.
    assert values["tolerations"] == values["mutation"]["tolerations"]
    assert not values["runtimeClassName"]


def test_a_wrong_key_is_found() -> None:
    file = EXAMPLES / "gke-values.yaml"
    values = laid_over(values_of(file), {"dirs": {"drivers": "/home/kubernetes/bin/nvidia"}})
    with pytest.raises(jsonschema.ValidationError, match="drivers"):
        jsonschema.validate(
            values, yaml.safe_load((ROOT / "deploy/chart/values.schema.json").read_text())
        )


def test_null_takes_the_label_that_nothing_sets_on_aks() -> None:
    selector = values_of(EXAMPLES / "aks-values.yaml")["nodeSelector"]

    assert selector == {
        "kubernetes.azure.com/accelerator": "nvidia", "kubernetes.io/arch": "amd64",
    }  # fmt: skip


def test_on_gke_nothing_that_is_loaded_lies_in_var() -> None:
    values = values_of(EXAMPLES / "gke-values.yaml")
    for name in ("driver", "state"):
        assert values["dirs"][name].startswith("/home/kubernetes/bin/")
    assert parse_config(values["config"]).forms.lists == (ListStrategy.CDI_CRI,)


def test_the_quota_lets_the_charts_priorities_in() -> None:
    quota = yaml.safe_load((EXAMPLES / "gke-quota.yaml").read_text())
    values = values_of(EXAMPLES / "gke-values.yaml")
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert {values["priorityClassName"], values["scheduler"]["priorityClassName"]} <= set(
        scope["values"]
    )
    assert quota["metadata"]["namespace"] == values["namespace"]["name"]
