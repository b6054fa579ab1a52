"""What happens to the driver with its process: forks, threads that are cancelled."""

import subprocess

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import Machine
from support import Compile
from support.sim.programs import said_in
from support.waiting import PATIENCE_S

NOT_INITIALIZED = 3


def test_neither_a_child_nor_a_childs_child_can_use_the_driver(machine: Machine) -> None:
    code = """
context = open_context()
def in_child(function):
    "What a function answers in a child of a fork."
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.write(writing, json.dumps(function()).encode())
        os._exit(0)
    os.close(writing)
    answer = json.loads(os.read(reading, 1000))
    os.waitpid(child, 0)
    return answer
def codes(): return [int(cuda.cuInit(0)[0]), int(cuda.cuMemAlloc(4096)[0])]
def family(): return [codes(), in_child(codes)]
say(child=in_child(family), parent=codes())
"""
    assert said_in(machine, code) == {
        "child": [[NOT_INITIALIZED, NOT_INITIALIZED]] * 2,
        "parent": [0, 0],
    }


def test_a_cancelled_thread_keeps_no_lock(machine: Machine, compile_program: Compile) -> None:
    program = compile_program(
        "sim_cancelled_thread.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    )
    subprocess.run([program], env=machine.environment(), timeout=PATIENCE_S, check=True)
