"""Listings: JSON keeps every key, tables are safe to look at and safe to grep."""

import io
import json
import subprocess
import sys
import tempfile

import pytest

from support import ROOT
from vgpuctl.fitting import BEFORE_NAMES, fitting, shortened, width
from vgpuctl.render import Column, format_seconds, print_listing, printable

ROWS: list[dict[str, object]] = [
    {"name": "one", "bytes": 1},
    {"name": "evil\x1b[2Jname\n", "bytes": None},
]
COLUMNS = (Column("NAME", lambda row: str(row["name"])), Column("B", lambda row: "x", right=True))


def test_json_shows_rows_whole_and_nothing_else() -> None:
    out = io.StringIO()

    print_listing(ROWS, COLUMNS, "json", "nothing", out)

    assert json.loads(out.getvalue()) == ROWS


def test_json_of_nothing_is_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    print_listing([], COLUMNS, "json", "nothing")

    assert json.loads(capsys.readouterr().out) == []


def test_a_table_of_nothing_says_so_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_listing([], COLUMNS, "table", "no slices")

    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "no slices\n")


def test_a_table_never_passes_on_control_characters() -> None:
    out = io.StringIO()

    print_listing(ROWS, COLUMNS, "table", "", out)

    assert "\x1b" not in out.getvalue()
    assert "evil?[2Jname?" in out.getvalue()


def test_a_table_in_a_pipe_is_not_cut_at_80_columns() -> None:
    out = io.StringIO()
    long = "x" * 300

    print_listing([{"name": long}], COLUMNS[:1], "table", "", out)

    assert long in out.getvalue().splitlines()[1]


@pytest.mark.parametrize("text", ["\x1b[31mred", "a\rb", "\x9b2J", "tab\there", "\udc80"])
def test_printable_leaves_nothing_that_a_terminal_acts_on(text: str) -> None:
    assert printable(printable(text)) == printable(text)
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.012, "12.0ms"),
        (0.05, "0.1s"),
        (59.94, "59.9s"),
        (65, "1m05s"),
        (3 * 3600 + 120, "3h02m"),
    ],
)
def test_durations_are_short(value: float, text: str) -> None:
    assert format_seconds(value) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, columns: int, **environment: str) -> list[str]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in ({"TERM": "xterm", "COLUMNS": str(columns)} | environment).items():
        monkeypatch.setenv(name, value)
    out = Terminal()
    print_listing([{"name": "a" * 30}, {"name": "大b"}], COLUMNS, "table", "", out)
    return out.getvalue().splitlines()


def test_a_table_that_fits_a_terminal_is_aligned_below_a_bold_heading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(monkeypatch, 33) == [
        f"\x1b[1mNAME{' ' * 26}  B\x1b[0m",
        f"{'a' * 30}  x",
        f"大b{' ' * 27}  x",  # the first takes two columns
    ]


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_plain_terminal_gets_no_bold(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    assert shown(monkeypatch, 33, **environment)[0] == f"NAME{' ' * 26}  B"


@pytest.mark.parametrize("columns", [32, 20, 5])
def test_a_table_that_does_not_fit_is_broken_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    lines = shown(monkeypatch, columns, NO_COLOR="1")
    assert all(width(line) <= columns for line in lines)
    assert "".join(lines).count("a") == 30


def test_a_narrow_terminal_loses_columns_by_rank_and_shortens_the_name_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def column(title: str, text: str, rank: int, is_name: bool = False) -> Column:
        return Column(title, lambda row: text, rank=rank, is_name=is_name)

    columns = (
        column("ID", "0123456789ab", 0),
        column("NAME", "a-namespace/a-pod/main", 0, is_name=True),
        column("LEAST", "1", 3),
        column("USED", "31.98 GiB / 32 GiB", BEFORE_NAMES),
        column("STATE", "running", 2),
    )
    monkeypatch.setenv("NO_COLOR", "1")
    seen = {}
    for most in (72, 71, 64, 59, 48, 47):
        monkeypatch.setenv("COLUMNS", str(most))
        out = Terminal()
        print_listing([{}], columns, "table", "", out)
        assert max(map(width, out.getvalue().splitlines())) <= most
        seen[most] = out.getvalue().splitlines()[1].split()
    name, used = "a-namespace/a-pod/main", ["31.98", "GiB", "/", "32", "GiB"]
    assert seen == {
        72: ["0123456789ab", name, "1", *used, "running"],
        71: ["0123456789ab", name, *used, "running"],
        64: ["0123456789ab", name, "1", *used],
        59: ["0123456789ab", name, *used],
        48: ["0123456789ab", "…/a-pod/main", *used],
        47: ["0123456789ab", name, "running"],
    }


@pytest.mark.parametrize(
    ("text", "most", "short"),
    [
        ("team/pod/main", 13, "team/pod/main"),
        ("team/pod/main", 12, "…/pod/main"),
        ("team/pod/main", 9, "…/main"),
        ("team/pod/main", 5, "…main"),
        ("team/pod/main", 4, "…ain"),
        ("python train.py --all", 16, "python train.py…"),
        ("python train.py --all", 15, "python…"),
        ("python train.py", 4, "pyt…"),
        ("team/大大/main", 12, "…/大大/main"),
        ("team/大大/main", 10, "…/main"),
    ],
)
def test_names_are_shortened_by_whole_words(text: str, most: int, short: str) -> None:
    assert shortened(text, most) == short
    assert width(short) <= most


@pytest.mark.process
def test_nothing_is_imported_that_a_table_in_a_pipe_does_not_need() -> None:
    program = (
        "import sys; from vgpuctl.__main__ import main; main(['ps', '--run-dir', sys.argv[1]]);"
        "print(sorted(set(sys.modules) & {'rich', 'msgspec', 'yaml', 'psutil', 'http.client',"
        " 'pynvml', 'traceback', 'secrets', 'asyncio'}))"
    )
    with tempfile.TemporaryDirectory() as run_dir:
        done = subprocess.run(
            [sys.executable, "-c", program, run_dir],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("most", "names"),
    [(68, [40, 20]), (44, [22, 14]), (34, [14, 12]), (20, [8, 8]), (5, [8, 8])],
)
def test_of_two_names_the_first_is_shortened_last(most: int, names: list[int]) -> None:
    shown, widths = fitting([20, 4, 40], [0, 0, 0], [2, 0], most)
    assert (shown, [widths[2], widths[0]]) == ([0, 1, 2], names)
