"""Every ``--help`` ends with examples that can be copied and that parse."""

import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from vgpuctl.cli import cli
from vgpuctl.examples import PROGRAM, examples, examples_of
from vgpuctl.manual.__main__ import PROGRAMS

_SHELL = {"|", ">", "<", "&&", ";"}


def everything(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yields every verb and group by what is typed, its first word being the program's."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[0])
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from everything(below, (*path, name))


EVERYTHING = {
    path: command
    for program, group in PROGRAMS.items()
    for path, command in everything(group, (program,))
}
EXAMPLES = [(path, line) for path, command in EVERYTHING.items() for line in examples_of(command)]


def typed(line: str, program: str) -> list[str]:
    """Returns the arguments of the program in a line of a shell."""
    words = shlex.split(line)
    end = next((n for n, word in enumerate(words) if word in _SHELL), len(words))
    own = program.split()
    assert words[: len(own)] == own
    return words[len(own) : end]


def shown_help(path: tuple[str, ...], columns: int) -> Result:
    program, *verb = path
    return CliRunner().invoke(
        PROGRAMS[program], [*verb, "--help"], prog_name=program, terminal_width=columns
    )


@pytest.mark.parametrize("path", EVERYTHING, ids=" ".join)
def test_every_help_shows_its_examples_unbroken(path: tuple[str, ...]) -> None:
    found = examples_of(EVERYTHING[path])
    assert found, f"{' '.join(path)} --help has no example"

    shown = shown_help(path, columns=20)

    assert shown.exit_code == 0
    lines = [line.strip() for line in shown.output.splitlines()]
    assert [line for line in found if line not in lines] == []


@pytest.mark.parametrize(("path", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_every_example_parses_and_is_one_of_its_verb(
    path: tuple[str, ...], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def note(command: click.Command, context: click.Context) -> None:
        called.append(str(context.info_name))

    # A group's own invoke goes on to the verb; that of a verb would run it.
    monkeypatch.setattr(click.Command, "invoke", note)
    program = path[0]
    PROGRAMS[program].main(typed(line, program), prog_name=program, standalone_mode=False)

    assert called[: len(path)] == list(path)
    if isinstance(EVERYTHING[path], click.Group):
        assert len(called) > len(path), "it names none of the group's verbs"


def test_an_example_that_does_not_parse_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    invoked: Any = lambda command, context: None  # noqa: E731
    monkeypatch.setattr(click.Command, "invoke", invoked)
    with pytest.raises(click.UsageError):
        cli.main(typed("vgpuctl ps --no-such | head", PROGRAM), PROGRAM, standalone_mode=False)


@pytest.mark.parametrize(
    ("epilog", "found"),
    [
        (None, ()),
        ("Example: vgpuctl ps", ("vgpuctl ps",)),
        (examples("vgpuctl ps"), ("vgpuctl ps",)),
        (examples("vgpuctl ps -w", "vgpuctl top"), ("vgpuctl ps -w", "vgpuctl top")),
        ("Example: kubectl vgpu ps", ("kubectl vgpu ps",)),
        ("The program vgpuctl is there.", ()),
    ],
)
def test_examples_are_read_back(epilog: str | None, found: tuple[str, ...]) -> None:
    assert examples_of(click.Command("x", epilog=epilog)) == found


GROUPS = [path for path, command in EVERYTHING.items() if isinstance(command, click.Group)]


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_the_list_of_verbs_says_of_each_a_whole_sentence(path: tuple[str, ...]) -> None:
    shown = shown_help(path, columns=78)
    listed = shown.output.partition("\nCommands:\n")[2].partition("\n\n")[0].splitlines()
    assert listed
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []
