"""Many processes, killed and stopped at random: the machine stays whole and nobody hangs."""

import random
import signal
import subprocess
import time

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import Machine
from support import Compile

PROCESSES = 8
SECONDS = 6
LONGEST_LOOK_SECONDS = 1.0
MOST_STOPPED = 2


@pytest.mark.timing
def test_random_deaths_leave_nothing(machine: Machine, compile_program: Compile) -> None:
    program = compile_program("sim_churn.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    chance = random.Random(9)
    running: list[subprocess.Popen[bytes]] = []
    stopped: set[int] = set()
    deaths, worst_seconds, end = 0, 0.0, time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            while len(running) < PROCESSES:
                running.append(subprocess.Popen([program], env=machine.environment()))
            time.sleep(chance.random() * 0.02)
            victim = running[chance.randrange(PROCESSES)]
            if len(stopped) < MOST_STOPPED and chance.random() < 0.3:
                victim.send_signal(signal.SIGSTOP)
                stopped.add(victim.pid)
            else:
                victim.kill()
                assert victim.wait() == -signal.SIGKILL
                running.remove(victim)
                stopped.discard(victim.pid)
                deaths += 1
            asked = time.monotonic()
            (books,) = machine.books()
            worst_seconds = max(worst_seconds, time.monotonic() - asked)
            assert books.memory_used_bytes == sum(c.memory_bytes for c in books.clients)
    finally:
        for each in running:
            each.kill()
            each.wait()

    assert deaths > 50
    assert worst_seconds < LONGEST_LOOK_SECONDS
    assert machine.books()[0].memory_used_bytes == 0
