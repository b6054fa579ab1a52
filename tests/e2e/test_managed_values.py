"""The values for managed clusters as helm renders them, in the form that each API asks for."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from support import ROOT
from support.cluster import install

EXAMPLES = ROOT / "deploy/examples/managed"
FILES = sorted(EXAMPLES.glob("*-values.yaml"))
PARTS = ("vgpu-agent", "vgpu-mps")

pytestmark = install.MARKS


def pods(text: str) -> dict[str, dict[str, Any]]:
    """Returns the pods of the DaemonSets."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in yaml.load_all(text, yaml.CSafeLoader)
        if each and each["kind"] == "DaemonSet"
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_object_has_the_form_that_its_api_asks_for(file: Path, tmp_path: Path) -> None:
    text = install.render("-f", str(file))

    assert install.misformed(tmp_path, install.KUBERNETES[-1], text) == ""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_daemonsets_come_where_the_values_say(file: Path) -> None:
    values = yaml.safe_load(file.read_text())
    found = pods(install.render("-f", str(file)))

    assert set(found) == set(PARTS)
    for pod in found.values():
        wanted = {key: value for key, value in values["nodeSelector"].items() if value}
        assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64", **wanted}
        assert "runtimeClassName" not in pod


def test_on_gke_the_driver_is_mounted() -> None:
    for name, pod in pods(install.render("-f", str(EXAMPLES / "gke-values.yaml"))).items():
        (container,) = pod["containers"]
        variables = {each["name"]: each.get("value") for each in container["env"]}
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == "driver")
        (volume,) = (v for v in pod["volumes"] if v["name"] == "driver")

        assert volume["hostPath"] == {"path": "/home/kubernetes/bin/nvidia", "type": "Directory"}
        assert mount == {"name": "driver", "mountPath": "/usr/local/nvidia", "readOnly": True}
        assert variables["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64", name
        assert variables["NVIDIA_DRIVER_ROOT"] == "/home/kubernetes/bin/nvidia"
        assert variables["PATH"].endswith(":/usr/local/nvidia/bin")


def test_without_a_directory_of_the_driver_nothing_of_it_is_there() -> None:
    text = install.render()

    assert "NVIDIA_DRIVER_ROOT" not in text
    assert "name: driver" not in text
