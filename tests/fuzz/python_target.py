"""Runs one target in Python: guided by atheris, over files, or over files with branches noted.

python -m fuzz.python_target NAME guided LIBFUZZER-ARGUMENTS…
python -m fuzz.python_target NAME replay FILE…
python -m fuzz.python_target NAME cover REPORT FILE…
python -m fuzz.python_target NAME least FILE…
"""

import importlib
import logging
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fuzz.targets import BY_NAME

_MOST_MEMORY_BYTES = 4 << 30
#: An input that takes more of the processor is a fault of its own.
SECONDS_EACH = 20


def _one(name: str) -> Callable[[bytes], None]:
    one: Callable[[bytes], None] = importlib.import_module(f"fuzz.py.{name}").one
    return one


def _modules(name: str) -> list[str]:
    return [path.removesuffix(".py").replace("/", ".") for path in BY_NAME[name].parsers]


def guided(name: str, arguments: Sequence[str]) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=_modules(name)):
        one = _one(name)
    atheris.Setup(["fuzz", *arguments], one)
    atheris.Fuzz()


def replay(name: str, paths: Sequence[str]) -> None:
    """Runs the inputs; raises what the first of them raises that should not."""
    one = _one(name)
    for path in paths:
        signal.setitimer(signal.ITIMER_PROF, SECONDS_EACH)
        one(Path(path).read_bytes())
    signal.setitimer(signal.ITIMER_PROF, 0)


def cover(name: str, report: str, paths: Sequence[str]) -> None:
    """Runs the inputs, and writes which branches of the parsers they reach as JSON."""
    import coverage

    files = [str(Path(path).resolve()) for path in BY_NAME[name].parsers]
    noted = coverage.Coverage(data_file=None, branch=True, include=files, config_file=False)
    noted.start()
    replay(name, paths)
    noted.stop()
    noted.json_report(outfile=report)


def least(name: str, paths: Sequence[str]) -> None:
    """Prints the smallest inputs that reach all that any of them reaches."""
    import coverage

    files = [str(Path(path).resolve()) for path in BY_NAME[name].parsers]
    noted = coverage.Coverage(data_file=None, branch=True, include=files, config_file=False)
    one, seen = _one(name), set[tuple[str, int, int]]()
    noted.start()
    for path in sorted(paths, key=lambda each: Path(each).stat().st_size):
        noted.switch_context(path)
        one(Path(path).read_bytes())
    noted.stop()
    data = noted.get_data()
    for path in sorted(paths, key=lambda each: Path(each).stat().st_size):
        data.set_query_context(path)
        found = {(file, *arc) for file in files for arc in data.arcs(file) or ()}
        if found - seen:
            seen |= found
            print(path)


def main() -> None:
    """Runs what the command says."""
    logging.disable(logging.CRITICAL)
    name, how, *rest = sys.argv[1:]
    if how == "guided":
        guided(name, rest)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    if how == "cover":
        cover(name, rest[0], rest[1:])
    elif how == "least":
        least(name, rest)
    else:
        replay(name, rest)


if __name__ == "__main__":
    main()
