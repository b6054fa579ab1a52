"""What stands where in the man page of a group of verbs. Pure, but for the import of the verbs.

An option that several verbs have in the same words is told once, in a section of its own. The
paragraph of the group's help that begins with ``Exit status:`` becomes the section of that name.
"""

import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from ..examples import examples_of
from . import roff

_COMMON_FROM = 3  # verbs
_AS_IT_IS = "\b"
_EXIT_STATUS = "Exit status: "
_COMMON = "COMMON OPTIONS"
_NO_COLOR = ("NO_COLOR", "Where it is set, nothing is shown in colour.")


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb, or a group of them.

    Attributes:
        path: as typed, for example ``vgpuctl sim list``.
        usage: what follows it.
        options: names and text of each, as ``--help`` has them.
        variables: environment variables that options are read from, with the option's text.
    """

    path: str
    usage: str
    command: click.Command
    options: tuple[tuple[str, str], ...]
    variables: tuple[tuple[str, str], ...]


def verbs(command: click.Command, context: click.Context) -> Iterator[Verb]:
    """Yields a command and all below it, in the order of ``--help``."""
    parameters = command.get_params(context)
    options = [
        record
        for parameter in parameters
        if isinstance(parameter, click.Option)
        and (record := parameter.get_help_record(context)) is not None
    ]
    variables = [
        (name, f"Default of {parameter.opts[0]}.")
        for parameter in parameters
        if isinstance(parameter, click.Option)
        for name in _variables(parameter)
    ]
    usage = " ".join(command.collect_usage_pieces(context))
    yield Verb(context.command_path, usage, command, tuple(options), tuple(variables))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from verbs(below, _context(below, name, context))


def _variables(option: click.Option) -> Sequence[str]:
    """Returns the environment variables that an option is read from."""
    found = option.envvar or ()
    return [found] if isinstance(found, str) else found


def _context(command: click.Command, name: str, parent: click.Context) -> click.Context:
    """Returns a context whose path is what a user types, without the arguments of groups."""
    made = click.Context(command, info_name=name, parent=parent)
    made.help_option_names = parent.help_option_names
    return made


def page(root: click.Group, program: str, version: str) -> str:
    """Returns the man page of a program; where its name is two words, that of both joined."""
    name = program.replace(" ", "-")
    context = click.Context(root, info_name=program, **root.context_settings)
    first, *others = verbs(root, context)
    told = Counter(option for verb in (first, *others) for option in verb.options)
    common = [option for option, count in told.items() if count >= _COMMON_FROM]
    paragraphs = _paragraphs(first.command)
    statuses = [each for each in paragraphs if each.startswith(_EXIT_STATUS)]
    summary, *description = [each for each in paragraphs if each not in statuses]
    lines = [
        f'.\\" Made of {program} --help; do not edit.',
        roff.macro("TH", name.upper(), "1", "", f"vgpu {version}", "User Commands"),
        ".nh",
        roff.macro("SH", "NAME"),
        f"{roff.text(name)} \\- {roff.text(_lowered(summary))}",
        roff.macro("SH", "SYNOPSIS"),
        roff.macro("B", program),
        *roff.lines(first.usage),
        roff.macro("SH", "DESCRIPTION"),
        *_shown([summary, *description]),
        *_examples(first.command),
        roff.macro("SH", "OPTIONS"),
        *_options(first, common),
        roff.macro("SH", "COMMANDS"),
    ]
    for verb in others:
        lines += [
            roff.macro("SS", f"{verb.path} {verb.usage}"),
            *_shown(_paragraphs(verb.command)),
            *_options(verb, common),
            *_examples(verb.command),
        ]
    lines.append(roff.macro("SH", _COMMON))
    for names, told_text in common:
        lines += roff.tagged(names, [told_text])
    lines.append(roff.macro("SH", "ENVIRONMENT"))
    variables = dict(pair for verb in (first, *others) for pair in verb.variables)
    for name, said in sorted([*variables.items(), _NO_COLOR]):
        lines += roff.tagged(name, [said])
    if statuses:
        lines.append(roff.macro("SH", "EXIT STATUS"))
        lines += [made for each in statuses for made in roff.lines(each.removeprefix(_EXIT_STATUS))]
    return "\n".join(lines) + "\n"


def _lowered(summary: str) -> str:
    """Returns a summary as the one line that apropos(1) searches has it."""
    return summary[:1].lower() + summary[1:].rstrip(".")


def _paragraphs(command: click.Command) -> list[str]:
    """Returns the paragraphs of a verb's help; those that are not filled keep mark and lines."""
    found = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        kept = paragraph.startswith(_AS_IT_IS)
        found.append(paragraph if kept else " ".join(paragraph.split()))
    return [each for each in found if each]


def _shown(paragraphs: Sequence[str]) -> list[str]:
    lines = []
    for number, paragraph in enumerate(paragraphs):
        if paragraph.startswith(_AS_IT_IS):
            lines += roff.as_it_is(paragraph.splitlines()[1:])
        else:
            lines += [".PP"] * (number > 0) + roff.lines(paragraph)
    return lines


def _long(names: str) -> str:
    """Returns ``--output`` of ``-o, --output [table|json]``."""
    words = [word.rstrip(",") for word in names.split()]
    return next((word for word in words if word.startswith("--")), words[0])


def _options(verb: Verb, common: Sequence[tuple[str, str]]) -> list[str]:
    """Returns the verb's own options, and the names of those that are told elsewhere."""
    lines = []
    for names, told in verb.options:
        if (names, told) not in common:
            lines += roff.tagged(names, [told])
    elsewhere = [_long(names) for names, told in verb.options if (names, told) in common]
    if elsewhere:
        lines += [".PP", *roff.lines(f"Also {', '.join(elsewhere)}: see {_COMMON}.")]
    return lines


def _examples(command: click.Command) -> list[str]:
    found = examples_of(command)
    if not found:
        return []
    return [
        ".PP",
        *roff.lines("Example:" if len(found) == 1 else "Examples:"),
        *roff.as_it_is(found),
    ]
