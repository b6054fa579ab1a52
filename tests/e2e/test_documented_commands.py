"""What pages say of install, upgrade, rollback and uninstall, typed as it stands on a cluster.

The commands go in word for word but for REGISTRY, NODE and NEW. The last test holds that none was
left out. The tests are one story, in order, and of the long form: the gate renders the chart with
the values of each such command (test_install.py); tests/e2e/cluster installs and upgrades it.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from support import ROOT
from support.cluster import administrator as administrators
from support.cluster import agent_image, control_plane, documented, kubernetes_versions
from support.cluster.administrator import REGISTRY, Administrator
from support.cluster.chart_on_cluster import NAMESPACE, allocatable
from support.cluster.documented import Command
from support.cluster.pods import containers_of, runs, shape, total_inside
from support.cluster.real import RealCluster, running_cluster
from support.node import parts as node_parts
from support.node.real import MARKS
from support.waiting import wait_until

pytestmark = [*MARKS, pytest.mark.long]

README, DOCS = ROOT / "README.md", ROOT / "docs"
OPERATIONS, IMAGE, SCHEDULING = (DOCS / f"{n}.md" for n in ("operations", "image", "scheduling"))
IN_README = "## Install on a cluster"
#: Page and headings whose commands are all typed.
SECTIONS = (
    (README, (IN_README,)),
    (OPERATIONS, ("## Install", "## Change sharing and limits", "## Upgrade", "## Roll back",
                  "## Uninstall")),
    (IMAGE, ("## Bring the image to the nodes", "## Reproduce the image")),
    (SCHEDULING, ("## Install",)),
)  # fmt: skip
#: But for these: what they need is not to be had here.
NOT_TYPED = {"docker load": "Docker", "jq .slices": "a node of that name, and jq"}
GPUS = ("a100-80g",) * 2
GIB = 1 << 30
AGENT, MPS, SCHEDULER = "agent", "mps", "scheduler"
KEPT = "kept"


def commands(page: Any, heading: str, *containing: str) -> list[Command]:
    """Returns the commands directly below a heading, those with certain words only."""
    found = [c for c in documented.commands(page, heading) if c.heading == heading]
    if containing:
        found = [c for c in found if any(words in c.text for words in containing)]
        assert len(found) >= len(containing), f"{page} {heading}: {containing} is not there"
    return found


@pytest.fixture(scope="module", params=kubernetes_versions.asked_for())
def cluster(request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    """A cluster on which nothing of ours is."""
    why_not = (
        node_parts.missing()
        or control_plane.missing()
        or agent_image.missing()
        or administrators.missing()
    )
    if why_not:
        pytest.skip(why_not)
    kubernetes = kubernetes_versions.build(request.param)
    with running_cluster(kubernetes, GPUS, has_agent_image=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def administrator(cluster: RealCluster) -> Administrator:
    """Has the README's config in the checkout."""
    found = Administrator(cluster, {"NODE": "node", "NEW": "0.1.1"})
    (found.checkout / "config.yaml").write_text(documented.first_yaml(README, IN_README))
    return found


def pods(cluster: RealCluster) -> list[dict[str, Any]]:
    return list(cluster.get("pods", namespace=NAMESPACE)["items"])


def are_ready(cluster: RealCluster, *parts: str, tag: str = "0.1.0") -> bool:
    """Returns whether exactly these parts of the chart are there, of that image, and ready."""
    found = pods(cluster)
    return {p["metadata"]["labels"]["app.kubernetes.io/component"] for p in found} == set(
        parts
    ) and all(
        any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in pod["status"].get("conditions", ())
        )
        and not pod["metadata"].get("deletionTimestamp")
        and pod["spec"]["containers"][0]["image"] in (f"{REGISTRY}/vgpu:{tag}", f"vgpu:{tag}")
        for pod in found
    )


def wait_ready(cluster: RealCluster, *parts: str) -> None:
    wait_until(lambda: are_ready(cluster, *parts), f"{', '.join(parts)} are ready")


def wait_offered(cluster: RealCluster, **counts: int) -> None:
    """Waits until the node offers these amounts and nothing else of ours."""
    wanted = {f"nvidia.com/{name.replace('_', '-')}": n for name, n in counts.items()}
    wait_until(
        lambda: {k: n for k, n in allocatable(cluster).items() if n} == wanted, f"offer of {wanted}"
    )


def is_left(cluster: RealCluster) -> bool:
    return any(cluster.inside(each).exists() for each in ("/run/vgpu", "/var/lib/vgpu"))


def wait_gone(cluster: RealCluster) -> None:
    """Waits until the namespace is, and nothing is offered any more."""

    def gone() -> bool:
        names = [each["metadata"]["name"] for each in cluster.get("namespaces")["items"]]
        return NAMESPACE not in names and not any(allocatable(cluster).values())

    wait_until(gone, "the end of the namespace and of all that was offered")


def test_from_a_file_on_the_node_and_cleaned_by_helm(
    cluster: RealCluster, administrator: Administrator
) -> None:
    # Before any is pulled: a newer kubelet then wants this image from a registry by any name.
    archive = "vgpu-0.1.0-amd64.oci.tar"
    (administrator.checkout / archive).symlink_to(ROOT / "build/image" / archive)
    (load,) = commands(IMAGE, "## Bring the image to the nodes", "ctr ")
    administrator.type(load)
    administrator.type_text("helm install vgpu deploy/chart --set-file config=config.yaml")
    wait_ready(cluster, AGENT, MPS)

    clean = commands(OPERATIONS, "### Let `helm uninstall` clean the nodes")
    *_, told = map(administrator.type, clean)
    assert not told  # an Event would say why the node was left as it is
    wait_gone(cluster)
    assert not is_left(cluster)


def test_the_readme_installs_it(cluster: RealCluster, administrator: Administrator) -> None:
    printed = [administrator.type(each) for each in commands(README, IN_README)]

    digest = re.search(r"^digest (sha256:\w+)$", printed[0], re.MULTILINE)
    assert digest is not None, printed[0]
    wait_ready(cluster, AGENT, MPS)
    for pod in pods(cluster):
        assert pod["status"]["containerStatuses"][0]["imageID"] == f"{REGISTRY}/vgpu@{digest[1]}"
    wait_offered(cluster, mps_core=100, mps_memory=80, vgpu_core=100, vgpu_memory=80)


def test_the_image_is_the_one_that_was_built(administrator: Administrator) -> None:
    make, checksum, inspect = commands(IMAGE, "## Reproduce the image")
    built = administrator.type(make)
    assert administrator.type(checksum).endswith("vgpu-0.1.0-amd64.oci.tar\n")
    assert f"digest {administrator.type(inspect)}" in built


def test_crane_pushes_the_same_image(administrator: Administrator) -> None:
    (inspect,) = commands(IMAGE, "## Reproduce the image", "skopeo inspect")
    before = administrator.type(inspect)
    for push in commands(IMAGE, "## Bring the image to the nodes", "crane push", "skopeo copy"):
        administrator.type_text(f"crane delete {REGISTRY}/vgpu:0.1.0")  # what is seen is this one's
        administrator.type(push)
        assert administrator.type(inspect) == before


def test_the_node_is_looked_at_and_runs_a_pod(
    cluster: RealCluster, administrator: Administrator
) -> None:
    look = commands(OPERATIONS, "## Install", "get pods", "get nodes", "exec ds", "vgpu-30")
    shown, offered, doctor, _ = map(administrator.type, look)

    assert shown.count("Running") == 2
    assert offered.split() == ["NODE", "CORE", "node", "100"]
    assert "ok " in doctor and "fail" not in doctor
    wait_until(partial(runs, cluster, "vgpu-30"), "the example runs")
    assert total_inside(cluster, "vgpu-30") == 16 * GIB
    (published,) = commands(OPERATIONS, "### What each node publishes", "get leases")
    assert "node " in administrator.type(published)
    cluster.kubectl("delete", "pod", "vgpu-30", "--now")


def test_an_edit_holds_without_a_restart(
    cluster: RealCluster, administrator: Administrator
) -> None:
    cluster.apply(shape(KEPT, 30, 8))
    wait_until(partial(runs, cluster, KEPT), "a pod has a slice")
    before = containers_of(cluster, KEPT), [pod["metadata"]["uid"] for pod in pods(cluster)]
    config = yaml.safe_load((administrator.checkout / "config.yaml").read_text())
    config["limits"] = [{"match": {"container": "c"}, "memory": "4GiB"}]
    (administrator.checkout / "config.yaml").write_text(yaml.safe_dump(config))

    (edit,) = commands(OPERATIONS, "## Change sharing and limits")
    administrator.type(edit)

    wait_until(lambda: total_inside(cluster, KEPT) == 4 * GIB, "the limit holds")
    after = containers_of(cluster, KEPT), [pod["metadata"]["uid"] for pod in pods(cluster)]
    assert after == before


def test_a_node_has_the_config_that_its_label_names_and_a_rollback_takes_it_back(
    cluster: RealCluster, administrator: Administrator
) -> None:
    before = containers_of(cluster, KEPT)
    for name, devices in (("t4", [0, 1]), ("a100", [1])):
        entry = {"family": "vgpu", "devices": devices, "memoryUnit": "1Gi"}
        config = {"version": "v1", "sharing": {"fractional": [entry]}}
        (administrator.checkout / f"{name}.yaml").write_text(yaml.safe_dump(config))
    several, label = commands(OPERATIONS, "### Several configs")

    administrator.type(several)
    wait_offered(cluster, vgpu_core=200, vgpu_memory=160)
    administrator.type(label)
    wait_offered(cluster, vgpu_core=100, vgpu_memory=80, gpu=1)

    (back,) = commands(OPERATIONS, "## Roll back")
    administrator.type(back)
    wait_ready(cluster, AGENT, MPS)
    wait_offered(cluster, mps_core=100, mps_memory=80, vgpu_core=100, vgpu_memory=80)
    assert containers_of(cluster, KEPT) == before
    assert total_inside(cluster, KEPT) == 4 * GIB


def test_an_upgrade_and_its_rollback_leave_pods_alone(
    cluster: RealCluster, administrator: Administrator
) -> None:
    before = containers_of(cluster, KEPT)
    administrator.type_text(
        f"skopeo copy docker://{REGISTRY}/vgpu:0.1.0 docker://{REGISTRY}/vgpu:0.1.1"
    )

    (upgrade,) = commands(OPERATIONS, "## Upgrade")
    administrator.type(upgrade)
    wait_until(lambda: tags(cluster) == {AGENT: "0.1.1", MPS: "0.1.0"}, "the new agent")
    wait_until(lambda: total_inside(cluster, KEPT) == 4 * GIB, "the limit holds")
    assert containers_of(cluster, KEPT) == before

    (back,) = commands(OPERATIONS, "## Roll back")
    administrator.type(back)
    wait_until(lambda: tags(cluster) == {AGENT: "0.1.0", MPS: "0.1.0"}, "the old agent")
    assert containers_of(cluster, KEPT) == before
    assert total_inside(cluster, KEPT) == 4 * GIB


def tags(cluster: RealCluster) -> dict[str, str]:
    """Returns the image's tag of each part whose pods are ready."""
    return {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["spec"]["containers"][0][
            "image"
        ].rpartition(":")[2]
        for pod in pods(cluster)
        if all(each["ready"] for each in pod["status"].get("containerStatuses", [{"ready": False}]))
        and not pod["metadata"].get("deletionTimestamp")
    }


def test_the_extender_is_added(cluster: RealCluster, administrator: Administrator) -> None:
    add, look = commands(SCHEDULING, "## Install")
    administrator.type(add)
    wait_ready(cluster, AGENT, MPS, SCHEDULER)
    assert administrator.type(look).count("Running") == 2


def test_uninstall_and_the_rest_by_hand(cluster: RealCluster, administrator: Administrator) -> None:
    slices = administrator.type_text("kubectl vgpu ps")
    assert f"default/{KEPT}" in slices
    cluster.kubectl("delete", "pod", KEPT)
    (uninstall,) = commands(OPERATIONS, "## Uninstall", "helm uninstall")
    administrator.type(uninstall)
    wait_gone(cluster)
    assert is_left(cluster)

    for each in commands(OPERATIONS, "## Uninstall", "umount", "rm -rf"):
        assert each.is_on_node
        administrator.type(each)
    assert not is_left(cluster)


def test_a_release_in_the_namespace_and_its_leases(
    cluster: RealCluster, administrator: Administrator
) -> None:
    in_namespace = commands(OPERATIONS, "## Install", "-n vgpu-system --create", "label namespace")
    for each in in_namespace:
        administrator.type(each)
    wait_ready(cluster, AGENT, MPS)
    wait_until(
        lambda: cluster.get("leases", namespace=NAMESPACE)["items"], "what the node publishes"
    )

    administrator.type_text("helm uninstall vgpu -n vgpu-system")
    wait_until(lambda: not pods(cluster), "no pod is left")
    for each in commands(OPERATIONS, "## Uninstall", "delete lease"):
        administrator.type(each)
    assert not cluster.get("leases", namespace=NAMESPACE)["items"]
    cluster.kubectl("delete", "namespace", NAMESPACE)
    for each in commands(OPERATIONS, "## Uninstall", "umount", "rm -rf"):
        administrator.type(each)
    assert not is_left(cluster)


def test_without_helm(cluster: RealCluster, administrator: Administrator) -> None:
    for each in commands(OPERATIONS, "## Install", "sed -i", "deploy/manifests"):
        administrator.type(each)
    wait_ready(cluster, AGENT, MPS)
    wait_offered(cluster, vgpu_core=200, vgpu_memory=160)

    administrator.type_text("kubectl delete -f deploy/manifests/vgpu.yaml")
    wait_gone(cluster)


def test_every_command_of_these_sections_was_typed(administrator: Administrator) -> None:
    typed = {(command.is_on_node, command.text) for command in administrator.typed}
    shown = [each for page, headings in SECTIONS for each in documented.commands(page, *headings)]

    left_out = [each.text for each in shown if (each.is_on_node, each.text) not in typed]

    # What a second page says again counts as typed.
    assert len(left_out) == len(NOT_TYPED), left_out
    for words, reason in NOT_TYPED.items():
        assert any(words in text for text in left_out), (words, reason)
