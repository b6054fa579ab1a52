"""Many processes, killed and stopped at random: the machine stays whole and nobody hangs."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import Machine
from support import IS_LONG, Compile
from support.lines import expect, start_listening
from support.waiting import PATIENCE_S

FURTHER_SOURCES = ("tests/native/sim_churn_memory.c", "tests/native/sim_churn_graphs.c")
PROCESSES = 16
CALLS = 200_000 if IS_LONG else 20_000
LONGEST_SECONDS = 240  # it takes a few
MOST_STOPPED = 3
DEATHS = 100 if IS_LONG else 25
# Run by a process of its own, since the library reads its environment once: prints, at every line
# on stdin, what NVML says is used and the sum over the processes that it lists.
VIEWER = """
import sys, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
print("ready", flush=True)
for line in sys.stdin:
    used = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    print(used, sum(p.usedGpuMemory for p in processes), *[p.pid for p in processes], flush=True)
"""


@contextmanager
def standing_still(running: list[subprocess.Popen[str]], stopped: set[int]) -> Iterator[None]:
    """Stops all processes: the viewer asks two things one after the other."""
    alive = [each for each in running if each.poll() is None]
    for each in alive:  # not by send_signal, which would reap one that has just ended
        os.kill(each.pid, signal.SIGSTOP)
    for each in alive:
        os.waitid(os.P_PID, each.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    yield
    for each in running:
        if each.pid not in stopped:
            each.send_signal(signal.SIGCONT)


@pytest.mark.timeout(LONGEST_SECONDS + 20)
def test_random_deaths_leave_nothing(costly_machine: Machine, compile_program: Compile) -> None:
    machine = costly_machine
    program = compile_program(
        "sim_churn.c", *FURTHER_SOURCES, flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    )
    environment = machine.environment()
    chance = random.Random(9)
    running: list[subprocess.Popen[str]] = []
    stopped: set[int] = set()
    finished = deaths = looks = 0
    worst_seconds, end = 0.0, time.monotonic() + LONGEST_SECONDS

    def begin() -> None:
        running.append(
            subprocess.Popen(
                [program, str(CALLS)], env=environment, text=True, stderr=subprocess.PIPE
            )
        )

    viewer = start_listening([sys.executable, "-c", VIEWER], environment, stderr=None)
    assert viewer.stdin
    assert viewer.stdout
    expect(viewer)
    try:
        for _ in range(PROCESSES):
            begin()
        while running:
            assert time.monotonic() < end, f"{finished} of {PROCESSES} finished: somebody hangs"
            time.sleep(chance.random() * 0.02)
            for each in [each for each in running if each.poll() is not None]:
                running.remove(each)
                assert each.returncode == 0, each.communicate()[1]
                finished += 1
                if deaths < DEATHS:
                    begin()
            if running and deaths < DEATHS:
                victim = running[chance.randrange(len(running))]
                if len(stopped) < MOST_STOPPED and chance.random() < 0.2:
                    victim.send_signal(signal.SIGSTOP)
                    stopped.add(victim.pid)
                else:  # it is replaced, so that sixteen are there till the end
                    victim.kill()
                    assert victim.wait() == -signal.SIGKILL
                    running.remove(victim)
                    stopped.discard(victim.pid)
                    deaths += 1
                    begin()
            elif stopped:
                os.kill(stopped.pop(), signal.SIGCONT)
            asked = time.monotonic()
            (books,) = machine.books()
            worst_seconds = max(worst_seconds, time.monotonic() - asked)
            assert books.memory_used_bytes == sum(c.memory_bytes for c in books.clients)
            if looks % 10 == 0:
                with standing_still(running, stopped):
                    print(file=viewer.stdin, flush=True)
                    answer = viewer.stdout.readline()
                used_bytes, sum_bytes, *_ = (int(word) for word in answer.split())
                assert used_bytes == sum_bytes
            looks += 1
    finally:
        for each in running:
            each.kill()
            each.communicate()
        viewer.kill()
        viewer.communicate()

    assert finished >= PROCESSES
    assert deaths == DEATHS
    assert worst_seconds < PATIENCE_S
    assert machine.books()[0].memory_used_bytes == 0
