"""What `vgpuctl run` cannot do, it says in one sentence, having started and left nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.ctl_here import run_here
from support.user_home import UserHome

PROFILES = ("t4", "l4", "rtx4090", "a100-40g", "a100-80g", "h100-80g", "h200-141g", "l40s")


class RefusingCtl(UserHome):
    """`vgpuctl` with all its directories in one place, so that leavings show."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.home, self.marker = home, home / "started"

    def here(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What is refused before anything starts."""
        return run_here(*arguments, environment=self.environment)

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = ("--", "touch", str(self.marker))
        return self.here("run", *options, *command)

    def leavings(self) -> list[str]:
        """Returns every file, and every directory of a slice or machine."""
        return sorted(
            str(path.relative_to(self.home))
            for path in self.home.rglob("*")
            if path.name != ".lock"
            and (not path.is_dir() or path.parent.name in ("allocations", "vgpu-sim"))
        )


@pytest.fixture
def ctl(tmp_path: Path) -> RefusingCtl:
    return RefusingCtl(tmp_path)


def _assert_one_sentence(result: subprocess.CompletedProcess[str]) -> None:
    assert result.stdout == ""
    said = [line for line in result.stderr.splitlines() if not line.startswith("hint: ")]
    assert len(said) == 1, result.stderr
    assert said[0].startswith("vgpuctl: ")


@pytest.mark.parametrize(
    ("options", "status", "names"),
    [
        (["--simulate", "h1000"], 2, ["'h1000'", *PROFILES]),
        (["--simulate", "h100*0"], 2, ["h100*0"]),
        (["--simulate", ""], 2, ["''"]),
        (["--simulate", "h100@../x"], 2, ["../x"]),
        (["--simulate", "h100", "--memory", "0"], 2, ["'0'", "at least 1Mi"]),
        (["--simulate", "h100", "--memory", "6"], 2, ["'6'", "did you mean 6Gi?"]),
        (["--simulate", "h100", "--memory", "-1"], 2, ["'-1'", "is not a size"]),
        (
            ["--simulate", "h100", "--memory", "8 bananas"],
            2,
            ["'8 bananas'", "'bananas' is not a unit"],
        ),
        (["--simulate", "h100", "--memory", "81GiB"], 1, ["81 GiB", "79.65 GiB"]),
        (["--simulate", "h100@box", "--memory", "81GiB"], 1, ["81 GiB", "79.65 GiB"]),
        (["--simulate", "h100", "--core", "0"], 2, ["'0'", "1 to 100"]),
        (["--simulate", "h100", "--core", "101"], 2, ["'101'", "1 to 100"]),
        (["--simulate", "h100", "--core", "150"], 2, ["'150'", "1 to 100"]),
        (["--simulate", "h100", "--compute", "lax"], 2, ["'lax'", "strict", "elastic"]),
        (["--simulate", "h100", "--gpu", "1"], 1, ["'1'", "there are: 0"]),
        (["--simulate", "h100*2@box", "--gpu", "GPU-none"], 1, ["'GPU-none'", "there are: 0"]),
        (["--simulate", "h100*2", "--core", "1", "--core", "2"], 2, ["--core", "2 times"]),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    ctl: RefusingCtl, options: list[str], status: int, names: list[str]
) -> None:
    result = ctl.run(*options)

    assert result.returncode == status, result.stderr
    _assert_one_sentence(result)
    for name in names:
        assert name in result.stderr
    assert not ctl.marker.exists()
    assert ctl.leavings() == []


@pytest.mark.parametrize(
    "arguments", [["run", "--simulate", "h100"], ["run"], ["run", "--"], ["sim", "run", "h100"]]
)
def test_a_missing_command_is_wrong_usage(ctl: RefusingCtl, arguments: list[str]) -> None:
    result = ctl.here(*arguments)

    assert result.returncode == 2
    _assert_one_sentence(result)
    assert "no command" in result.stderr
    assert ctl.leavings() == []


@pytest.mark.parametrize(("name", "status"), [("no-such-command", 127), ("/etc/passwd", 126)])
@pytest.mark.parametrize("verb", ["run", "sim run"])
def test_a_command_that_cannot_start_leaves_nothing(
    ctl: RefusingCtl, name: str, status: int, verb: str
) -> None:
    options = ["--simulate"] if verb == "run" else []

    result = ctl.vgpuctl(*verb.split(), *options, "h100@box", "--", name)

    assert result.returncode == status
    _assert_one_sentence(result)
    assert name in result.stderr
    assert ctl.leavings() == []


@pytest.mark.parametrize(
    "arguments",
    [["bogus"], ["ps", "--bogus"], ["ps", "-o", "xml"], ["ps", "extra"], ["run", "--memory"],
     ["config", "validate"], ["sim", "run"]],
)  # fmt: skip
def test_wrong_usage_is_one_sentence_and_a_hint(ctl: RefusingCtl, arguments: list[str]) -> None:
    result = ctl.here(*arguments)

    assert result.returncode == 2
    _assert_one_sentence(result)
    assert "hint: try 'vgpuctl" in result.stderr


@pytest.mark.parametrize(("word", "meant"), [("stauts", "status"), ("doctr", "doctor")])
def test_a_verb_that_was_perhaps_meant_is_named(ctl: RefusingCtl, word: str, meant: str) -> None:
    result = ctl.here(word)

    assert result.returncode == 2
    assert f"no such command '{word}'; did you mean '{meant}'?" in result.stderr


def test_a_run_inside_a_run_is_refused(ctl: RefusingCtl) -> None:
    inner = [sys.executable, "-m", "vgpuctl", "run", "--simulate", "h100", "--", "true"]

    result = ctl.vgpuctl("run", "--simulate", "h100", "--", *inner)

    assert result.returncode == 1
    assert "in a slice already" in result.stderr
    assert ctl.leavings() == []


def test_without_a_driver_the_sentence_leads_to_the_simulated_gpu(ctl: RefusingCtl) -> None:
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        pass
    else:
        pytest.skip("this machine has an NVIDIA driver")

    result = ctl.run("--memory", "1GiB")

    assert result.returncode == 1
    _assert_one_sentence(result)
    assert "--simulate" in result.stderr
    assert ctl.leavings() == []


def test_a_bad_config_file_is_refused_with_its_line(ctl: RefusingCtl, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("version: v1\nsharng:\n  fractional: []\n")

    result = ctl.here("config", "validate", str(config))

    assert result.returncode == 2
    _assert_one_sentence(result)
    assert "line 2" in result.stderr
    assert "'sharng'" in result.stderr


def test_each_named_config_of_a_directory_is_checked(ctl: RefusingCtl, tmp_path: Path) -> None:
    directory = tmp_path / "configs"
    directory.mkdir()
    empty = ctl.here("config", "validate", str(directory))
    for name in ("a", "b"):
        (directory / name).write_text("version: v1\n")
    (directory / "..2026").mkdir()
    good = ctl.here("config", "validate", str(directory))
    (directory / "b").write_text("version: v2\n")

    bad = ctl.here("config", "validate", str(directory))

    assert (empty.returncode, good.returncode, bad.returncode) == (2, 0, 2)
    assert f"{directory} has no config" in empty.stderr
    assert [line.split(": ")[0] for line in good.stdout.splitlines() if ": good" in line] == [
        f"{directory}/a",
        f"{directory}/b",
    ]
    assert f"{directory}/b line 1" in bad.stderr
