"""The install: its chart and manifests, and the programs of tests/e2e/install that judge them."""

import atexit
import base64
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import ROOT
from support.cluster import kube_schemas
from support.cluster.go_programs import BUILD_TIMEOUT_S, DOWNLOAD_TIMEOUT_S, GoPrograms
from support.ended import run_to_end
from support.lines import tell
from support.suite.leftovers import MARK

SOURCE = ROOT / "tests/e2e/install"
CHART = ROOT / "deploy/chart"
#: What the chart makes of its own values: `make fresh`.
MANIFESTS = ROOT / "deploy/manifests/vgpu.yaml"
#: Versions of its modules: the oldest with ValidatingAdmissionPolicy v1, and the judge's own.
KUBERNETES = ("v1.30.14", "v1.34.4")
#: The first minor with MutatingAdmissionPolicy v1.
MUTATING_V1 = "v1.36.3"
RELEASE = "vgpu"
PROGRAMS = GoPrograms(
    "install",
    "helm, kubeconform and the API server's admission",
    ("./install", "helm.sh/helm/v3/cmd/helm", "github.com/yannh/kubeconform/cmd/kubeconform"),
)
#: Of a file whose tests need them.
MARKS = [
    pytest.mark.usefixtures("install_programs"),
    pytest.mark.network,
    pytest.mark.timeout(DOWNLOAD_TIMEOUT_S + BUILD_TIMEOUT_S),
]
_TIMEOUT_S = 300.0


def missing() -> str:
    """Returns as a sentence what keeps the programs from being built, empty if nothing does."""
    return PROGRAMS.missing()


def helm_program() -> Path:
    """Returns helm.

    Raises:
        AssertionError: it does not build, with what the compiler says.
    """
    return PROGRAMS.build() / "helm"


def helm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs helm, which is told of the newest of `KUBERNETES`."""
    return run_to_end(
        [str(helm_program()), *arguments, "--kube-version", KUBERNETES[-1]],
        cwd=ROOT,
        timeout=_TIMEOUT_S,
    )


def serves_mutating(*versions: str) -> list[str]:
    """Returns arguments that tell helm which MutatingAdmissionPolicy a cluster serves."""
    kinds = [f"admissionregistration.k8s.io/{v}/MutatingAdmissionPolicy" for v in versions]
    return [argument for kind in kinds for argument in ("--api-versions", kind)]


@cache
def _server() -> "subprocess.Popen[str]":
    """The program of tests/e2e/install, which answers until this process ends.

    It serves all tests, so no single test is to end it (`leftovers`).
    """
    server = subprocess.Popen(
        [str(PROGRAMS.build() / "install")],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != MARK},
    )
    atexit.register(server.communicate)
    return server


def _ask(request: Mapping[str, Any]) -> dict[str, Any]:
    server = _server()
    assert server.stdout is not None
    tell(server, json.dumps(request))
    answer = server.stdout.readline()
    assert answer, f"the program of {SOURCE} has ended"
    return dict(json.loads(answer))


def template(*arguments: str, chart: Path = CHART) -> tuple[str, str]:
    """Does as `helm template` would; returns what it prints, and its error, empty for none."""
    given = [RELEASE, str(chart), *arguments, "--kube-version", KUBERNETES[-1]]
    answer = _ask({"template": given})
    return answer["rendered"], answer["failed"]


@cache
def render(*arguments: str) -> str:
    """Returns the manifests that the chart makes.

    Raises:
        AssertionError: helm makes none, with what it says.
    """
    text, error = template(*arguments)
    assert not error, error
    return text


def objects(*arguments: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns what the chart makes as `render` does, by kind and name."""
    found = yaml.load_all(render(*arguments), yaml.CSafeLoader)
    return {(o["kind"], o["metadata"]["name"]): o for o in found if o}


def write_secret(manifest: Mapping[str, Any], directory: Path) -> None:
    """Makes a directory with what a Secret holds, as a pod that mounts it has it."""
    directory.mkdir()
    for key, value in manifest["data"].items():
        (directory / key).write_bytes(base64.b64decode(value))


def kubeconform(schemas: Path, *files: Path) -> "subprocess.CompletedProcess[str]":
    """Holds files against the schemas of a folder (`kube_schemas.write`)."""
    program = PROGRAMS.build() / "kubeconform"
    pattern = schemas / "{{ .ResourceKind }}{{ .KindSuffix }}.json"
    return run_to_end(
        [str(program), "-strict", "-summary", "-schema-location", str(pattern), *map(str, files)],
        timeout=_TIMEOUT_S,
    )


def misformed(folder: Path, version: str, *texts: str) -> str:
    """Returns what kubeconform finds wrong with manifests, empty for nothing.

    Args:
        folder: for the schemas of their kinds.
        version: of Kubernetes.
    """
    file = folder / "manifests.yaml"
    file.write_text("\n---\n".join(texts))
    documents = [each for each in yaml.load_all(file.read_text(), yaml.CSafeLoader) if each]
    kinds = {(each["apiVersion"], each["kind"]) for each in documents}
    kube_schemas.write(swagger(version), folder, kinds)
    result = kubeconform(folder, file)
    assert "Skipped: 0" in result.stdout, result.stderr
    return "" if result.returncode == 0 else result.stdout + result.stderr


def swagger(version: str) -> Path:
    """Returns the file with all types of a Kubernetes version, from its module."""
    return module(f"k8s.io/kubernetes@{version}") / "api/openapi-spec/swagger.json"


def module(name: str) -> Path:
    """Returns the folder of a Go module.

    Args:
        name: with its version.
    """
    result = run_to_end(["go", "mod", "download", "-json", name], cwd=SOURCE, timeout=_TIMEOUT_S)
    assert result.returncode == 0, result.stdout + result.stderr
    return Path(json.loads(result.stdout)["Dir"])


@dataclass(frozen=True)
class PodVerdict:
    """What the API server says to a pod; see main.go."""

    name: str
    invalid: str
    refused: str
    warnings: Sequence[str]
    admitted: Mapping[str, Any]
    cost: int


@dataclass(frozen=True)
class Verdict:
    """What it says to the policies and, in the order they were asked about, to the pods."""

    problems: tuple[str, ...]
    pods: tuple[PodVerdict, ...]


def check(manifests: str, version: str) -> tuple[str, ...]:
    """Returns what the API server's validation and type check find in the policies of a file."""
    return _judge({"manifests": manifests, "openapi": str(swagger(version))}).problems


def judge(manifests: str, pods: Sequence[Mapping[str, Any]]) -> tuple[PodVerdict, ...]:
    """Asks the API server's own admission about pods.

    Args:
        manifests: text of a file with policies.
        pods: each with ``name``, ``namespace`` and ``manifest``.
    """
    return _judge({"manifests": manifests, "pods": pods}).pods


def wrong_rows(manifests: str, rows: Sequence[Any]) -> list[str]:
    """Returns what policies do otherwise than rows have it, a line for each pod.

    Args:
        rows: of `policy_pods` or `amount_pods`.
    """
    asked = [{"name": r.name, "namespace": r.namespace, "manifest": r.pod} for r in rows]
    wrong = []
    for row, pod in zip(rows, judge(manifests, asked), strict=True):
        if bool(pod.refused) != bool(row.says) or any(s not in pod.refused for s in row.says):
            wrong.append(f"{row.name}: wanted {row.says or 'no refusal'}, got {pod.refused!r}")
        # What no API server takes proves nothing of the policy.
        if bool(pod.invalid) != bool(row.impossible) or row.impossible not in pod.invalid:
            wrong.append(f"{row.name}: {pod.invalid or 'is possible'}")
    return wrong


def _judge(asked: Mapping[str, Any]) -> Verdict:
    found = _ask(asked)
    assert not found["failed"], found["failed"]
    return Verdict(
        tuple(found["problems"] or ()),
        tuple(
            PodVerdict(**{**pod, "warnings": tuple(pod["warnings"] or ())})
            for pod in found["pods"] or ()
        ),
    )


def manifests() -> list[dict[str, Any]]:
    """Returns every object of the plain manifests."""
    return [each for each in yaml.load_all(MANIFESTS.read_text(), yaml.CSafeLoader) if each]
