"""What can be typed behind ``python -m benchmarks``; argparse alone, which every Python has."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from libvgpu.errors import UsageError

PROGRAM = "python -m benchmarks"
VERBS = {"list": "List the figures.", "run": "Measure figures by NAME."}
_MOST_ROUNDS = 1000
_LEAST_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class RunArguments:
    """What ``run`` was asked for; `figure.Options` says more of what figures take.

    Attributes:
        names: of the figures, in the order in which they are taken.
        json: where all that was measured goes, or None.
        markdown: where a table of it goes, or None.
        earlier: results of an earlier run for that table, or None.
    """

    names: tuple[str, ...]
    json: Path | None
    markdown: Path | None
    earlier: Path | None
    shim: Path | None
    rounds: int | None
    seconds: float | None
    count: int | None
    plot: Path | None
    simulate: str | None
    quick: bool
    seed: int | None = None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"{self.prog} --help says what is allowed")


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a directory, must be a file")
    return path


def _file_that_is_there(text: str) -> Path:
    if not _file(text).exists():
        raise argparse.ArgumentTypeError(f"file {text!r} does not exist")
    return Path(text)


def _directory(text: str) -> Path:
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a file, must be a directory")
    return path


def _rounds(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if not 1 <= value <= _MOST_ROUNDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not possible: give a whole number from 1 to {_MOST_ROUNDS}"
        )
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not possible: give a whole number from 1 on")
    return int(text)


def _seconds(text: str, unit_s: float = 1.0) -> float:
    try:
        value = float(text) * unit_s
    except ValueError:
        value = 0.0
    if not _LEAST_SECONDS <= value < float("inf"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not possible: give at least {_LEAST_SECONDS} seconds"
        )
    return value


def _minutes(text: str) -> float:
    return _seconds(text, 60.0)


#: option of ``run`` -> what reads its value, the value's name in the help, and the help.
_OPTIONS: dict[str, tuple[Callable[[str], object], str, str]] = {
    "--json": (_file, "FILE", "Also write everything measured to this file."),
    "--markdown": (_file, "FILE", "Also write everything measured to this file as a table."),
    "--earlier": (_file, "FILE", "What --json wrote in an earlier run: a column of that table."),
    "--shim": (_file_that_is_there, "FILE", "Measure this preload library too, in the same run."),
    "--rounds": (_rounds, "N", "How often to repeat each measurement; else as the figure does."),
    "--seconds": (_seconds, "S", "How long to take a figure that lasts; else as the figure does."),
    "--count": (_count, "N", "How many of what a figure counts; else as the figure does."),
    "--seed": (_count, "N", "The seed of a figure of chance; else a new one, which it prints."),
    "--plot": (_directory, "DIR", "Draw a figure's pictures (PNG) there. Needs matplotlib."),
    "--simulate": (str, "PROFILE", "Take a figure of real GPUs on a simulated one, as h100."),
}


def _run_parser() -> _Parser:
    parser = _Parser(f"{PROGRAM} run", description=VERBS["run"], allow_abbrev=False)
    parser.add_argument("names", nargs="+", metavar="NAME")
    for flag, (type_, metavar, what) in _OPTIONS.items():
        parser.add_argument(flag, type=type_, metavar=metavar, help=what)
    parser.add_argument(
        "--minutes", dest="seconds", type=_minutes, metavar="N", help="As --seconds, in minutes."
    )
    parser.add_argument("--quick", action="store_true", help="Take shorter windows.")
    return parser


def parse(arguments: Sequence[str]) -> RunArguments | None:
    """Returns what ``run`` was asked for, or None for ``list``.

    Raises:
        UsageError: the words are none of these, naming what is wrong.
        SystemExit: help was asked for and given.
    """
    # By hand, since argparse takes options between the names only without subcommands.
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("--help", ())
    if verb == "list":
        _Parser(f"{PROGRAM} list", description=VERBS["list"]).parse_args(rest)
        return None
    if verb == "run":
        given = vars(_run_parser().parse_intermixed_args(rest))
        return RunArguments(**given | {"names": tuple(given["names"])})
    verbs = "\n".join(f"  {name:6} {what}" for name, what in VERBS.items())
    top = _Parser(
        PROGRAM,
        description="Measure the figures that the docs quote.",
        usage=f"{PROGRAM} list | run NAME... [--json FILE] [...]",
        epilog=f"{verbs}\n\n{PROGRAM} run --help says what run can be told.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.parse_args([verb] if verb.startswith("-") else [])
    raise UsageError(f"{verb!r} is no command of {PROGRAM}; there are: {', '.join(VERBS)}")
