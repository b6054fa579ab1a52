"""Handles of objects that were destroyed: whoever uses one again ends, as on a real driver."""

import re
import signal

import pytest

from libvgpu.sim import Machine
from support.sim.programs import run, said_in, start
from support.waiting import PATIENCE_S

OBJECTS = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
open_context()
spinner = Spinner(1_000_000)
create = {
    "stream": lambda: check(cuda.cuStreamCreate(1)),
    "event": lambda: check(cuda.cuEventCreate(0)),
    "module": lambda: check(cuda.cuModuleLoadData(SPIN_PTX)),
    "graph": lambda: check(cuda.cuGraphCreate(0)),
    "exec": lambda: check(cuda.cuGraphInstantiate(empty, 0)),
    "context": lambda: (create_context(), check(cuda.cuCtxPopCurrent()))[1],
}
destroy = {
    "stream": cuda.cuStreamDestroy,
    "event": cuda.cuEventDestroy,
    "module": cuda.cuModuleUnload,
    "graph": cuda.cuGraphDestroy,
    "exec": cuda.cuGraphExecDestroy,
    "context": cuda.cuCtxDestroy,
}
empty = create["graph"]()
def function(module): return check(cuda.cuModuleGetFunction(module, b"spin_ns"))
def launch(function, stream=0):
    return cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream,
                               ctypes.addressof(spinner._arguments), 0)
"""
STREAM = "a stream that was destroyed; a real driver crashes here (SIGSEGV on an H100)"
CONTEXT = "a context that was destroyed; a real driver aborts soon after (SIGABRT on an H100)"
ANSWERED = "; an H100 answered {}, out of memory already freed"
EVENT = "an event that was destroyed" + ANSWERED.format(709)
MODULE = "a module that was unloaded" + ANSWERED.format(400)
FUNCTION = "a function of a module that was unloaded" + ANSWERED.format(400)
GRAPH = "a graph that was destroyed" + ANSWERED.format(1)
EXEC = "an executable graph that was destroyed" + ANSWERED.format(1)

#: What is destroyed, what is done with it afterwards, the call that is told, and of what.
USES = [
    ("stream", "launch(spinner._function, it)", "cuLaunchKernel", STREAM),
    ("stream", "cuda.cuStreamSynchronize(it)", "cuStreamSynchronize", STREAM),
    ("stream", "cuda.cuStreamQuery(it)", "cuStreamQuery", STREAM),
    ("stream", "cuda.cuEventRecord(create['event'](), it)", "cuEventRecord", STREAM),
    ("stream", "cuda.cuMemAllocAsync(4096, it)", "cuMemAllocAsync", STREAM),
    ("stream", "cuda.cuGraphLaunch(create['exec'](), it)", "cuGraphLaunch", STREAM),
    ("stream", "cuda.cuStreamDestroy(it)", "cuStreamDestroy", STREAM),
    ("event", "cuda.cuEventRecord(it, 0)", "cuEventRecord", EVENT),
    ("event", "cuda.cuEventQuery(it)", "cuEventQuery", EVENT),
    ("event", "cuda.cuEventSynchronize(it)", "cuEventSynchronize", EVENT),
    ("event", "cuda.cuStreamWaitEvent(0, it, 0)", "cuStreamWaitEvent", EVENT),
    (
        "event",
        "cuda.cuGraphAddEventRecordNode(empty, None, 0, it)",
        "cuGraphAddEventRecordNode",
        EVENT,
    ),
    ("event", "cuda.cuEventDestroy(it)", "cuEventDestroy", EVENT),
    ("context", "cuda.cuCtxSetCurrent(it)", "cuCtxSetCurrent", CONTEXT),
    ("context", "cuda.cuCtxPushCurrent(it)", "cuCtxPushCurrent", CONTEXT),
    ("context", "cuda.cuCtxGetApiVersion(it)", "cuCtxGetApiVersion", CONTEXT),
    ("context", "cuda.cuCtxDestroy(it)", "cuCtxDestroy", CONTEXT),
    ("module", "cuda.cuModuleGetFunction(it, b'spin_ns')", "cuModuleGetFunction", MODULE),
    ("module", "cuda.cuModuleUnload(it)", "cuModuleUnload", MODULE),
    ("module", "launch(inside)", "cuLaunchKernel", FUNCTION),
    ("graph", "cuda.cuGraphInstantiate(it, 0)", "cuGraphInstantiate", GRAPH),
    ("graph", "cuda.cuGraphGetNodes(it)", "cuGraphGetNodes", GRAPH),
    ("graph", "cuda.cuGraphDestroy(it)", "cuGraphDestroy", GRAPH),
    ("exec", "cuda.cuGraphLaunch(it, 0)", "cuGraphLaunch", EXEC),
    ("exec", "cuda.cuGraphExecDestroy(it)", "cuGraphExecDestroy", EXEC),
]


@pytest.mark.parametrize(
    ("kind", "use", "call", "what"), USES, ids=[f"{u[0]}-{u[2]}" for u in USES]
)
def test_a_program_that_uses_what_it_destroyed_ends_there(
    machine: Machine, kind: str, use: str, call: str, what: str
) -> None:
    code = f"""
it = create["{kind}"]()
inside = function(it) if "{kind}" == "module" else None
check(destroy["{kind}"](it))
print("destroyed", flush=True)
{use}
print("survived", flush=True)
"""
    program = start(machine, OBJECTS + code)
    out, err = program.communicate(timeout=PATIENCE_S)

    assert (out, program.returncode) == ("destroyed\n", -signal.SIGABRT), err
    assert re.search(
        rf"^simulated libcuda: {call}(WithFlags)?(_v\d)? was given {re.escape(what)}$",
        err,
        re.MULTILINE,
    ), err


def test_an_event_that_a_graph_still_holds_ends_its_launch(machine: Machine) -> None:
    code = """
event = create["event"]()
check(cuda.cuGraphAddEventRecordNode(empty, None, 0, event))
ready = create["exec"]()
check(cuda.cuEventDestroy(event))
cuda.cuGraphLaunch(ready, 0)
"""
    program = start(machine, OBJECTS + code)
    err = program.communicate(timeout=PATIENCE_S)[1]

    assert program.returncode == -signal.SIGABRT, err
    assert f"simulated libcuda: cuGraphLaunch was given {EVENT}\n" in err


def test_the_memory_of_what_was_destroyed_last_is_the_next_object_of_its_kind(
    machine: Machine,
) -> None:
    code = """
again = {}
for kind in create:
    one, other = create[kind](), create[kind]()
    check(destroy[kind](one)); check(destroy[kind](other))
    made = [create[kind](), create[kind]()]
    again[kind] = [int(each) for each in made] == [int(other), int(one)]
    if kind == "context":
        works = [cuda.cuCtxPushCurrent(made[0]), cuda.cuMemAlloc(4096), cuda.cuCtxSynchronize(),
                 cuda.cuCtxPopCurrent()]
    elif kind == "module":
        works = [launch(function(made[0])), cuda.cuCtxSynchronize()]
    elif kind == "graph":
        works = [cuda.cuGraphAddEmptyNode(made[0], None, 0), cuda.cuGraphInstantiate(made[0], 0)]
    elif kind == "exec":
        works = [cuda.cuGraphLaunch(made[0], 0)]
    elif kind == "event":
        works = [cuda.cuEventRecord(made[0], 0), cuda.cuEventSynchronize(made[0])]
    else:
        works = [launch(spinner._function, made[0]), cuda.cuStreamSynchronize(made[0])]
    again[kind] = again[kind] and not any(map(code, works))
say(**again)
"""
    kinds = ("stream", "event", "module", "graph", "exec", "context")
    assert said_in(machine, OBJECTS + code) == dict.fromkeys(kinds, True)


def test_work_goes_on_when_its_stream_is_destroyed_and_its_handle_is_another_stream(
    machine: Machine,
) -> None:
    code = """
long = Spinner(300_000_000)
behind = create["event"]()
old = long.stream
long.launch()
check(cuda.cuEventRecord(behind, old))
check(cuda.cuStreamDestroy(old))
new = create["stream"]()
idle, busy = code(cuda.cuStreamQuery(new)), code(cuda.cuEventQuery(behind))
check(cuda.cuEventSynchronize(behind))
say(same=int(old) == int(new), idle=idle, busy=busy, done=code(cuda.cuEventQuery(behind)))
"""
    assert said_in(machine, OBJECTS + code) == {"same": True, "idle": 0, "busy": 600, "done": 0}


def test_an_event_that_is_destroyed_before_it_completes_is_no_other_event_until_then(
    machine: Machine,
) -> None:
    code = """
long = Spinner(300_000_000)
event = create["event"]()
long.launch()
check(cuda.cuEventRecord(event, long.stream))
check(cuda.cuEventDestroy(event))
early = create["event"]()
long.wait()
check(cuda.cuEventSynchronize(early))
say(early=int(early) == int(event), late=int(create["event"]()) == int(event))
"""
    assert said_in(machine, OBJECTS + code) == {"early": False, "late": True}


def test_what_was_of_a_context_does_not_pass_to_the_one_in_its_place(machine: Machine) -> None:
    code = """
import threading
old = create["context"]()
check(cuda.cuCtxPushCurrent(old))
stream, event = create["stream"](), create["event"]()
check(cuda.cuEventRecord(event, stream))
check(cuda.cuCtxPopCurrent())
ready, ended, there = threading.Event(), threading.Event(), []
def elsewhere():
    check(cuda.cuCtxSetCurrent(old))
    ready.set(); ended.wait()
    there.append(code(cuda.cuCtxSynchronize()))
thread = threading.Thread(target=elsewhere); thread.start(); ready.wait()
check(cuda.cuCtxDestroy(old))
new = create["context"]()
ended.set(); thread.join()
same(int(new) == int(old), True)
same(there[0], 709)
same(code(cuda.cuStreamQuery(stream)), 709)
same(code(cuda.cuEventQuery(event)), 0)
same([code(cuda.cuStreamDestroy(stream)), code(cuda.cuEventDestroy(event))], [0, 0])
"""
    run(machine, OBJECTS + code)


def test_a_primary_context_comes_back_under_its_handle(machine: Machine) -> None:
    code = """
primary = check(cuda.cuCtxGetCurrent())
check(cuda.cuDevicePrimaryCtxReset(0))
gone = code(cuda.cuCtxSynchronize())
again = check(cuda.cuDevicePrimaryCtxRetain(0))
say(gone=gone, same=int(again) == int(primary),
    works=[code(cuda.cuCtxSynchronize()), code(cuda.cuCtxSetCurrent(primary))])
"""
    assert said_in(machine, OBJECTS + code) == {"gone": 709, "same": True, "works": [0, 0]}


def test_what_never_was_a_handle_is_refused(machine: Machine) -> None:
    code = """
nothing = (ctypes.c_char * 4096)()
at = ctypes.addressof(nothing)
memory = check(cuda.cuMemAlloc(4096))
say(codes=[code(each(at)) for each in (cuda.cuStreamQuery, cuda.cuEventQuery, cuda.cuCtxSetCurrent,
                                       cuda.cuModuleUnload, cuda.cuGraphDestroy,
                                       cuda.cuGraphExecDestroy)],
    freed=[code(cuda.cuMemFree(memory)), code(cuda.cuMemFree(memory))])
"""
    assert said_in(machine, OBJECTS + code) == {
        "codes": [400, 400, 201, 400, 1, 1],
        "freed": [0, 1],
    }
