"""`vgpuctl doctor` finds directories and lock files of the agent that other users can open."""

from pathlib import Path

from vgpuctl.doctor import closed_check
from vgpuctl.doctor.finding import OK, WARN


def test_a_lock_that_others_may_open_is_found(tmp_path: Path) -> None:
    run_dir, state_dir = tmp_path / "run", tmp_path / "state"
    run_dir.mkdir()
    state_dir.mkdir(0o755)
    for name, mode in (("agent.lock", 0o644), ("run-dir.lock", 0o600)):
        (state_dir / name).touch()
        (state_dir / name).chmod(mode)

    directory, lock = closed_check.look(run_dir, state_dir)

    assert (directory.level, lock.level) == (WARN, WARN)
    assert f"{state_dir} has mode 0755" in directory.message
    assert f"{state_dir}/agent.lock has mode 0644" in lock.message
    assert f"chmod 0600 {state_dir}/agent.lock" in lock.fix


def test_closed_ones_are_said_to_be(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)

    (found,) = closed_check.look(tmp_path / "run", tmp_path)

    assert found.level == OK


def test_where_there_is_no_agent_nothing_is_said(tmp_path: Path) -> None:
    assert closed_check.look(tmp_path / "run", tmp_path / "state") == []
