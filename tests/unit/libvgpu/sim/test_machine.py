"""Making, joining, reading and removing simulated machines."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from libvgpu.errors import SimulationError
from libvgpu.sim import PROFILES, Machine, acquire, machines_root, parse_spec, release, sweep
from libvgpu.sim.profiles import MODELS
from support import open_to_others
from support.ended import printed, run_to_end

T4 = PROFILES["t4"]
NOBODY = 65534
LAYOUT_VERSION_AT = 8  # in the machine file
FORTY_PROCESSES = 40


@pytest.fixture(autouse=True)
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_a_created_machine_opens_with_the_same_gpus(tmp_path: Path) -> None:
    made = Machine.create([T4, PROFILES["a100-80g"]], tmp_path / "m")

    opened = Machine.open(tmp_path / "m")

    assert opened.devices == made.devices
    assert opened.identifier == made.identifier
    assert [device.profile.name for device in opened.devices] == ["t4", "a100-80g"]
    assert len({device.uuid for device in opened.devices}) == 2


def test_a_fresh_machine_has_empty_books(tmp_path: Path) -> None:
    (books,) = Machine.create([T4], tmp_path / "m").books()

    assert (books.memory_used_bytes, books.busy_ns, books.clients) == (0, 0, ())


def test_the_clock_of_an_idle_machine_goes_on(tmp_path: Path) -> None:
    machine = Machine.create([T4], tmp_path / "m")

    assert machine.books()[0].clock_ns < machine.books()[0].clock_ns


def test_other_users_may_share_the_file_but_not_remove_it(tmp_path: Path) -> None:
    Machine.create([T4], tmp_path / "m")

    assert (tmp_path / "m/machine").stat().st_mode & 0o777 == 0o666
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o755


def test_a_machine_is_never_replaced(tmp_path: Path) -> None:
    first = Machine.create([T4], tmp_path / "m")

    with pytest.raises(SimulationError, match="File exists"):
        Machine.create([T4], tmp_path / "m")

    assert Machine.open(tmp_path / "m").identifier == first.identifier


def test_no_machine_is_said_with_the_directory(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match=str(tmp_path)):
        Machine.open(tmp_path)


@pytest.mark.parametrize("keep_bytes", [0, 4, 4096, 100_000])
def test_a_cut_off_file_is_damaged(tmp_path: Path, keep_bytes: int) -> None:
    Machine.create([T4], tmp_path / "m")
    os.truncate(tmp_path / "m/machine", keep_bytes)

    with pytest.raises(SimulationError, match="damaged"):
        Machine.open(tmp_path / "m")


def test_garbage_is_damaged(tmp_path: Path) -> None:
    Machine.create([T4], tmp_path / "m")
    with open(tmp_path / "m/machine", "r+b") as file:
        file.write(b"\xff" * 64)

    with pytest.raises(SimulationError, match="damaged"):
        Machine.open(tmp_path / "m")


def test_environment_leads_programs_to_the_machine(tmp_path: Path) -> None:
    machine = Machine.create([T4], tmp_path / "m")

    env = machine.environment({"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/opt/lib", "A": "b"})

    assert env["VGPU_SIM_MACHINE"] == str(tmp_path / "m")
    assert env["LD_LIBRARY_PATH"].endswith("sim/lib:/opt/lib")
    assert env["PATH"].endswith("sim/bin:/usr/bin")
    assert env["A"] == "b"


# ---- by name -------------------------------------------------------------------------------------


def test_the_root_is_private() -> None:
    assert machines_root().stat().st_mode & 0o777 == 0o700


def test_the_same_name_is_the_same_machine() -> None:
    one, other = acquire(parse_spec("t4@lab")), acquire(parse_spec("t4@lab"))

    assert one.identifier == other.identifier


def test_one_name_for_two_machines_is_refused() -> None:
    acquire(parse_spec("t4@lab"))

    with pytest.raises(SimulationError, match="@lab has other GPUs: t4"):
        acquire(parse_spec("t4*2@lab"))


def test_one_name_for_two_drivers_is_refused() -> None:
    assert acquire(parse_spec("t4/cuda12.4@lab")).driver_version == 12040

    with pytest.raises(SimulationError, match="@lab has another driver: CUDA 12"):
        acquire(parse_spec("t4/cuda13.0@lab"))

    assert acquire(parse_spec("t4@lab")).driver_version == 12040  # whichever there is


def test_one_name_for_two_releases_of_one_cuda_is_refused() -> None:
    assert acquire(parse_spec("t4,driver=535.104@lab")).release.name == "535.104"

    with pytest.raises(SimulationError, match=r"@lab has another driver: 535\.104"):
        acquire(parse_spec("t4,driver=535.54@lab"))

    assert acquire(parse_spec("t4/cuda12.2@lab")).release.name == "535.104"  # whichever there is


def test_one_name_for_two_profiles_of_one_name_is_refused(tmp_path: Path) -> None:
    acquire(parse_spec("t4@lab"))
    text = (MODELS / "t4.yaml").read_text().replace("15360", "15361")
    (tmp_path / "t4.yaml").write_text(text)

    with pytest.raises(SimulationError, match="same names, t4, but of another profile"):
        acquire(parse_spec(f"{tmp_path}/t4.yaml@lab"))


def test_what_a_killed_maker_left_is_in_nobodys_way() -> None:
    directory = machines_root() / "@lab"
    directory.mkdir()
    (directory / "machine.new").write_bytes(b"cut short")

    assert acquire(parse_spec("t4@lab")).directory == directory


def test_a_lost_description_is_written_again() -> None:
    directory = acquire(parse_spec("t4@lab")).directory
    (directory / "about").unlink()

    again = acquire(parse_spec("t4@lab"))

    assert again.devices[0].uuid in (directory / "about").read_text()


def test_an_older_layout_is_not_called_damaged() -> None:
    directory = acquire(parse_spec("t4@lab")).directory
    with open(directory / "machine", "r+b") as file:
        file.seek(LAYOUT_VERSION_AT)
        file.write((1).to_bytes(4, "little"))

    with pytest.raises(SimulationError, match="another version of vgpu") as caught:
        acquire(parse_spec("t4@lab"))

    assert str(directory / "machine") in caught.value.message
    assert caught.value.hint and "vgpuctl sim rm @lab" in caught.value.hint


FULL = """
import resource
from libvgpu.errors import SimulationError
from libvgpu.sim import acquire, machines_root, parse_spec
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for text in ("t4", "t4@lab"):
    try:
        acquire(parse_spec(text))
    except SimulationError as error:
        print(error.message, error.hint)
print(sorted(path.name for path in machines_root().iterdir()))
"""


@pytest.mark.process
def test_a_file_that_cannot_grow_is_told_and_nothing_is_left() -> None:
    first, second, left = printed(sys.executable, "-c", FULL).splitlines()

    assert "cannot make a simulated machine in" in first and "File too large" in first
    assert "@lab" in second and "XDG_RUNTIME_DIR" in second
    assert left == "['.lock']"


@pytest.mark.process
@pytest.mark.root
def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    code = (
        "import subprocess\n"
        f"subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=16k', 'none', {str(tmp_path)!r}],"
        "check=True)\n"
    ) + FULL.replace("resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n", "")
    done = run_to_end(["unshare", "-m", sys.executable, "-c", code], timeout=60)
    if "mount" in done.stderr:
        pytest.skip("mounting is not allowed here")

    first, second, left = done.stdout.splitlines()

    assert "No space left on device" in first and "free space" in first
    assert "No space left on device" in second
    assert left == "['.lock']"


def test_a_root_that_cannot_be_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))

    with pytest.raises(SimulationError, match="cannot be used: Not a directory") as caught:
        machines_root()

    assert caught.value.hint and "XDG_RUNTIME_DIR" in caught.value.hint


@pytest.mark.process
@pytest.mark.root
@pytest.mark.parametrize("part", ["machine", "."])
def test_a_machine_that_its_user_may_not_read_is_told(tmp_path: Path, part: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    root = tmp_path / "vgpu-sim"
    acquire(parse_spec("t4@lab"))
    (root / "@lab" / part).chmod(0o600)
    open_to_others(tmp_path)
    for path in (root, root / ".lock"):
        os.chown(path, NOBODY, NOBODY)
    code = (
        "import os; from libvgpu.sim import acquire, parse_spec\n"
        "from libvgpu.errors import SimulationError\n"
        f"spec = parse_spec('t4@lab'); os.setuid({NOBODY})\n"
        "try: acquire(spec)\n"
        "except SimulationError as error: print(error.message, error.hint)"
    )

    said = printed(sys.executable, "-c", code)

    assert "Permission denied" in said
    assert str(root / "@lab/machine") in said and f"user {NOBODY}" in said


def test_releasing_removes_what_has_no_name() -> None:
    unnamed, named = acquire(parse_spec("t4")), acquire(parse_spec("t4@lab"))

    release(unnamed)
    release(named)

    assert not unnamed.directory.exists()
    assert named.directory.exists()


@pytest.mark.process
def test_a_machine_of_a_dead_owner_is_swept() -> None:
    mine = acquire(parse_spec("t4"))
    code = (
        "import os, signal; from libvgpu.sim import acquire, parse_spec\n"
        "print(acquire(parse_spec('t4')).directory, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    left = Path(died.stdout.strip())
    assert died.returncode == -signal.SIGKILL
    assert left.exists()

    assert sweep() == 1

    assert not left.exists()
    assert mine.directory.exists()
    release(mine)


def _join(_: int) -> str:
    return acquire(parse_spec("t4@race")).identifier


@pytest.mark.process
def test_many_that_make_one_name_at_once_get_one_machine() -> None:
    with multiprocessing.get_context("fork").Pool(8) as pool:
        identifiers = pool.map(_join, range(FORTY_PROCESSES))

    assert len(set(identifiers)) == 1
