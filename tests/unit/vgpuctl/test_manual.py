"""The man page is that of the verbs, has all that ``--help`` has, and formats without a word."""

import re
import shutil
import subprocess
from importlib import metadata

import click
import pytest

from support import ROOT
from vgpuctl.examples import examples, examples_of
from vgpuctl.manual import roff
from vgpuctl.manual.__main__ import PROGRAMS, file_name
from vgpuctl.manual.page import Verb, page, verbs

pytestmark = pytest.mark.process

SHIPPED = ROOT / "docs/man"


def verbs_of(program: str) -> list[Verb]:
    group = PROGRAMS[program]
    return list(verbs(group, click.Context(group, info_name=program, **group.context_settings)))


def test_every_program_has_a_page_of_this_version() -> None:
    pages = {path.name: path.read_text() for path in SHIPPED.iterdir()}
    assert pages.keys() == set(map(file_name, PROGRAMS))
    assert all(f'"vgpu {metadata.version("vgpu")}"' in text for text in pages.values())


def formatted(text: str) -> tuple[str, str]:
    """Returns a page as a terminal of 300 columns shows it, and what the formatter says to it."""
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed (Debian's package groff-base)")
    # Wide enough that nothing is broken; -c: no colours, so that bold is told by backspaces.
    done = subprocess.run(
        [groff, "-ww", "-b", "-man", "-Tutf8", "-rLL=300n", "-P-c"],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return re.sub(r".\x08", "", done.stdout), done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_formats_without_a_warning_and_has_every_verb_option_and_example(program: str) -> None:
    shown, said = formatted((SHIPPED / file_name(program)).read_text())
    assert said == ""
    words = " ".join(shown.split())
    for verb in verbs_of(program):
        assert verb.path in words
        for names, text in verb.options:
            assert f"{names} {' '.join(text.split())}" in words, (verb.path, names)
        assert verb.command.help is not None
        assert " ".join(verb.command.help.split())[:40] in words, verb.path
        for line in examples_of(verb.command):
            assert line in words


def test_the_check_of_the_format_notices_a_warning() -> None:
    _, said = formatted('.TH "X" "1"\n.SH "NAME"\n.NOSUCHMACRO\n')
    assert "NOSUCHMACRO" in said


@pytest.mark.parametrize("program", PROGRAMS)
def test_mandoc_has_nothing_to_say_but_that_there_is_no_date(program: str) -> None:
    mandoc = shutil.which("mandoc")
    if mandoc is None:
        pytest.skip("mandoc is not installed")
    done = subprocess.run(
        [mandoc, "-T", "lint", "-W", "warning", str(SHIPPED / file_name(program))],
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if "missing date" not in line]
    assert (said, done.stderr) == ([], "")


def test_every_verb_below_groups_is_there() -> None:
    paths = [verb.path for verb in verbs_of("vgpuctl")]
    assert len(set(paths)) == len(paths)
    assert {"vgpuctl", "vgpuctl sim inject", "vgpuctl sim inject [MACHINE][/GPU] xid"} <= set(paths)


def test_text_that_a_formatter_would_act_on_is_shown_as_it_is() -> None:
    nasty = r".TH 'a' \fB it's -x `y` ^z~ “…”"

    @click.group(help=f"A tool.\n\n{nasty}\n\n\b\n  {nasty}\n  second")
    def tool() -> None: ...

    @tool.command(help="Work.", epilog=examples("vgpuctl x '.a' | b"))
    @click.option("--dotted", help=".B is no macro here.")
    def work() -> None: ...

    shown, said = formatted(page(tool, "tool", "1"))
    assert said == ""
    assert shown.count(nasty) == 2
    assert ".B is no macro here." in shown
    assert "vgpuctl x '.a' | b" in shown
    assert roff.lines(".x") == [r"\&.x"]
