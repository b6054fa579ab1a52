"""What can be typed behind ``python -m benchmarks``, and the table that is shown."""

from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.command_line import parse
from benchmarks.figure import Measurement
from benchmarks.listing import listing
from libvgpu.errors import UsageError


def test_options_may_stand_between_the_names(tmp_path: Path) -> None:
    asked = parse(["run", "hooks", "--json", str(tmp_path / "out"), "share", "--quick", "crash"])

    assert asked is not None
    assert asked.names == ("hooks", "share", "crash")
    assert (asked.json, asked.quick, asked.rounds) == (tmp_path / "out", True, None)


def test_every_option_reaches_its_value(tmp_path: Path) -> None:
    shim, folder = tmp_path / "rival.so", str(tmp_path)
    shim.touch()
    words = f"run f --shim {shim} --rounds 3 --seconds 0.5 --count 2 --plot {folder}"

    asked = parse([*words.split(), "--simulate", "h100"])

    assert asked is not None
    assert (asked.shim, asked.rounds, asked.seconds, asked.count) == (shim, 3, 0.5, 2)
    assert (asked.plot, asked.simulate) == (tmp_path, "h100")
    asked = parse(["run", "f", "--minutes", "0.5", "--seed", "7"])
    assert asked is not None
    assert (asked.seconds, asked.seed) == (30, 7)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("fly", "'fly' is no command of python -m benchmarks; there are: list, run"),
        ("run", "the following arguments are required: NAME"),
        ("run f --json", "argument --json: expected one argument"),
        ("run f --json {folder}", "argument --json: '{folder}' is a directory, must be a file"),
        ("run f --shim {folder}/no.so", "argument --shim: file '{folder}/no.so' does not exist"),
        ("run f --plot {folder}/file", "argument --plot: '{folder}/file' is a file, must be a"),
        ("run f --rounds 0", "argument --rounds: '0' is not possible: give a whole number from 1"),
        ("run f --rounds 1001", "give a whole number from 1 to 1000"),
        ("run f --count 1.5", "argument --count: '1.5' is not possible: give a whole number from"),
        ("run f --seconds 0.2", "argument --seconds: '0.2' is not possible: give at least 0.5 sec"),
        ("run f --seconds inf", "argument --seconds: 'inf' is not possible"),
        ("run f --seconds long", "argument --seconds: 'long' is not possible"),
        ("run f --sec 3", "unrecognized arguments: --sec"),
        ("list hooks", "unrecognized arguments: hooks"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(
    words: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    assert command.main(words.format(folder=tmp_path).split()) == 2

    captured = capsys.readouterr()
    assert told.format(folder=tmp_path) in captured.err
    assert captured.err.startswith("benchmarks: ")
    assert captured.out == ""


@pytest.mark.parametrize("words", [[], ["-h"], ["run", "--help"], ["list", "--help"]])
def test_help_is_given(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)

    assert ended.value.code == 0
    assert "usage: python -m benchmarks" in capsys.readouterr().out


def test_a_lack_of_our_own_is_no_lack_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command.FIGURES, "hooks", "benchmarks.no_such_figure")

    with pytest.raises(ModuleNotFoundError):
        command.load_figure("hooks")
    with pytest.raises(UsageError):
        command.load_figure("nothing")


def test_the_table_has_a_column_of_bars_where_there_are_any() -> None:
    plain = Measurement("launch", "libvgpu", "time", "ns", 3.25, 3.0, 3.5)
    lost = Measurement("a longer case", "libvgpu", "share", "%", None, note="it died", most=1.0)

    assert listing([plain]).splitlines() == [
        "CASE    WITH     QUANTITY  MEDIAN (QUARTILES)  UNIT",
        "launch  libvgpu  time      3.25  (3 to 3.5)    ns",
    ]
    assert listing([plain, lost]).splitlines() == [
        "CASE           WITH     QUANTITY  MEDIAN (QUARTILES)     UNIT  BAR",
        "launch         libvgpu  time      3.25  (3 to 3.5)       ns",
        "a longer case  libvgpu  share     not measured: it died  %     ≤ 1 MISSED",
    ]
    assert listing([]) == "nothing measured\n"
