"""Whatever is wrong with the standard streams, `vgpuctl` ends without a traceback."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from libvgpu.limits import DeviceLimit
from support import ROOT
from support.ended import run_to_end
from support.made_slices import make_slice
from support.waiting import PATIENCE_S

FULL = Path("/dev/full")
# Each writes more than a pipe holds, or flushes as it goes.
TALKATIVE = (
    "ps -o json",
    "status",
    "top --once --interval=0.1",
    "config schema",
    "doctor",
    "run --help",
    "completion bash",
)
LISTINGS = ("ps", "ps -o json", "status", "top --once --interval=0.1")
#: Most of what a verb takes is its start, so these are made ready once.
FORKS = """
import os, sys
import pynvml, vgpuctl.doctor.examine, vgpuctl.top.screen
from vgpuctl.__main__ import cli, main
for verb in sys.argv[1:]:
    cli.get_command(None, verb.split()[0])
for verb in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        sys.exit(main(verb.split()))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("ended with", status, file=sys.stderr, flush=True)
"""
ONE_AFTER_THE_OTHER = """
import sys
from vgpuctl.__main__ import main
for verb in sys.argv[1:]:
    assert main(verb.split()) == 0
    print("=====")
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory with slices whose commands have letters that few locales know."""
    tmp_path.chmod(0o700)
    limit = DeviceLimit("GPU-aaaaaaaa-0000", 1 << 30)
    for number in range(99):
        make_slice(tmp_path, f"{number:012x}", limit)
    command = ("pythön", "大", "\udc80", "x" * 60)  # longer than the column, which ends in an …
    make_slice(tmp_path, f"{99:012x}", limit, source="run", command=command)
    return tmp_path


def environment(run_dir: Path, **more: str) -> dict[str, str]:
    return os.environ | {"VGPU_RUN_DIR": str(run_dir), "VGPU_STATE_DIR": str(run_dir)} | more


def shell(line: str, run_dir: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    return run_to_end(
        ["bash", "-c", line.replace("vgpuctl", f"{sys.executable} -m vgpuctl")],
        cwd=ROOT,
        env=environment(run_dir, **more),
        errors="replace",
    )


def assert_no_fault(text: str) -> None:
    for word in ("Traceback", "an error of vgpuctl itself", "Exception ignored"):
        assert word not in text


def ends_of_all(verbs: Sequence[str], run_dir: Path, stdout: int) -> list[tuple[str, str, int]]:
    """Returns each verb, what it wrote to stderr and its exit status; each is a program's fork."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS, *verbs],
        cwd=ROOT,
        env=environment(run_dir),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    *said, end = re.split(r"^ended with (-?\d+)\n", done.stderr, flags=re.M)
    assert end == ""
    return list(zip(verbs, said[::2], map(int, said[1::2]), strict=True))


def test_a_reader_that_went_away_ends_it_as_any_other_program(run_dir: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ends = ends_of_all(TALKATIVE, run_dir, write)
    finally:
        os.close(write)
    for verb, said, status in ends:
        assert_no_fault(said)
        assert status == 141, (verb, said)


def test_a_full_disk_is_one_sentence(run_dir: Path) -> None:
    if not FULL.exists():
        pytest.skip("there is no /dev/full")
    with FULL.open("w") as full:
        ends = ends_of_all(TALKATIVE, run_dir, full.fileno())
    for verb, said, status in ends:
        assert_no_fault(said)
        assert (status, "No space left on device" in said) == (1, True), (verb, said)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_fault(closed: str, run_dir: Path) -> None:
    done = shell(f"vgpuctl ps {closed}", run_dir)
    assert_no_fault(done.stdout + done.stderr)
    assert done.returncode == 0


def test_no_file_gets_what_is_printed_to_a_closed_stream(run_dir: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    done = shell(
        f"vgpuctl run --simulate t4 --fast --memory 1GiB -- readlink /proc/self/fd/1 >&-; echo $?; "
        f"vgpuctl run --simulate t4 --fast --memory 1GiB -- sh -c "
        f"'ls -l /proc/self/fd/0 /proc/self/fd/2 >{seen}' <&- 2>&-",
        run_dir,
    )
    assert done.stdout == "0\n", done
    assert seen.read_text().count("/dev/null") == 2


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=str,
)
def test_letters_that_a_locale_lacks_are_no_fault(locale: dict[str, str], run_dir: Path) -> None:
    done = run_to_end(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER, *LISTINGS],
        cwd=ROOT,
        env=environment(run_dir, **locale),
        errors="replace",
    )
    assert_no_fault(done.stderr)
    assert done.returncode == 0, done.stderr
    *shown, end = done.stdout.split("=====\n")
    assert (len(shown), all(shown), end) == (len(LISTINGS), True, "")
