"""Pod manifests: the examples read as they are, and wrong ones refused in one sentence."""

from pathlib import Path

import pytest

from deviceplugin.testing import read_pod
from libvgpu.errors import UsageError

GOOD = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team-a}
spec:
  hostIPC: true
  restartPolicy: Never
  securityContext: {runAsUser: 7, runAsGroup: 8}
  initContainers:
    - {name: i, image: x}
    - {name: s, image: x, restartPolicy: Always}
  containers:
    - name: c
      image: x
      command: [python3]
      args: [-c, 1]
      env: [{name: A, value: "1"}]
      securityContext: {runAsUser: 9}
      resources:
        requests: {example.com/a: 2}
        limits: {cpu: 500m, memory: 1Gi, example.com/a: "2"}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pod.yaml"
    path.write_text(text)
    return path


def test_everything_that_matters_is_read(tmp_path: Path) -> None:
    pod = read_pod(written(tmp_path, GOOD))

    (container,) = pod.containers
    assert (pod.namespace, pod.host_ipc) == ("team-a", True)
    assert [c.sidecar for c in (*pod.init_containers, container)] == [False, True, False]
    assert container.limits == {"example.com/a": 2}
    assert container.env == {"A": "1"}
    assert (*container.command, *container.args) == ("python3", "-c", "1")
    assert (container.run_as_user, container.run_as_group) == (9, 8)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("kind: Pod", "kind: Deployment", "holds 'Deployment' of 'v1': only a Pod"),
        ('"2"', "1.5", "asks for '1.5' of example.com/a: devices are counted"),
        ('"2"', "-1", "asks for '-1' of example.com/a"),
        ("requests: {example.com/a: 2}", "requests: {example.com/a: 1}", "both must be the same"),
        ('value: "1"', "valueFrom: {}", "uses valueFrom"),
        ("metadata: {name: p, namespace: team-a}", "metadata: {}", "KeyError: 'name'"),
        ("kind: Pod", "kind: [", "cannot be read as a pod manifest"),
    ],
)
def test_a_wrong_manifest_is_one_sentence_that_names_the_file(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new))

    with pytest.raises(UsageError) as refused:
        read_pod(path)

    assert sentence in refused.value.message
    assert str(path) in refused.value.message
    assert "\n" not in refused.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml cannot be read"):
        read_pod(tmp_path / "none.yaml")
