"""The control of measured waits: a stall of the machine shows in it, a wait of ours does not."""

import signal
import threading
import time

import psutil
import pytest

from benchmarks import crash
from benchmarks.figure import Options
from benchmarks.heartbeat import open_heartbeat
from benchmarks.race import Race

STALL_SECONDS = 0.5
HANG_SECONDS = 1.5


@pytest.mark.timing
def test_a_stall_shows_in_its_interval_and_the_next_and_then_no_more() -> None:
    others = psutil.Process().children()
    with open_heartbeat() as heartbeat:
        stalled = next(each for each in psutil.Process().children() if each not in others)
        stalled.suspend()
        threading.Timer(STALL_SECONDS, stalled.resume).start()

        delays_s = [heartbeat.longest_ns() / 1e9 for _ in range(3)]
        assert STALL_SECONDS * 0.8 < delays_s[0] < STALL_SECONDS + 2
        assert delays_s[1] == delays_s[0]
        assert delays_s[2] < delays_s[0]
    assert not stalled.is_running()


@pytest.mark.timing
def test_a_client_that_hangs_alone_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Race.look

    def hang(race: Race) -> object:
        client = race.processes[min(race.processes)]
        client.send_signal(signal.SIGSTOP)
        threading.Timer(HANG_SECONDS, client.send_signal, [signal.SIGCONT]).start()
        time.sleep(0.01)
        return look(race)

    monkeypatch.setattr(Race, "look", hang)

    found = {each.quantity: each.value for each in crash.measure(Options(None, 1, count=20))}
    assert found["waits of over 1 s"] in (1, 2)  # who waited for it to stand, and its own step
