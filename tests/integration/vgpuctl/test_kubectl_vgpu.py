"""`kubectl vgpu` against a kubectl that stands in for the real one, as fast as tests must be.

What a real kubectl and a real API server do is in tests/e2e/test_kubectl_vgpu.py.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.pages.events import KeptEvent
from deviceplugin.pages.state import (
    AgentReport,
    ReportedAgent,
    ReportedAllocation,
    ReportedConfig,
    ReportedGpu,
    ReportedResource,
)
from support import ROOT, warm
from support.cluster import stand_in_kubectl
from support.cluster.stand_in_agents import page
from support.output_schemas import check
from support.terminal import RESTORED, Terminal
from support.waiting import PATIENCE_S, wait_until
from vgpuctl.cluster.agents import list_path
from vgpuctl.cluster.refusals import KUBECTL_HINT

PODS = "/api/v1/namespaces/vgpu-system/pods"


class Typed:
    """A cluster of two nodes, and the plugin as its users type it."""

    def __init__(self, base: Path) -> None:
        self.base, self.older = base, set[str]()
        self.programs = stand_in_kubectl.make(base)
        self.answers: dict[str, tuple[int, str]] = {
            PODS: (200, json.dumps({"items": [self.pod(node) for node in ("n1", "n2")]})),
            self.page_of("n1"): (200, page("n1", "team-a/one").decode()),
            self.page_of("n2"): (200, page("n2", "team-b/two").decode()),
            "/api/v1/namespaces/team-b/pods/two": (200, json.dumps(self.pod("n2"))),
        }

    def pod(self, node: str) -> dict[str, object]:
        ports = [{"name": "metrics", "containerPort": 9446}]
        if node not in self.older:
            ports.append({"name": "pages", "containerPort": 9447})
        return {
            "metadata": {"name": f"agent-{node}", "namespace": "vgpu-system"},
            "spec": {"nodeName": node, "containers": [{"ports": ports}]},
            "status": {"phase": "Running"},
        }

    def page_of(self, node: str, name: str = "slices") -> str:
        if node in self.older:
            return f"{PODS}/agent-{node}:9446/proxy/v1/{name}"
        return f"{PODS}/agent-{node}/portforward?ports=9447 /v1/{name}"

    def write(self) -> None:
        """Has kubectl answer so from now on."""
        draft = self.base / "answers.new"
        draft.write_text(json.dumps(self.answers))
        draft.replace(self.base / "answers.json")

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        self.write()
        return subprocess.Popen(
            [sys.executable, "-m", "vgpuctl.cluster", *arguments],
            cwd=ROOT,
            env=os.environ | {"PATH": str(self.programs)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def vgpu(self, *arguments: str) -> tuple[int, str, str]:
        """Returns exit status, stdout and stderr."""
        self.write()
        environment = os.environ | {"PATH": str(self.programs)}
        done = warm.run(["-m", "vgpuctl.cluster", *arguments], environment)
        return done.returncode, done.stdout, done.stderr

    def kubectls(self) -> list[str]:
        """Returns what kubectl was started with, each time."""
        return (self.base / "asked").read_text().splitlines()


@pytest.fixture
def typed(tmp_path: Path) -> Typed:
    return Typed(tmp_path)


def test_nodes_are_read_by_one_kubectl_that_may_not_write(typed: Typed) -> None:
    status, output, said = typed.vgpu("ps", "-o", "json", "--context=c", "--as=u")
    assert (status, said) == (0, "")
    assert [(row["node"], row["pod"]) for row in check("kubectl-ps", output)] == [
        ("n1", "one"),
        ("n2", "two"),
    ]
    (asked,) = typed.kubectls()
    assert asked.startswith("--context=c --as=u proxy --unix-socket=")
    assert "--reject-methods=POST,PUT,PATCH,DELETE,CONNECT" in asked


def test_a_pod_without_a_namespace_is_looked_for_where_kubectl_would(typed: Typed) -> None:
    status, output, said = typed.vgpu("status", "--pod", "two", "-o", "json")
    assert (status, said) == (0, "")
    assert [row["node"] for row in check("kubectl-status", output)] == ["n2"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param((200, "slow:" + " " * 200), "no answer within 0.7 s", id="drop-by-drop"),
        pytest.param((200, "{}"), "not a page of slices", id="no-page"),
        pytest.param((200, '{"version": 9}'), "is of version 9, and known here", id="newer"),
        pytest.param((404, "no such page\n"), "it is older: no such page", id="older"),
        pytest.param((503, '{"message": "refused"}'), "does not answer: refused", id="dead"),
    ],
)
def test_a_node_that_gives_nothing_is_one_sentence(
    typed: Typed, answer: tuple[int, str], said: str
) -> None:
    typed.answers[typed.page_of("n1")] = answer
    began_s = time.monotonic()
    status, output, told = typed.vgpu("ps", "--timeout", "0.7")
    assert time.monotonic() - began_s < PATIENCE_S / 2
    assert status == 1
    assert [line.split()[0] for line in output.splitlines()[1:]] == ["n2"]
    (line,) = told.splitlines()
    assert line.startswith("kubectl vgpu: node n1: ") and said in line


def test_an_older_agent_is_asked_at_the_port_that_everybody_reaches(typed: Typed) -> None:
    typed.older.add("n1")
    typed.answers[PODS] = (200, json.dumps({"items": [typed.pod("n1"), typed.pod("n2")]}))
    typed.answers[typed.page_of("n1")] = (200, page("n1", "team-a/old").decode())
    status, output, said = typed.vgpu("ps", "-o", "json")
    assert (status, said) == (0, "")
    assert [row["pod"] for row in check("kubectl-ps", output)] == ["old", "two"]


def test_who_may_not_forward_ports_is_told_which_rights_that_takes(typed: Typed) -> None:
    refused = 'pods "agent-n1" is forbidden: User "u" cannot get resource "pods/portforward"'
    typed.answers[typed.page_of("n1").partition("?")[0]] = (403, json.dumps({"message": refused}))
    status, output, said = typed.vgpu("ps")
    assert (status, output) == (1, "")
    assert said.splitlines()[0] == f"kubectl vgpu: the API server refuses: {refused}"
    assert "the rights to get and create pods/portforward in namespace vgpu-system" in said


def test_a_port_at_which_nobody_listens_is_told_by_the_kubelet(typed: Typed) -> None:
    del typed.answers[typed.page_of("n1")]
    status, output, said = typed.vgpu("ps")
    assert status == 1
    assert [line.split()[0] for line in output.splitlines()[1:]] == ["n2"]
    assert said == (
        "kubectl vgpu: node n1: its agent vgpu-system/agent-n1 does not answer: "
        "error forwarding port 9447: connection refused\n"
    )


def test_a_long_list_of_pods_is_read_to_its_end(typed: Typed) -> None:
    for number, more in ((1, "on"), (2, "")):
        part = {"metadata": {"continue": more}, "items": [typed.pod(f"n{number}")]}
        path = list_path("vgpu-system", "" if number == 1 else "on")
        typed.answers[path] = (200, json.dumps(part))
    status, output, _ = typed.vgpu("ps")
    assert status == 0
    assert [line.split()[0] for line in output.splitlines()[1:]] == ["n1", "n2"]


def test_a_pod_is_described_from_the_node_that_has_it(typed: Typed) -> None:
    report = AgentReport(
        ReportedAgent("1", 7, "n2", 1.0),
        ReportedConfig("/c", "d" * 64, 1),
        (),
        "b" * 40,
        allocations=(ReportedAllocation("a-n2-0", "team-b/two/c", (ReportedGpu("GPU-n2", "x"),)),),
    )
    event = KeptEvent(5.0, "LimitsChanged", "told", subject="team-b/two/c")
    typed.answers[typed.page_of("n2", "state")] = (200, msgspec.json.encode(report).decode())
    typed.answers[typed.page_of("n2", "events")] = (200, msgspec.json.encode([event]).decode())

    status, output, said = typed.vgpu("describe", "team-b/two", "-o", "json")

    assert (status, said) == (0, "")
    (facts,) = check("kubectl-describe", output)
    assert (facts["node"], facts["allocation"]) == ("n2", "a-n2-0")
    assert facts["devices"][0]["core_from"] == "x"
    assert [each["text"] for each in facts["events"]] == ["told"]
    shown = typed.vgpu("describe", "GPU-n1")[1].splitlines()
    assert shown[0].split() == ["Node:", "n1"]
    # Without the agent's word on itself the rest is still there.
    del typed.answers[typed.page_of("n2", "state")]
    (facts,) = check("kubectl-describe", typed.vgpu("describe", "a-n2", "-o", "json")[1])
    assert (facts["has_agent"], facts["owner"]) == (False, "team-b/two/c")


def test_why_a_pod_has_no_slice_is_told_by_whichever_node_refused_it(typed: Typed) -> None:
    event = KeptEvent(5.0, "AllocationRefused", "no GPU has 40 GiB free", subject="team-b/big/c")
    typed.answers[typed.page_of("n2", "events")] = (200, msgspec.json.encode([event]).decode())
    status, _, said = typed.vgpu("describe", "team-b/big")
    assert status == 1
    assert "team-b/big has no slice, and was told:" in said and "no GPU has 40 GiB free" in said
    # A node that is silent may have it.
    typed.answers[typed.page_of("n1")] = (503, '{"message": "refused"}')
    status, _, said = typed.vgpu("describe", "team-a/one")
    assert status == 1
    assert "allocation 'team-a/one' is not there" in said and "node n1: its agent" in said


def test_doctor_judges_what_each_agent_says(typed: Typed) -> None:
    config = ReportedConfig("/c", "d" * 64, 1, error="line 3: no such key", hint="remove it")
    resource = ReportedResource("nvidia.com/vgpu-core", 1.0)
    report = AgentReport(ReportedAgent("1", 7, "n1", 1.0), config, (resource,), "b")
    typed.answers[typed.page_of("n1", "state")] = (200, msgspec.json.encode(report).decode())

    status, output, said = typed.vgpu("doctor", "-o", "json")

    assert (status, said) == (1, "")
    rows = check("kubectl-doctor", output)
    failed = {(row["node"], row["check"]) for row in rows if row["level"] == "fail"}
    assert failed == {("n1", "config"), ("n2", "agent")}
    assert ("n1", "resources") in {(r["node"], r["check"]) for r in rows if r["level"] == "ok"}
    typed.answers[typed.page_of("n2", "state")] = (200, '{"agent": 1}')
    shown = typed.vgpu("doctor", "--problems", "--node", "n2")[1]
    assert "is of a form that this kubectl-vgpu does not know: Expected `object`" in shown
    lines = typed.vgpu("doctor", "--problems", "--node", "n1")[1].splitlines()
    assert [line.split()[:3] for line in lines] == [["n1", "fail", "config"]]


def test_top_draws_the_nodes_says_who_is_silent_and_puts_the_screen_back(typed: Typed) -> None:
    typed.write()
    verb = [sys.executable, "-m", "vgpuctl.cluster", "top", "--interval=0.6"]
    terminal = Terminal(verb, PATH=str(typed.programs))
    try:
        lines = terminal.wait("team-a/one/c", "team-b/two/c", "q quit")
        assert any(line.split()[:3] == ["n1", "GPU", "0"] for line in lines)
        # Four tenths of the GPU's time between two pages, by the node's own clock.
        typed.answers[typed.page_of("n1")] = later = (
            200,
            page("n1", "team-a/one", at_s=1010.0, gpu_time_ns=4_000_000_000).decode(),
        )
        typed.write()
        terminal.wait("40.0 / 30")
        typed.answers[typed.page_of("n1")] = (503, '{"message": "refused"}')
        typed.write()
        terminal.wait("no answer of n1", "team-b/two/c", without="team-a/one/c")
        typed.answers[typed.page_of("n1")] = later
        typed.write()
        terminal.wait("team-a/one/c", "q quit")
        terminal.type("q")
        assert terminal.wait_end() == 0
        assert RESTORED in terminal.bytes
    finally:
        terminal.close()


def test_one_frame_needs_no_terminal(typed: Typed) -> None:
    status, output, said = typed.vgpu("top", "--once", "--interval", "0.6")
    assert (status, said) == (0, "")
    assert "team-a/one/c" in output and "n2 GPU 0" in output
    status, _, said = typed.vgpu("top")
    assert (status, "use --once" in said) == (2, True)


CONFIG = """\
version: v1
sharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}
limits:
# of all others
- match: {}
  core: "80%"
"""
CONFIG_MAP = "/api/v1/namespaces/vgpu-system/configmaps/vgpu-config"


def with_config(typed: Typed, **data: str) -> None:
    """Gives the cluster a ConfigMap, and agents that say what the slices asked for."""
    meta = {"resourceVersion": "77", "labels": {"app.kubernetes.io/managed-by": "Helm"}}
    typed.answers[CONFIG_MAP] = (200, json.dumps({"metadata": meta, "data": data}))
    for node, owner in (("n1", "team-a/one/c"), ("n2", "team-b/two/c")):
        gpu = ReportedGpu(
            f"GPU-{node}", asked_core_percent=40, asked_memory_bytes=8 << 30, core="limits[0]"
        )
        allocation = ReportedAllocation(f"a-{node}-0", owner, (gpu,))
        report = AgentReport(
            ReportedAgent("1", 7, node, 1.0),
            ReportedConfig("/c", "d", 1),
            (),
            "b",
            allocations=(allocation,),
        )
        typed.answers[typed.page_of(node, "state")] = (200, msgspec.json.encode(report).decode())


def test_set_shows_what_it_will_do_and_changes_nothing(typed: Typed) -> None:
    with_config(typed, **{"config.yaml": CONFIG})
    values = ["-n", "team-a", "--core", "20", "--memory", "6GiB"]
    status, output, said = typed.vgpu("set", *values, "--dry-run")
    assert (status, said) == (0, "kubectl vgpu: nothing is changed (--dry-run)\n")
    assert "+- {match: {namespace: team-a}, core: 20, memory: 6GiB}" in output.splitlines()
    assert not [line for line in output.splitlines() if line.startswith("-") and line[1:2] != "-"]
    status, output, _ = typed.vgpu("set", *values, "--dry-run", "-o", "json")
    rows = {row["value"]: row for row in check("kubectl-set", output)}
    assert {(row["node"], row["owner"]) for row in rows.values()} == {("n1", "team-a/one/c")}
    # The slice has 30 and 4 GiB by the rule of before; it asked for 40 and 8 GiB.
    assert (rows["core_percent"]["old"], rows["core_percent"]["new"]) == (30, 20)
    assert (rows["memory_bytes"]["old"], rows["memory_bytes"]["new"]) == (4 << 30, 6 << 30)
    assert not (typed.base / "change").exists()


def test_set_changes_the_config_that_it_read(typed: Typed) -> None:
    with_config(typed, **{"config.yaml": CONFIG})
    status, _, said = typed.vgpu("set", "-n", "team-a", "--core", "20")
    assert status == 0
    assert "put it into the chart's values too" in said
    change = json.loads((typed.base / "change").read_text())
    assert change["metadata"] == {"resourceVersion": "77"}
    text = change["data"]["config.yaml"]
    assert [rule.namespace for rule in parse_config(text).rules] == ["team-a", "*"]
    assert "# of all others" in text
    # And back again.
    with_config(typed, **{"config.yaml": text})
    assert typed.vgpu("set", "-n", "team-a", "--clear")[0] == 0
    change = json.loads((typed.base / "change").read_text())
    assert [rule.namespace for rule in parse_config(change["data"]["config.yaml"]).rules] == ["*"]


def test_set_goes_by_the_labels_of_pods_and_by_what_was_set_by_hand(typed: Typed) -> None:
    with_config(typed, **{"config.yaml": CONFIG})
    pod = {"metadata": {"name": "one", "labels": {"app": "train"}}}
    typed.answers["/api/v1/namespaces/team-a/pods"] = (200, json.dumps({"items": [pod]}))
    values = ["-n", "team-a", "--core", "10", "--dry-run", "-o", "json", "--pod-label"]
    assert len(check("kubectl-set", typed.vgpu("set", *values, "app=train")[1])) == 3
    assert check("kubectl-set", typed.vgpu("set", *values, "app=serve")[1]) == []
    path = typed.page_of("n1", "state")
    by_hand = typed.answers[path][1].replace("limits[0]", "vgpuctl set")
    typed.answers[path] = (200, by_hand)
    rows = check("kubectl-set", typed.vgpu("set", *values, "app=train")[1])
    assert [row["new"] for row in rows if row["value"] == "core_percent"] == [30]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        pytest.param(["--core", "20"], 2, "name one with --config; there are: a, b", id="several"),
        pytest.param(["--core", "20", "--config", "c"], 1, "has no config c", id="no-such"),
        pytest.param(["--config", "a", "--clear"], 1, "no rule for", id="nothing-to-clear"),
        pytest.param(["--config", "a"], 2, "nothing to set", id="nothing"),
        pytest.param(["--clear", "--core", "1"], 2, "give it alone", id="both"),
        pytest.param(["--memory", "6"], 2, "did you mean 6Gi?", id="no-unit"),
        pytest.param(["--core", "120"], 2, "from 1 to 100", id="too-much"),
        pytest.param(["--core", "120%", "--config", "a"], 2, "core '120%'", id="too-much-of-it"),
        pytest.param(["--core", "1", "--pod-label", "x"], 2, "is not KEY=VALUE", id="label"),
    ],
)
def test_what_set_cannot_do_is_one_sentence(
    typed: Typed, arguments: list[str], status: int, said: str
) -> None:
    with_config(typed, a=CONFIG, b=CONFIG)
    found, output, told = typed.vgpu("set", "-n", "team-a", *arguments)
    assert (found, output) == (status, "")
    assert said in told.splitlines()[0]
    assert not (typed.base / "change").exists()


def test_what_tenants_write_does_not_reach_the_terminal(typed: Typed) -> None:
    typed.answers[typed.page_of("n1")] = (200, page("n1", "team-a/\x1b[31mred").decode())
    status, output, _ = typed.vgpu("ps", "--node", "n1")
    assert status == 0
    assert "\x1b" not in output and "?[31mred" in output


def test_a_kubectl_that_does_not_start_is_told(typed: Typed) -> None:
    (typed.base / "broken").touch()
    status, output, said = typed.vgpu("ps")
    assert (status, output) == (1, "")
    assert said.splitlines() == [
        "kubectl vgpu: kubectl proxy does not start: the kubeconfig is broken",
        f"hint: {KUBECTL_HINT}",
    ]
    (typed.programs / "kubectl").unlink()
    status, _, said = typed.vgpu("ps")
    assert status == 1
    assert "kubectl cannot be started: No such file or directory" in said


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_kubectl_outlives_the_plugin(typed: Typed, number: signal.Signals) -> None:
    typed.answers[typed.page_of("n1")] = (200, "slow:" + " " * 1000)
    process = typed.start("ps", "--timeout", "60")
    me = psutil.Process(process.pid)
    try:
        wait_until(lambda: any("proxy" in child.cmdline() for child in me.children()))
        (kubectl,) = me.children()
        process.send_signal(number)
        if number is not signal.SIGINT:  # a terminal sends that one to kubectl as well
            process.wait(PATIENCE_S)
            wait_until(lambda: has_ended(kubectl))
        else:
            with contextlib.suppress(psutil.NoSuchProcess):  # the plugin may have ended it already
                kubectl.send_signal(number)
            process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
