"""The install as its own judges see it: helm, kubeconform, and the API server's admission of pods.

They are Go programs, built from tests/e2e/install and kept (`go_programs`); so in the long form
only, where Go is installed.
"""

import re
from pathlib import Path

import pytest
import yaml

from support import ROOT, generated
from support.cluster import documented, install, policy_pods

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
#: What an API server spends on one expression at most (on a policy ten times that), and how much
#: of it all of ours together may take for 2000 variables and 2000 mounts.
EXPRESSION_BUDGET = 1_000_000
SHARE = 0.25

pytestmark = install.MARKS
STRICT = "policy.strictVisibleDevices.enabled=true"


def test_the_manifests_are_what_the_chart_makes_of_its_own_values() -> None:
    (manifests,) = [each for each in generated.GENERATED if each.folder == "deploy/manifests"]

    assert manifests.stale() == []


@pytest.mark.parametrize("values", ["cleanHosts.enabled=true", "agent.publish=1"])
def test_what_renders_the_chart_here_does_as_helm_does(values: str) -> None:
    by_helm = install.helm("template", install.RELEASE, str(install.CHART), "--set", values)

    text, error = install.template("--set", values)

    assert text == by_helm.stdout
    assert by_helm.stderr == (f"Error: {error}\n" if error else "")


@pytest.mark.parametrize(
    "values",
    [
        "agent.publish=true",
        "networkPolicy.enabled=true,priorityClass.create=true,cleanHosts.enabled=true",
    ],
)
def test_helm_finds_nothing_wrong_with_the_chart(values: str) -> None:
    result = install.helm("lint", "--strict", str(install.CHART), "--set", values)

    assert result.returncode == 0, result.stdout
    assert "WARNING" not in result.stdout
    assert "ERROR" not in result.stdout


def test_values_hold_in_all_that_speaks_of_them(tmp_path: Path) -> None:
    """Each alone is in test_chart_values.py."""
    gone = {"nvidia.com/gpu.present": None, "kubernetes.io/arch": None}
    values = {
        "resourceDomain": "example.com",
        "config": "version: v1\nsharing: {fractional: [{family: vgpu}]}\n",
        "dirs": {"run": "/var/run/slices"},
        "nodeSelector": {**gone, "pool": "gpu"},
        "agent": {"metricsPort": 9500},
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    text = install.render("--values", str(file))
    objects = install.objects("--values", str(file))

    spec = objects["DaemonSet", "vgpu-agent"]["spec"]["template"]["spec"]
    ports = {each["name"]: each["containerPort"] for each in spec["containers"][0]["ports"]}
    assert ports == {"metrics": 9500, "pages": 9501}
    assert spec["nodeSelector"] == {"pool": "gpu"}
    config = yaml.safe_load(objects["ConfigMap", "vgpu-config"]["data"]["config.yaml"])
    assert config == {
        "version": "v1",
        "resourceDomain": "example.com",
        "sharing": {"fractional": [{"family": "vgpu"}]},
    }
    # The policy speaks of the same names and directories, without the link in the path.
    theirs = policy_pods.of_names(["example.com/mps-core"])[0]
    ours = policy_pods.of_names(["nvidia.com/mps-core"])[0]
    reach = policy_pods.of_names(["example.com/vgpu-memory"])[0]
    del reach["spec"]["containers"][0]["env"]
    policy_pods.host_path("/run/slices/allocations")(reach)
    asked = [{"name": "", "namespace": "x", "manifest": pod} for pod in (theirs, ours, reach)]
    refusals = [pod.refused for pod in install.judge(text, asked)]
    assert [bool(refused) for refused in refusals] == [True, False, True]


def helm_commands() -> list[str]:
    """Returns what pages have somebody type to install this, or to change what is installed."""
    found = [command.text for page in PAGES for command in documented.commands(page)]
    return [text for text in found if re.match(r"helm (install|upgrade) .*deploy/chart", text)]


@pytest.mark.parametrize("command", helm_commands())
def test_the_chart_has_the_values_that_pages_name(command: str, tmp_path: Path) -> None:
    """In the long form test_documented_commands.py types them on a cluster."""
    file = tmp_path / "config.yaml"
    file.write_text("version: v1\n")
    words = command.partition(" deploy/chart ")[2].removesuffix("…").split()
    given = [re.sub(r"=[\w-]+\.yaml$", f"={file}", w) for w in words if not w.startswith("--reset")]

    assert install.objects(*given)["DaemonSet", "vgpu-agent"]


def test_the_examples_config_can_be_installed() -> None:
    found = install.objects("--set-file", "config=deploy/examples/config.yaml")[
        "ConfigMap", "vgpu-config"
    ]
    example = (ROOT / "deploy/examples/config.yaml").read_text()
    assert yaml.safe_load(found["data"]["config.yaml"]) == yaml.safe_load(example)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("nodeSelectors.x=y", "nodeSelectors"),
        ("resourceDomain=nvidia", "resourceDomain"),
        ("resourceDomain=x.kubernetes.io", "resourceDomain"),
        ("dirs.run=/", "dirs/run"),
        ("dirs.run=relative/path", "dirs/run"),
        ("dirs.mpsRoot=run/mps", "dirs/mpsRoot"),
        ("dirs.mpsRoot=/run/vgpu", "dirs.mpsRoot (/run/vgpu) and dirs.run (/run/vgpu) must not"),
        ("dirs.mpsRoot=/var/run/vgpu/mps", "and dirs.run (/run/vgpu) must not lie in each other"),
        ("dirs.mpsRoot=/var/lib/vgpu/mps", "and dirs.state (/var/lib/vgpu) must not lie"),
        ("dirs.mpsRoot=/var/lib,dirs.kubelet=/data/k", "and dirs.state (/var/lib/vgpu) must not"),
        ("dirs.mpsRoot=/var/lib/kubelet/mps", "and dirs.kubelet (/var/lib/kubelet) must not lie"),
        ("config=flags: {mpsRoot: /a/b},dirs.mpsRoot=/a/c", 'but dirs.mpsRoot is "/a/c"'),
        ("agent.metricsPort=0", "metricsPort"),
        ("policy.validationActions={}", "policy/validationActions"),
        ("policy.validationActions={Deny\\,Warn}", "policy/validationActions"),
        ("policy.validationActions={deny}", "policy/validationActions/0"),
        ("policy.exemptNamespaces={a b}", "policy/exemptNamespaces/0"),
        ("policy.loneHalves.vgpu=never", "policy/loneHalves/vgpu"),
        ("runDirSize=64MB", "runDirSize"),
        ("labels.featuresDir=relative", "labels/featuresDir"),
        ("mutation.tolerations[0].operator=In", "mutation/tolerations/0/operator"),
        ("mutation.resources={a'b}", "mutation/resources/0"),
        ("dirs.driver=nvidia", "dirs/driver"),
        ("scheduler.replicas=0", "scheduler/replicas"),
        ("scheduler.nodePolicy=pack", "scheduler/nodePolicy"),
        ("scheduler.clusterIP=name", "scheduler/clusterIP"),
        ("scheduler.podSelector=a;b", "scheduler/podSelector"),
        ("scheduler.leaderElection=true", "leaderElection"),
        ("scheduler.extraArgs={x}", "scheduler/extraArgs/0"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(setting: str, says: str) -> None:
    _, error = install.template("--set", setting)

    assert says in error


@pytest.mark.parametrize("version", install.KUBERNETES)
def test_every_object_has_the_form_that_kubernetes_asks_for(version: str, tmp_path: Path) -> None:
    plain = install.MANIFESTS.read_text()
    files = sorted((ROOT / "deploy/examples").glob("*/pod.yaml"))
    pods = [file.read_text() for file in files]

    assert install.misformed(tmp_path, version, plain, *pods, install.render("--set", STRICT)) == ""
    assert "hostPid" in install.misformed(tmp_path, version, plain.replace("hostPID:", "hostPid:"))


@pytest.mark.parametrize("version", install.KUBERNETES)
def test_the_policies_compile_and_fit_the_types_of_a_pod(version: str) -> None:
    assert install.check(install.render("--set", STRICT), version) == ()


def test_a_wrong_expression_is_a_problem() -> None:
    text = install.MANIFESTS.read_text()
    assert "m.mountPath" in text

    version = install.KUBERNETES[-1]
    typo = install.check(text.replace("m.mountPath", "m.mountpath"), version)
    syntax = install.check(text.replace("size(variables.env)", "size(variables.env"), version)

    assert any("mountpath" in problem for problem in typo)
    assert syntax


def wrong_rows(manifests: str) -> list[str]:
    """What policies do otherwise than `policy_pods.ROWS` have it, a line for each pod.

    The one about amounts is left out (test_amounts.py): it would be first to refuse some.
    """
    manifests = "---\n".join(d for d in manifests.split("---\n") if "name: vgpu-amounts" not in d)
    return install.wrong_rows(manifests, policy_pods.ROWS)


def test_the_policy_lets_pods_in_and_refuses_pods_in_words() -> None:
    wrong = wrong_rows(install.MANIFESTS.read_text())

    assert not wrong, "\n".join(wrong)


#: Parts of the policy, and what stands in their place when they are gone.
PARTS = {
    "CUDA_MPS_": ("name.startsWith('CUDA_MPS_')", "false"),
    "NVIDIA_VISIBLE_DEVICES": ("'NVIDIA_VISIBLE_DEVICES', ", ""),
    "VGPU_DIR": (", 'VGPU_DIR'", ""),
    "..": ("s == '..'", "false"),
    "more slashes": ("s != '' && s != '.'", "s != '.'"),
    ".": ("s != '' && s != '.'", "s != ''"),
    "relative paths": ("!path.startsWith('/') ||", ""),
    "the root": ("path == '/' ||", ""),
    "what to look closer at": ("['//', '/.', '/etc', '/run']", "['//', '/.', '/run']"),
    "slashes to look closer at": ("['//', '/.',", "['/.',"),
    "dots to look closer at": ("['//', '/.',", "['//',"),
    "what to look closer at in /run": ("'/etc', '/run']", "'/etc']"),
    "/var/run": ("p.startsWith('/var/run/') ? p.substring(4) : p", "p"),
    "GPUs by mounts": ("p.startsWith('/run/nvidia-container-devices/')", "false"),
    "above": ("x.startsWith(p)", "false"),
    "at and below": ("p.startsWith(x)", "false"),
    "the end of a name": (".map(s, s + '/').join('')", ".join('/')"),
    "ld.so.preload": ("'/etc/ld.so.preload/', ", ""),
    "/run/vgpu in a container": (", '/run/vgpu/']", "]"),
    "raw devices": ("(has(c.volumeDevices)", "(false"),
    "run directory": ("['/run/vgpu/', ", "["),
    "state directory": ("'/var/lib/vgpu/', ", ""),
    "kubelet directory": (", '/var/lib/kubelet/'", ""),
    "where runtimes read CDI files": (", '/run/cdi/'", ""),
    "where they read those that stay": (", '/etc/cdi/'", ""),
    "feature files": (", '/etc/kubernetes/node-feature-discovery/features.d/'", ""),
    "/proc": ("p.startsWith('/proc/')", "false"),
    "privileged": ("['privileged: true']", "[]"),
    "CAP_": ("n.startsWith('CAP_') ? n.substring(4) : n", "n"),
    "small letters": ("name.upperAscii()", "name"),
    "SYS_ADMIN": ("'SYS_ADMIN', ", ""),
    "tracing": ("n == 'SYS_PTRACE'", "false"),
    "tracing without hostPID": ("has(object.spec.hostPID) && object.spec.hostPID", "true"),
    "init containers": ("(has(object.spec.initContainers)", "(false"),
    "debug containers": ("(has(object.spec.ephemeralContainers)", "(false"),
    "an init container that asks": ("has(object.spec.initContainers) &&", "false &&"),
    "core of vgpu": ("'nvidia.com/vgpu-core', ", ""),
    "memory of mps": (", 'nvidia.com/mps-memory'", ""),
    "who asks at all": ("name in c.resources.limits", "true"),
    "the subresource": ("[pods/ephemeralcontainers]", "[pods/status]"),
    "the operation": ("[CREATE]", "[DELETE]"),
    "the binding": ("validationActions: [Deny]", "validationActions: [Audit]"),
}


@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_the_policy_could_be_left_out(part: str) -> None:
    text, (old, new) = install.MANIFESTS.read_text(), PARTS[part]
    assert old in text

    wrong = wrong_rows(text.replace(old, new))

    assert wrong


def test_large_honest_pods_stay_far_below_the_budget() -> None:
    pods = [policy_pods.large(10, 200), policy_pods.large(100, 20), policy_pods.large(1, 1000)]
    asked = [{"name": "large", "namespace": "x", "manifest": pod} for pod in pods]
    found = install.judge(install.MANIFESTS.read_text(), asked)

    assert [pod.refused for pod in found] == ["", "", ""]
    costs = [pod.cost for pod in found]
    assert max(costs) < SHARE * EXPRESSION_BUDGET, costs
    assert min(costs) > 1000, costs


def test_who_takes_gpus_without_asking_is_warned() -> None:
    pod, exempt = policy_pods.plain(), policy_pods.plain()
    for each in (pod, exempt):
        policy_pods.env("train", "NVIDIA_VISIBLE_DEVICES", "all")(each)
    asked = [
        {"name": "plain", "namespace": "x", "manifest": pod},
        {"name": "exempt", "namespace": "gpu-operator", "manifest": exempt},
    ]

    plain, left_alone = install.judge(install.MANIFESTS.read_text(), asked)

    assert (plain.refused, left_alone.refused) == ("", "")
    assert "container train: NVIDIA_VISIBLE_DEVICES gives GPUs" in plain.warnings[0]
    assert left_alone.warnings == ()


def test_the_option_refuses_visible_devices_where_nothing_is_asked_for() -> None:
    text = install.render("--set", STRICT)
    pods = []
    for namespace, value in [
        ("x", "all"),
        ("x", "void"),
        ("x", "none"),
        ("x", "0"),
        ("gpu-operator", "all"),
        ("vgpu-system", "all"),
    ]:
        plain = policy_pods.plain()
        policy_pods.env("train", "NVIDIA_VISIBLE_DEVICES", value)(plain)
        pods.append({"name": f"{namespace} {value}", "namespace": namespace, "manifest": plain})
    debugged = policy_pods.plain(debugged=True)
    policy_pods.env("debug", "NVIDIA_VISIBLE_DEVICES", "all")(debugged)
    pods.append({"name": "debug", "namespace": "x", "manifest": debugged})
    found = install.judge(text, pods)

    refused = {pod.name for pod in found if pod.refused}
    assert refused == {"x all", "x 0", "debug"}
    assert "container train: NVIDIA_VISIBLE_DEVICES gives GPUs" in found[0].refused
