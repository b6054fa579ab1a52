"""Each I/O call of `vgpuctl` fails once: it says which, or what it shows is whole all the same."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from libvgpu import region
from libvgpu.limits import DeviceLimit
from libvgpu.sim import PROFILES, Machine
from support.made_slices import make_slice
from support.world.one_failure import ERRORS, OneFailure, places
from vgpuctl.__main__ import main

GIB = 1 << 30
SLICE = "run-one"


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("vgpuctl.gpu_choice.named.machines_root", lambda: tmp_path / "machines")
    machine = Machine.create([PROFILES["t4"]], tmp_path / "machines" / "box")
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o700)
    (uuid,) = (device.uuid for device in machine.devices)
    for name, core in ((SLICE, 40), ("run-two", 30)):
        make_slice(run_dir, name, DeviceLimit(uuid, 4 * GIB, core_percent=core), source="run")
    return run_dir


def core(run_dir: Path) -> int:
    found = region.read_limits(run_dir / "allocations" / SLICE)
    return found.limits.devices[0].core_percent


@pytest.mark.parametrize(
    "verb", [["ps", "-o", "json"], ["status", "-o", "json"], ["set", SLICE, "--core", "60"]]
)
def test_a_failed_call_is_named_or_does_not_matter(
    verb: list[str], run_dir: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What is shown is whole, or stderr or a row says which call failed; a limit is old or new."""
    command = [*verb, "--run-dir", str(run_dir)]

    def run(arm: Callable[[OneFailure], object]) -> tuple[int, str, str, OneFailure]:
        with pytest.MonkeyPatch.context() as patch:
            failure = OneFailure(patch, tmp_path)
            arm(failure)
            try:
                status = main(command)
            finally:
                failure.disarm()
        return status, *capsys.readouterr(), failure

    status, whole, _, failure = run(OneFailure.arm)
    assert status == 0
    ways = [(call, error) for call in places(failure.calls) for error in ERRORS]
    assert len(ways) > 20
    for call, error in ways:
        main(["set", SLICE, "--clear", "--run-dir", str(run_dir)])
        capsys.readouterr()
        what = f"{errno.errorcode[error]} of {call.what} {call.where} at {call.code}"

        status, shown, said, failure = run(partial(OneFailure.arm, fail_at=call, error=error))

        assert failure.failed is not None, what
        named = call.is_named_by(said) or call.is_named_by(shown)
        assert (status == 0 and shown == whole) or named, f"{what}: {status} {said} {shown}"
        if verb[0] == "set":
            assert core(run_dir) == (40 if status else 60), what


def test_a_share_is_not_given_twice_where_another_slice_cannot_be_read(
    run_dir: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Another slice has 30 of the GPU's 100, so that 80 are not free whatever cannot be read."""
    command = ["set", SLICE, "--core", "80", "--run-dir", str(run_dir)]
    with pytest.MonkeyPatch.context() as patch:
        failure = OneFailure(patch, tmp_path)
        failure.arm()
        assert main(command) == 1
        failure.disarm()
        for call in places(failure.calls):
            for error in ERRORS:
                failure.arm(call, error)
                status = main(command)
                failure.disarm()
                assert status == 1 and core(run_dir) == 40, f"{error} of {call}"
                capsys.readouterr()
