"""The objects that change pods: which of them a cluster gets, their form, and the certificate."""

import base64
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import ROOT
from support.cluster import install, mutation_pods

pytestmark = install.MARKS
PEM = "-----BEGIN CERTIFICATE-----"


def objects(text: str) -> dict[str, dict[str, Any]]:
    """Returns what was rendered by kind, as far as it is about pods that are changed."""
    found = [o for o in yaml.load_all(text, yaml.CSafeLoader) if o]
    ours = ("Mutating", "Deployment", "Service", "Secret", "Issuer", "Certificate")
    return {
        o["kind"]: o for o in found if o["kind"].startswith(ours) and o["kind"] != "ServiceAccount"
    }


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ((), set()),
        (mutation_pods.BETA, set()),
        ((*mutation_pods.ON, *mutation_pods.BETA), {"MutatingAdmissionPolicy"}),
        (
            (*mutation_pods.ON, "--set", "mutation.mode=policy,mutation.apiVersion=v1beta1"),
            {"MutatingAdmissionPolicy"},
        ),
        (mutation_pods.ON, {"MutatingWebhookConfiguration"}),
        (
            (*mutation_pods.ON, *mutation_pods.BETA, "--set", "mutation.mode=webhook"),
            {"MutatingWebhookConfiguration"},
        ),
    ],
)
def test_the_cluster_decides_unless_a_value_does(
    arguments: tuple[str, ...], kinds: set[str]
) -> None:
    found = objects(install.render(*arguments))

    assert {kind for kind in found if not kind.endswith("Binding")} & {
        "MutatingAdmissionPolicy",
        "MutatingWebhookConfiguration",
    } == kinds


def test_the_newest_version_of_the_cluster_is_used() -> None:
    text = install.render(*mutation_pods.ON, *install.serves_mutating("v1alpha1", "v1", "v1beta1"))

    versions = {o["apiVersion"] for k, o in objects(text).items() if "Policy" in k}
    assert versions == {"admissionregistration.k8s.io/v1"}


@pytest.mark.parametrize(
    ("version", "arguments"),
    [
        (install.MUTATING_V1, install.serves_mutating("v1")),
        (install.MUTATING_V1, mutation_pods.BETA),
        (install.KUBERNETES[-1], mutation_pods.BETA),
        (install.KUBERNETES[0], []),
    ],
)
def test_every_object_has_the_form_that_kubernetes_asks_for(
    version: str, arguments: list[str], tmp_path: Path
) -> None:
    text = install.render(*mutation_pods.ALL, *arguments)

    assert install.misformed(tmp_path, version, text) == ""


def test_the_webhooks_certificate_is_for_its_service(tmp_path: Path) -> None:
    found = objects(install.render(*mutation_pods.ON, "--set", "namespace.name=gpus"))
    secret, service = found["Secret"]["data"], found["Service"]["metadata"]
    (hook,) = found["MutatingWebhookConfiguration"]["webhooks"]
    files = {name: tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key")}
    for name, file in files.items():
        file.write_bytes(base64.b64decode(secret[name]))

    assert hook["clientConfig"]["caBundle"] == secret["ca.crt"]
    assert hook["clientConfig"]["service"] == {
        "name": service["name"],
        "namespace": service["namespace"],
        "path": "/pods",
    }
    host = f"{service['name']}.{service['namespace']}.svc"
    verified = subprocess.run(
        ["openssl", "verify", "-CAfile", str(files["ca.crt"]), "-verify_hostname", host,
         str(files["tls.crt"])],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert verified.returncode == 0, verified.stderr
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files["tls.crt"], files["tls.key"])


def test_a_certificate_may_come_from_elsewhere() -> None:
    manager = objects(
        install.render(*mutation_pods.ON, "--set", "mutation.webhook.certManager=true")
    )
    own = objects(
        install.render(
            *mutation_pods.ON,
            "--set",
            f"mutation.webhook.tlsSecret=mine,mutation.webhook.caBundle={PEM}",
        )
    )

    assert "Secret" not in manager
    assert "Secret" not in own
    issued = manager["Certificate"]
    volumes = manager["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "tls", "secret": {"secretName": issued["spec"]["secretName"]}} in volumes
    annotations = manager["MutatingWebhookConfiguration"]["metadata"]["annotations"]
    assert (
        annotations["cert-manager.io/inject-ca-from"] == f"vgpu-system/{issued['metadata']['name']}"
    )
    (hook,) = own["MutatingWebhookConfiguration"]["webhooks"]
    assert base64.b64decode(hook["clientConfig"]["caBundle"]).decode() == PEM
    volumes = own["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "tls", "secret": {"secretName": "mine"}} in volumes


def test_the_example_pods_show_by_hand_what_is_added() -> None:
    """With the policy nothing but label and class is new in them."""
    text = install.render(*mutation_pods.ON, *mutation_pods.BETA)
    for file in sorted((ROOT / "deploy/examples").glob("*/pod.yaml")):
        pod = yaml.safe_load(file.read_text())
        (changed,) = mutation_pods.admitted(text, {file.parent.name: pod}).values()

        assert changed["spec"]["tolerations"] == pod["spec"]["tolerations"], file
        assert mutation_pods.TAINT in pod["spec"]["tolerations"]
        assert "mutation.enabled" in file.read_text()
        assert "# runtimeClassName: nvidia" in file.read_text()
