"""No test sleeps for its verdict, and none claims how soon something comes.

A sleep that is long enough here is too short on a slower machine, and what is measured by the
clock says how busy the machine was. What has to measure time is marked ``virtual`` and has a time
that is the same on any machine, or is marked ``timing`` and is not among the tests of a check.
Every other test waits with ``support/waiting.py``, or is given its time.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import ROOT

TESTS = ROOT / "tests"
#: A program that sleeps as long waits to be ended: no verdict comes after it.
HOLDS_S = 30.0
_SLEEP = re.compile(r"\b(?:time\.|asyncio\.)?sleep\(([^()]*)\)")
_SLEEPS = ("time.sleep", "asyncio.sleep", "sleep")
#: One that no slow machine reaches, and that of a `waiting.bar`.
_BOUNDS = ("PATIENCE_S", "patience_s", "most_s")
#: A file without any of these need not be parsed.
_MAY = re.compile(r"sleep\s*\(|\.\s*(?:monotonic|perf_counter|time)(?:_ns)?\b")
_CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"}

NOTHING_COMES = "gives what must not come a moment to come: a slow machine still passes"
ANY_MOMENT = "acts at some moment that no call tells of: the verdict is the same at any"
SLOW_PART = "plays something slow: nobody waits for it to be quick"
REAL_CLOCK = "the program lives by the machine's clock, and the verdict leaves room for a slow one"
BOUND = "claims a bound that is many times what it takes; a given clock would say it better"
MEASURES = "is what measures or waits, for tests that are marked"

#: How many sleeps and bounds a file may still have, and why. Nothing may be added.
ALLOWED = {
    "exercises/waits.py": (1, REAL_CLOCK),
    "integration/deviceplugin/agent/test_bad_requests.py": (1, ANY_MOMENT),
    "integration/deviceplugin/agent/test_kept_config.py": (1, ANY_MOMENT),
    "integration/deviceplugin/agent/test_published.py": (1, NOTHING_COMES),
    "integration/deviceplugin/inventory/test_health.py": (1, NOTHING_COMES),
    "integration/deviceplugin/kube/test_events.py": (3, f"{BOUND}; {NOTHING_COMES}"),
    "integration/deviceplugin/kube/test_inventory_lease.py": (6, NOTHING_COMES),
    "integration/deviceplugin/kube/test_node_label.py": (1, NOTHING_COMES),
    "integration/deviceplugin/kube/test_pod_labels.py": (2, NOTHING_COMES),
    "integration/deviceplugin/mps/test_agent.py": (3, f"{BOUND}; {SLOW_PART}"),
    "integration/deviceplugin/scheduler/test_binding.py": (1, SLOW_PART),
    "integration/deviceplugin/scheduler/test_extender_bad_input.py": (2, SLOW_PART),
    "integration/deviceplugin/scheduler/test_follow.py": (1, NOTHING_COMES),
    "integration/deviceplugin/watch/test_honest_programs.py": (1, REAL_CLOCK),
    "integration/deviceplugin/watch/test_watcher.py": (1, NOTHING_COMES),
    "integration/libvgpu/code/test_modules.py": (1, REAL_CLOCK),
    "integration/libvgpu/compute/test_uncapped.py": (1, REAL_CLOCK),
    "integration/libvgpu/compute/test_utilisation.py": (1, MEASURES),
    "integration/libvgpu/memory/test_reconcile.py": (2, REAL_CLOCK),
    "integration/suite/test_plugins.py": (2, MEASURES),
    "integration/vgpuctl/test_run_foreground.py": (2, ANY_MOMENT),
    "integration/vgpuctl/test_top.py": (1, ANY_MOMENT),
    "native/arbiter/test_arbiter.py": (3, ANY_MOMENT),
    "native/sim/test_calibrated.py": (1, REAL_CLOCK),
    "native/sim/test_calls.py": (3, ANY_MOMENT),
    "native/sim/test_memory.py": (3, f"{ANY_MOMENT}; {NOTHING_COMES}"),
    "native/sim/test_nvml_faults.py": (1, ANY_MOMENT),
    "native/sim/test_stream_memory.py": (1, ANY_MOMENT),
    "support/scheduler/lives.py": (3, ANY_MOMENT),
    "support/shim/lazy_code.py": (1, REAL_CLOCK),
    "support/suite/leftovers.py": (2, MEASURES),
    "support/node/mps_node.py": (1, ANY_MOMENT),
    "support/node/keeper.py": (1, MEASURES),
    "support/suite/quiet.py": (1, MEASURES),
    "support/shim/crowd.py": (1, MEASURES),
    "support/sim/programs.py": (2, MEASURES),
    "support/cluster/stand_in_kubectl.py": (1, SLOW_PART),
    "unit/deviceplugin/http/test_server.py": (1, SLOW_PART),
    "unit/deviceplugin/inventory/test_health_watch.py": (1, SLOW_PART),
    "unit/vgpuctl/bundle/test_machine.py": (1, SLOW_PART),
}


def _is_timing(node: ast.AST) -> bool:
    """Whether the marks of a function or a file say that it measures time."""
    return any(
        isinstance(each, ast.Attribute) and each.attr in ("timing", "virtual")
        for each in ast.walk(node)
    )


def _holds(argument: str) -> bool:
    return bool(re.fullmatch(r"[\d._]+", argument)) and float(argument) >= HOLDS_S


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def _asks_a_clock(node: ast.AST) -> bool:
    names = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return bool(names & _CLOCKS)


def _is_difference(node: ast.AST) -> bool:
    return any(isinstance(each, ast.BinOp) and _asks_a_clock(each) for each in ast.walk(node))


def _timed_names(tree: ast.AST) -> set[str]:
    """The names that a file gives to how long something took, or to lists of that."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_difference(node.value):
            found |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Call) and any(map(_is_difference, node.args)):
            name, _, method = _name_of(node.func).partition(".")
            found |= {name} if method == "append" else set()
    return found


def _is_bound(node: ast.Assert, timed_names: set[str]) -> bool:
    """Whether it claims that the difference of two readings of a clock is below something."""
    if not isinstance(node.test, ast.Compare):
        return False
    most = node.test.comparators[0]
    if any(isinstance(each, ast.Name) and each.id in _BOUNDS for each in ast.walk(most)):
        return False
    left = node.test.left
    names = {each.id for each in ast.walk(left) if isinstance(each, ast.Name)}
    is_timed = _is_difference(left) or bool(names & timed_names)
    return isinstance(node.test.ops[0], ast.Lt | ast.LtE) and is_timed


def _looked_at(node: ast.AST, *, polls: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """The parts of a file whose verdict needs no time, and whether a loop looks again and again.

    A loop that ends by the clock does not count as one: its end hangs on the machine.
    """
    for child in ast.iter_child_nodes(node):
        marks = getattr(child, "decorator_list", ())
        if any(map(_is_timing, marks)):
            continue
        inside = polls or (isinstance(child, ast.While) and not _asks_a_clock(child.test))
        yield child, inside
        yield from _looked_at(child, polls=inside)


def found_in(source: str) -> list[tuple[int, str]]:
    """Returns the lines that sleep, or bound how long something took, and how they do."""
    if not _MAY.search(source):
        return []
    tree = ast.parse(source)
    marks = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
    ]
    if any(map(_is_timing, marks)):
        return []
    found, timed_names = set(), _timed_names(tree)
    for node, polls in _looked_at(tree):
        if isinstance(node, ast.Call) and not polls and _name_of(node.func) in _SLEEPS:
            found.add((node.lineno, ast.unparse(node)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {(node.lineno, each[0]) for each in re.finditer(_SLEEP, node.value)}
        elif isinstance(node, ast.Assert) and _is_bound(node, timed_names):
            found.add((node.lineno, ast.unparse(node)))
    return sorted(each for each in found if not _holds(each[1].partition("(")[2][:-1]))


FILES = sorted(
    path.relative_to(TESTS).as_posix()
    for path in TESTS.rglob("*.py")
    if path.name != Path(__file__).name
)


def test_no_test_sleeps_or_bounds_time_but_those_that_did() -> None:
    wrong = {}
    for file in FILES:
        found = found_in((TESTS / file).read_text())
        if len(found) != ALLOWED.get(file, (0, ""))[0]:
            wrong[file] = found
    assert wrong == {}, "wait with support/waiting.py; where there are fewer now, lower ALLOWED"


def test_the_list_names_files_that_are_there_with_a_reason() -> None:
    assert [file for file, (_, reason) in ALLOWED.items() if file not in FILES or not reason] == []


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(0.1)",
        "time.sleep(SETTLE_SECONDS)",
        "sleep(2)",
        "await asyncio.sleep(0.1)",
        "while time.monotonic() < end: time.sleep(0.01)",
        "run('import time; time.sleep(0.5)')",
        "assert time.monotonic() - began < 2",
        "assert 1000 * (time.perf_counter() - began) <= bar_ms",
        "took_s = time.monotonic() - began; assert took_s < 2",
        "took_s.append(time.monotonic() - began); assert min(took_s) < 2",
    ],
)
def test_what_is_planted_is_refused_unless_it_measures_time(line: str) -> None:
    test = f"async def test_it():\n    {line}\n"

    assert [place for place, _ in found_in(test)] == [2]
    assert found_in(f"pytestmark = [pytest.mark.timing, pytest.mark.timeout(9)]\n{test}") == []
    assert found_in(f"@pytest.mark.timing\n{test}") == []
    assert found_in(f"@pytest.mark.virtual\n{test}") == []


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(600)",
        "run('time.sleep(60)')",
        "while not it(): time.sleep(0.01)",
        "assert time.monotonic() - began < PATIENCE_S",
        "assert time.monotonic() - began > 2",
    ],
)
def test_what_waits_to_be_ended_looks_again_or_is_no_bound_may_be(line: str) -> None:
    assert found_in(f"def test_it():\n    {line}\n") == []
