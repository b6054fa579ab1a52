"""A fault of one client that ended the work of all, by the server's status and its log."""

import json
from pathlib import Path

import pytest

from deviceplugin.mps.client_faults import FAULT, ClientFaults
from deviceplugin.mps.state_files import (
    GpuMps,
    MpsState,
    Wanted,
    read_state,
    read_wanted,
    state_path,
    wanted_path,
    write_state,
    write_wanted,
)

ACTIVE = "ACTIVE"
LINE = "[2026-11-24 07:00:00.000 Other 7] Volta MPS: Server is handling a fatal GPU error.\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_text(LINE + "[2026-11-24 07:00:00.001 Server 7] Client 9 disconnected\n")
    return path


@pytest.fixture
def faults(log: Path) -> ClientFaults:
    made = ClientFaults(log)
    made.begin()
    return made


def append(log: Path, text: str) -> None:
    with open(log, "a") as file:
        file.write(text)


def test_what_the_log_said_before_is_old(faults: ClientFaults, log: Path) -> None:
    append(log, "[2026-11-24 07:00:02.000 Server 7] New client 11 connected\n")

    assert not faults.look(ACTIVE)
    assert not faults.look("")


def test_clients_that_ended_at_once_leave_a_line(faults: ClientFaults, log: Path) -> None:
    append(log, LINE)

    assert faults.look(ACTIVE)
    assert not faults.look(ACTIVE)
    append(log, LINE)
    assert faults.look(ACTIVE)  # another one


def test_one_that_lasts_is_told_once(faults: ClientFaults, log: Path) -> None:
    assert faults.look(f"{FAULT}\n")  # the line comes a moment later
    append(log, LINE)
    assert not faults.look(FAULT)
    assert not faults.look(ACTIVE)
    assert faults.look(FAULT)


def test_half_a_line_waits_for_the_rest(faults: ClientFaults, log: Path) -> None:
    middle = LINE.index("tal GPU")
    for text, is_told in ((LINE[:middle], False), (LINE[middle:], True)):
        append(log, text)
        assert faults.look(ACTIVE) is is_told


def test_a_log_that_is_cut_or_removed_is_followed(faults: ClientFaults, log: Path) -> None:
    log.write_text("")
    assert not faults.look(ACTIVE)
    append(log, LINE)
    assert faults.look(ACTIVE)
    log.unlink()
    assert not faults.look(ACTIVE)


def test_files_of_another_version_are_read_as_far_as_they_are_known(tmp_path: Path) -> None:
    write_state(tmp_path, MpsState("t", "it ended", {"GPU-1": GpuMps("ready")}))
    write_wanted(tmp_path, Wanted("t", {"GPU-1": True}))
    for path in (state_path(tmp_path), wanted_path(tmp_path)):
        path.write_text(path.read_text().replace("{", '{"of_tomorrow": {"x": [1]}, ', 1))

    assert read_state(tmp_path) == MpsState("t", "it ended", {"GPU-1": GpuMps("ready")})
    assert read_wanted(tmp_path) == Wanted("t", {"GPU-1": True})
    # Of yesterday: fewer fields.
    state_path(tmp_path).write_text('{"token": "t", "gpus": {"GPU-1": {"phase": "ready"}}}')
    assert read_state(tmp_path) == MpsState("t", "", {"GPU-1": GpuMps("ready")})
    wanted_path(tmp_path).write_text('{"token": "t", "gpus": {"GPU-1": false}, "root": "/r"}')
    assert read_wanted(tmp_path) == Wanted("t", {"GPU-1": False}, "/r")


def test_a_state_of_a_newer_runner_is_read(tmp_path: Path) -> None:
    gpu = {
        "phase": "failed", "reason": "why", "found_mode": 0, "daemon": 1, "server": 2,
        "restarts": 3, "restored": 4, "faults": 5, "of_tomorrow": [6],
    }  # fmt: skip
    state_path(tmp_path).parent.mkdir()
    state_path(tmp_path).write_text(json.dumps({"token": "t", "gpus": {"GPU-1": gpu}}))

    state = read_state(tmp_path)

    assert state is not None
    assert state.gpus == {"GPU-1": GpuMps("failed", "why", 0, 1, 2, 3, 4, 5)}
