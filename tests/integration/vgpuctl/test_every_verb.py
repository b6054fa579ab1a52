"""Each verb through the real command on a simulated node, with its agent running and stopped.

`CALLS` has a row for each verb, and a test says where one is missing. What a verb writes as JSON
keeps to its schema, and every verb with ``-o`` has one.
"""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import EventReason, Notice
from deviceplugin.store.event_file import EventFile
from support import CLIENT_PATH, ROOT, warm
from support.node.simulated import SimulatedNode
from support.output_schemas import check
from support.waiting import PATIENCE_S, wait_until
from vgpuctl.cli import cli
from vgpuctl.output.schemas import OUTPUTS

CONFIG = """\
version: v1
sharing:
  fractional:
    - {family: vgpu, memoryUnit: 1Gi}
"""
RUNNING, STOPPED = "running", "stopped"
NO_AGENT = "no node agent answers"
_FAULTS = ("Traceback", "an error of vgpuctl itself", "Exception ignored")


@dataclass(frozen=True)
class Call:
    """One command line and what comes of it.

    Attributes:
        words: behind ``vgpuctl``; ``{base}`` is the node's directory.
        shows: a pattern in stdout or stderr while the agent runs.
        stopped: the same while it is stopped; by default it makes no difference.
        status: the exit status while the agent runs.
        stopped_status: the same while it is stopped.
    """

    words: str
    shows: str
    stopped: str = ""
    status: int = 0
    stopped_status: int = 0


WHOLE = "{base}/whole.yaml"  # a config that says that no GPU is in MIG mode
CALLS = {
    "run": Call("run --memory 1GiB --core 5 --name brief --summary -- echo hello", "hello"),
    "describe": Call("describe default/train", "Core: +(30|20) %, from", "Core: +(30|20) %\n"),
    "ps": Call("ps", "default/train/c +vgpu"),
    "top": Call("top --once --interval=0.1", "default/train/c"),
    "status": Call("status", "Tesla T4 +simulated +ok +vgpu", "Tesla T4 +simulated +- +vgpu"),
    "events": Call("events", "AllocationRefused +default/other/c +no room"),
    "metrics": Call("metrics memory_limit", "vgpu_container_memory_limit_bytes", NO_AGENT, 0, 1),
    "set": Call("set default/train --core 20", "core_percent|20", NO_AGENT, 0, 1),
    "doctor": Call("doctor", "agent +version .* answers", f"fail +agent +{NO_AGENT}", 0, 1),
    "support-bundle": Call(
        "support-bundle --force {base}/b.tar.gz", r"b.tar.gz has \d+ files", "left out state.json"
    ),
    "config schema": Call("config schema", "json-schema.org"),
    "config show": Call("config show", "sharing.fractional.*vgpu +line 4", NO_AGENT, 0, 1),
    "config validate": Call("config validate --on-node {base}/config.yaml", "config.yaml: good"),
    "mig apply": Call(f"mig apply {WHOLE}", "every GPU is as the config says"),
    "sim run": Call("sim run --fast t4 -- echo hello", "hello"),
    "sim list": Call("sim list", r"@every +t4 "),
    "sim rm": Call("sim rm nobody", "there is no simulated machine 'nobody'", "", 1, 1),
    "sim inject xid": Call("sim inject {base}/box/0 xid 13", "XID 13 raised"),
    "sim inject lost": Call("sim inject {base}/box/1 lost --recover", "is not lost", "", 1, 1),
    "sim inject fail-allocations": Call("sim inject {base}/box/0 fail-allocations 0", "the next 0"),
    "sim inject delay": Call("sim inject {base}/box delay 0", "takes 0 us longer"),
    "sim inject code": Call("sim inject {base}/box code 700 --count 0", "the next 0 driver calls"),
    "sim inject nvml": Call(
        "sim inject {base}/box/0 nvml nvmlDeviceGetSerial 3", "nvmlDeviceGetSerial answers 3"
    ),
    "sim inject ecc": Call("sim inject {base}/box/0 ecc single", r"\d corrected and 0 uncorrected"),
    "sim inject clear": Call("sim inject {base}/box clear", "nothing is injected any more"),
    "completion": Call("completion bash", "_vgpuctl_completion"),
    # Its own agents are in test_demo.py; here it must end before it starts any.
    "demo": Call("demo --examples {base}", "holds no mps-half/pod.yaml", "", 2, 2),
}
AS_JSON = {**CALLS, "set": Call("set mine --core 10", "core_percent")}
#: What is shown in another way by the same verb.
ALSO_AS_JSON = ("describe mine", "describe 0", "set mine --memory 1GiB")
#: It holds memory, was refused some, and stays.
CLIENT = """
from support.shim.cuda_client import *
check(driver.cuInit(0))
open_context()
check(driver.cuMemAlloc(64 << 20))
driver.cuMemAlloc(64 << 30)
time.sleep(600)
"""


def leaves(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    for name in command.list_commands(click.Context(command)):
        below = command.get_command(click.Context(command), name)
        assert below is not None
        yield from leaves(below, (*path, name))


VERBS = dict(leaves())
WITH_JSON = [
    path for path, verb in VERBS.items() if any("--output" in each.opts for each in verb.params)
]


class Node:
    """A simulated node with a pod and a `vgpuctl run`, and what a user types there."""

    def __init__(self, base: Path, state: str) -> None:
        self.base, self.state = base, state
        self.node = SimulatedNode(base, "t4*2", CONFIG)
        (base / "whole.yaml").write_text("version: v1\nmig:\n- {profiles: {}}\n")
        (base / "box").symlink_to(base / "machine")
        self.environment = self.node.machine.environment(os.environ) | {
            "VGPU_RUN_DIR": f"{base}/r",
            "VGPU_STATE_DIR": f"{base}/s",
            "VGPU_KUBELET_DIR": f"{base}/k",
            "XDG_RUNTIME_DIR": f"{base}/u",
            "PYTHONPATH": CLIENT_PATH,
        }
        (base / "u").mkdir(mode=0o700)
        self.node.devices(self.node.admit("train", vgpu_core=30, vgpu_memory=4))
        wait_until(lambda: "default/train/c" in self.vgpuctl(["ps"]).stdout, "the pod is known")
        run = ["run", "--gpu", "1", "--memory", "2GiB", "--core", "50", "--name", "mine", "--"]
        self.programs = [
            self._start(*run, sys.executable, "-c", CLIENT),
            self._start(*["sim", "run", "--fast", "t4@every", "--", "sleep", "600"]),
        ]
        wait_until(self._was_refused, "the run is there")
        wait_until(lambda: "@every" in self.vgpuctl(["sim", "list"]).stdout, "the machine is there")
        if state == STOPPED:
            self.node.stop_agent()
        refused = Notice(EventReason.ALLOCATION_REFUSED, "no room", Owner("default", "other", "c"))
        EventFile(base / "s").add(refused)

    def _start(self, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "vgpuctl", *words], cwd=ROOT, env=self.environment
        )

    def _was_refused(self) -> bool:
        rows = json.loads(self.vgpuctl(["ps", "-o", "json"]).stdout)
        return any(row["last_refusal"] for row in rows)

    def vgpuctl(self, words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return warm.run(["-m", "vgpuctl", *words], self.environment)

    def status(self, call: Call) -> int:
        """Returns with what a call ends."""
        return call.stopped_status if self.state == STOPPED else call.status

    def call(self, call: Call, *more: str) -> tuple["subprocess.CompletedProcess[str]", str]:
        """Returns what came of a call, and what is wrong with its end; empty where nothing is."""
        words = [word.format(base=self.base) for word in call.words.split()]
        done = self.vgpuctl([*words, *more])
        said = done.stdout + done.stderr
        status = self.status(call)
        if done.returncode != status or any(fault in said for fault in _FAULTS):
            return done, f"status {done.returncode} instead of {status}: {said}"
        return done, ""

    def close(self) -> None:
        for program in self.programs:
            program.terminate()
            program.wait(PATIENCE_S)
        self.vgpuctl(["sim", "rm", "every"])
        self.node.close()


@pytest.fixture(params=[RUNNING, STOPPED])
def node(short_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    with contextlib.closing(Node(short_path, request.param)) as made:
        yield made


def test_every_verb_has_a_row_here() -> None:
    assert set(CALLS) == set(VERBS)


def test_every_verb_with_json_has_a_schema() -> None:
    assert set(OUTPUTS) == set(WITH_JSON)


def test_each_does_what_it_is_for_or_says_what_it_lacks(node: Node) -> None:
    """One after the other, then each with JSON and on a narrow terminal: a node takes longest."""
    problems = {
        **{verb: _what_it_does(node, verb) for verb in CALLS},
        **{f"{verb} -o json": _what_it_writes(node, verb, AS_JSON[verb]) for verb in WITH_JSON},
        **{
            f"{words} -o json": _what_it_writes(node, words.split()[0], Call(words, ""))
            for words in ALSO_AS_JSON
        },
        **{f"{verb}, 20 columns": _what_it_draws(node, verb) for verb in CALLS},
    }
    assert {what: problem for what, problem in problems.items() if problem} == {}


def _what_it_does(node: Node, verb: str) -> str:
    call = CALLS[verb]
    done, problem = node.call(call)
    wanted = (node.state == STOPPED and call.stopped) or call.shows
    if not problem and not re.search(wanted, done.stdout + done.stderr):
        problem = f"nothing like {wanted!r} in {done.stdout}{done.stderr}"
    return problem


def _what_it_writes(node: Node, verb: str, call: Call) -> str:
    done, problem = node.call(call, "-o", "json")
    if problem:
        return problem
    if done.returncode and NO_AGENT in done.stderr:
        return "it writes no JSON" * bool(done.stdout)
    # An empty list says nothing of the schema.
    return "" if check(verb, done.stdout) else "there is nothing in its list"


def _what_it_draws(node: Node, verb: str) -> str:
    words = [word.format(base=node.base) for word in CALLS[verb].words.split()]
    status, drawn = _on_terminal(words, node.environment | {"TERM": "xterm-256color"})
    if status != node.status(CALLS[verb]) or any(fault in drawn for fault in _FAULTS):
        return f"status {status}: {drawn}"
    return ""


def _on_terminal(words: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Returns the exit status of a verb on a terminal of 20 columns, and what it drew."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 20, 0, 0))
    drawn = b""

    def run() -> int:
        try:
            return warm.run(["-m", "vgpuctl", *words], environment, terminal=slave).returncode
        finally:
            os.close(slave)

    with ThreadPoolExecutor() as pool, open(master, "rb", buffering=0) as screen:
        ending = pool.submit(run)
        with contextlib.suppress(OSError):  # its end of the terminal is closed
            while piece := screen.read(1 << 16):
                drawn += piece
        return ending.result(), drawn.decode(errors="replace")
