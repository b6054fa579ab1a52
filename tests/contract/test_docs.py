"""The pages for users name what the code has, no more and no less; their links lead somewhere.

Each page writes a name in backticks in the first column of a table (or, for verbs, in a heading).
What the code has is taken from the code itself: the config's structs, click's commands, the table
of metrics, the enum of Event reasons.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml

from deviceplugin.__main__ import main as agent_command
from deviceplugin.config.loading import parse_config
from deviceplugin.config.overrides import FLAG_NAMES
from deviceplugin.config.schema import ConfigFile
from deviceplugin.http.metric_names import METRICS as METRICS_OF_AGENT
from deviceplugin.model.notices import EventReason
from deviceplugin.mps.runner import main as runner_command
from deviceplugin.scheduler.__main__ import main as scheduler_command
from deviceplugin.scheduler.metric_names import METRICS as METRICS_OF_EXTENDER
from support import ROOT
from vgpuctl.cli import cli
from vgpuctl.cluster.cli import kubectl_cli

DOCS = ROOT / "docs"
CONFIGURATION, VGPUCTL = DOCS / "configuration.md", DOCS / "vgpuctl.md"
KUBECTL_VGPU = DOCS / "kubectl-vgpu.md"
METRICS = DOCS / "metrics-and-events.md"
MOST_README_LINES = 150
#: A line of a page, as wide as ours are.
COLUMNS = 120
MOST_CELL = 160
WORD = re.compile(r"`([^`]+)`")


def pages() -> list[Path]:
    """Returns every Markdown file of the project."""
    found = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    return sorted(found + [p for p in (ROOT / "libvgpu").rglob("*.md") if p.parent.name != "lib"])


def section(page: Path, heading: str) -> str:
    """Returns what stands below a heading, up to the next of its level or above."""
    level = heading.split(" ")[0]
    lines = iter(page.read_text().splitlines())
    assert heading in lines, f"{page.name} has no heading {heading!r}"
    below: list[str] = []
    for line in lines:
        if line.startswith("#") and len(line.split(" ")[0]) <= len(level):
            break
        below.append(line)
    return "\n".join(below)


def rows(text: str) -> Iterator[list[str]]:
    """Yields the cells of each row of the tables, their heads left out."""
    lines = text.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        is_row = line.startswith("|") and not line.startswith("|---")
        # A head is the row that a line of dashes follows; it has no backticks that matter.
        if is_row and before.startswith("|"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def first_words(text: str) -> set[str]:
    """Returns the words in backticks of the first column."""
    return {word for cells in rows(text) for word in WORD.findall(cells[0])}


# ---- the config file --------------------------------------------------------------------------


def structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Yields the structs that a type of msgspec's may hold."""
    if isinstance(kind, msgspec.inspect.StructType):
        yield kind.cls
    for name in ("types", "item_types"):
        for each in getattr(kind, name, ()):
            yield from structs(each)
    if isinstance(kind, msgspec.inspect.ListType):
        yield from structs(kind.item_type)


def fields_of(struct: type[msgspec.Struct]) -> tuple[msgspec.inspect.Field, ...]:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    return info.fields


def config_structs() -> dict[str, type[msgspec.Struct]]:
    """Returns the struct of each mapping of the config file, by its path."""
    found: dict[str, type[msgspec.Struct]] = {}

    def walk(struct: type[msgspec.Struct], path: str) -> None:
        found[path] = struct
        for field in fields_of(struct):
            for below in structs(field.type):
                walk(below, f"{path}.{field.encode_name}".lstrip("."))

    walk(ConfigFile, "")
    return found


def config_keys() -> dict[str, set[str]]:
    """Returns the keys of each mapping of the config file, by its path."""
    return {
        path: {field.encode_name for field in fields_of(struct)}
        for path, struct in config_structs().items()
    }


#: Where the keys of each mapping are: a heading of its own, or a table below one.
TABLES = {
    "": "### The file",
    "sharing": "### `sharing`",
    "sharing.fractional": "### `sharing.fractional[]`",
    "limits": "### `limits[]`",
    "quotas": "### `quotas[]`",
    "watch": "### `watch`",
    "labels": "### `labels`",
    "flags": "### `flags`",
    "resources": "### `resources`",
    "imex": "### `imex`",
    "mig": "### `mig[]`",
}
NESTED = {
    "limits.match": "Key of `match`",
    "flags.plugin": "Key of `flags.plugin`",
    "flags.gfd": "Key of `flags.gfd`",
    "sharing.fractional.match": "Key of `fractional[].match`",
    "mig.match": "Key of `fractional[].match`",
    "resources.gpus": "Key of a pattern",
    "resources.migs": "Key of a pattern",
    "resources.mig": "Key of a pattern",
    "sharing.timeSlicing": "Key of `timeSlicing`",
    "sharing.mps": "Key of `mps`",
    "sharing.timeSlicing.resources": "Key of `resources[]`",
    "sharing.mps.resources": "Key of `resources[]`",
}


def rows_below(text: str, head: str) -> list[list[str]]:
    """Returns the rows of the table whose first column is called ``head``, none where it is not."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith(f"| {head}") and lines[number + 1].startswith("|---"):
            table = []
            for row in lines[number + 1 :]:
                if not row.startswith("|"):
                    break
                table.append(row)
            return list(rows("\n".join(table)))
    return []


def tables() -> Iterator[tuple[str, str, str]]:
    """Yields each table that may be there: the path of its mapping, its first head, its section."""
    for path, heading in TABLES.items():
        text = section(CONFIGURATION, heading)
        yield path, "Key |", text
        yield from ((own, head, text) for own, head in NESTED.items())
    text = section(CONFIGURATION, "### `sharing.timeSlicing` and `sharing.mps`")
    yield from ((own, head, text) for own, head in NESTED.items())


def documented_keys() -> dict[str, set[str]]:
    """Returns the keys that have a row in a table with defaults, by the path of their mapping."""
    found: dict[str, set[str]] = {}
    for own, head, text in tables():
        words = {word for cells in rows_below(text, head) for word in WORD.findall(cells[0])}
        if words:
            found[own] = words
    return found


def test_every_config_key_is_documented_in_its_section_and_no_other_is() -> None:
    keys = config_keys()

    told = documented_keys()

    assert told == keys


def shown(default: Any) -> str | None:
    """Returns how a page writes a default, None where it says it in its own way."""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, str | int | float):
        return f"`{default}`" if default != "" else '`""`'
    return "required" if default is msgspec.NODEFAULT else None


def test_the_defaults_of_the_config_are_those_of_the_code() -> None:
    structs_at = config_structs()
    wrong, checked = [], 0

    for own, head, text in tables():
        defaults = {f.encode_name: f for f in fields_of(structs_at[own])}
        for cells in rows_below(text, head):
            for key in WORD.findall(cells[0]):
                field = defaults[key]
                # A mutable default is made by a factory; pages show those as they look.
                real = shown(field.default) if field.default_factory is msgspec.NODEFAULT else None
                checked += real is not None
                if real is not None and not cells[1].startswith(real):
                    wrong.append(f"{own}.{key} is {real}, documented as {cells[1]}")

    assert wrong == []
    assert checked > 20


def yaml_examples() -> list[tuple[str, str]]:
    return [
        (page.name, block)
        for page in pages()
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S)
        if "version: v1" in block
    ]


@pytest.mark.parametrize(("page", "text"), yaml_examples())
def test_every_config_that_a_page_shows_is_good(page: str, text: str) -> None:
    parse_config(text, page)


def test_there_are_examples_of_configs() -> None:
    assert {"README.md", "configuration.md"} <= {page for page, _ in yaml_examples()}


# ---- command lines ----------------------------------------------------------------------------


def options_of(command: click.Command) -> set[str]:
    """Returns the long names of a command's options, help left out."""
    return {
        name
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--") and name != "--help"
    }


def commands(group: click.Command, path: str = "vgpuctl") -> Iterator[tuple[str, click.Command]]:
    """Yields every command that is no group, by what one types."""
    if not isinstance(group, click.Group):
        yield path, group
        return
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        below = group.get_command(context, name)
        assert below is not None
        yield from commands(below, f"{path} {name}")


def typed(span: str) -> str:
    """Returns a verb as it is typed, without what stands for values."""
    return re.sub(r"( …| \[| [A-Z]{2,}).*", "", span)


def documented_verbs() -> set[str]:
    """Returns what `docs/vgpuctl.md` has as verbs: in headings, and in the tables of `sim`."""
    text = VGPUCTL.read_text()
    spans = re.findall(r"^## `(vgpuctl[^`]*)`", text, re.M)
    spans += [s for s in first_words(section(VGPUCTL, "## `vgpuctl sim`")) if "vgpuctl" in s]
    return {typed(span) for span in spans} - {"vgpuctl sim"}


def inject_verbs() -> set[str]:
    words = first_words(section(VGPUCTL, "## `vgpuctl sim`"))
    return {w.split(" … ")[1].split(" ")[0] for w in words if " inject … " in w}


def test_every_verb_is_documented_and_no_other_is() -> None:
    all_verbs = {path for path, _ in commands(cli)}
    injected = {path for path in all_verbs if path.startswith("vgpuctl sim inject ")}

    assert documented_verbs() - {"vgpuctl sim inject"} == all_verbs - injected
    assert inject_verbs() == {path.rsplit(" ", 1)[1] for path in injected}


def shared_options() -> dict[str, set[str]]:
    """Returns the options of the first table, each with the verbs that have it."""
    found = {}
    for cells in rows(VGPUCTL.read_text().partition("\n## ")[0]):
        for name in re.findall(r"--[a-z-]+", cells[0]):
            if name != "--help":
                found[name] = {f"vgpuctl {verb}" for verb in WORD.findall(cells[1])}
    return found


def own_options() -> dict[str, set[str]]:
    """Returns the options in the section of each verb; `vgpuctl sim` has one for all of its own."""
    found = {}
    for heading in re.findall(r"^## `(vgpuctl[^`]*)`", VGPUCTL.read_text(), re.M):
        text = section(VGPUCTL, f"## `{heading}`")
        words = {w for cells in rows(text) for cell in cells for w in WORD.findall(cell)}
        found[typed(heading)] = {name for word in words for name in re.findall(r"^--[a-z-]+", word)}
    return found


def test_every_option_of_a_verb_is_documented_and_no_other_is() -> None:
    shared, own = shared_options(), own_options()
    real: dict[str, set[str]] = {}
    for path, command in commands(cli):
        whole = "vgpuctl sim" if path.startswith("vgpuctl sim ") else path
        real.setdefault(whole, set()).update(options_of(command))

    told = {
        verb: names
        | {name for name, verbs in shared.items() if verb in {v[: len(verb)] for v in verbs}}
        for verb, names in own.items()
    }

    assert told == real


def test_the_table_of_shared_options_names_all_verbs_that_have_them() -> None:
    real = {path: options_of(command) for path, command in commands(cli)}

    for name, verbs in shared_options().items():
        assert verbs == {verb for verb, has in real.items() if name in has}, name


def test_every_verb_and_option_of_the_kubectl_plugin_is_documented_and_no_other_is() -> None:
    def told(heading: str) -> set[str]:
        words = first_words(section(KUBECTL_VGPU, heading))
        return {name for word in words for name in re.findall(r"--[a-z-]+", word)}

    real = {path: options_of(c) for path, c in commands(kubectl_cli, "kubectl vgpu")}
    headings = re.findall(r"^## `(kubectl vgpu[^`]*)`", KUBECTL_VGPU.read_text(), re.M)
    table = list(rows(section(KUBECTL_VGPU, "## Options")))
    shared = told("## Options")
    assert {typed(h): told(f"## `{h}`") | (shared & real[typed(h)]) for h in headings} == real
    for name, meaning in ((cells[0], cells[1].lower()) for cells in table):
        without = {f"kubectl vgpu {verb}" for verb in re.findall(r"not of `(\w+)`", meaning)}
        (option,) = re.findall(r"--[a-z-]+", name)
        assert {path for path, options in real.items() if option not in options} == without, name


@pytest.mark.parametrize(
    ("command", "opening"),
    [
        (agent_command, "`python -m deviceplugin` "),
        (runner_command, "`python -m deviceplugin.mps`"),
    ],
)
def test_every_option_of_the_agent_is_documented_and_no_other_is(
    command: click.Command, opening: str
) -> None:
    text = section(CONFIGURATION, "## The agent's command line")
    body = text.partition(f"\n{opening}")[2].partition("\n`python")[0]

    told = {name for word in first_words(body) for name in re.findall(r"--[a-z-]+", word)}
    variables = {v for cells in rows(body) for v in WORD.findall(cells[1])}

    assert told == options_of(command)
    flags = {v for flag in FLAG_NAMES for v in flag.variables if command is agent_command}
    assert variables == flags | {v for p in command.params for v in variables_of(p)}


def test_every_option_of_the_extender_is_documented_and_no_other_is() -> None:
    found = list(rows(section(DOCS / "scheduling.md", "## Options")))

    assert {n for c in found for n in re.findall(r"--[a-z-]+", c[0])} == options_of(
        scheduler_command
    )
    variables = {v for cells in found for v in WORD.findall(cells[1])}
    # Not click's: an address without the port that belongs to it.
    assert variables == {"POD_IP"} | {v for p in scheduler_command.params for v in variables_of(p)}


def variables_of(parameter: click.Parameter) -> list[str]:
    named = parameter.envvar or []
    return [named] if isinstance(named, str) else list(named)


def test_every_value_of_the_chart_is_documented_and_no_other_is() -> None:
    told: set[str] = set()
    for cells in rows(section(CONFIGURATION, "## Values of the Helm chart")):
        before = ""
        for word in WORD.findall(cells[0]):
            before = before.rpartition(".")[0] + word if word.startswith(".") else word
            told.add(before)
    values = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())

    def leaves(value: Any, path: str) -> Iterator[str]:
        if path in told or not isinstance(value, dict):
            yield path
            return
        for key, below in value.items():
            yield from leaves(below, f"{path}.{key}".lstrip("."))

    assert set(leaves(values, "")) == told


# ---- metrics and Events -----------------------------------------------------------------------


METRIC_TABLES = (
    "## Metrics of containers",
    "## Metrics of GPUs",
    "## Metrics of the agent",
    "## Metrics of the extender",
)
METRICS_OF_CODE = (*METRICS_OF_AGENT, *METRICS_OF_EXTENDER)


def test_every_metric_is_documented_with_its_kind_and_no_other_is() -> None:
    told = {
        WORD.findall(cells[0])[0]: cells[1]
        for heading in METRIC_TABLES
        for cells in rows(section(METRICS, heading))
    }

    assert told == {metric.name: metric.kind for metric in METRICS_OF_CODE}


def test_the_labels_of_metrics_are_those_of_the_code() -> None:
    by_name = {metric.name: set(metric.labels) for metric in METRICS_OF_CODE}
    wrong = []

    for heading in METRIC_TABLES:
        text = section(METRICS, heading)
        common = set(WORD.findall(text.partition("\n\n|")[0].partition(". ")[0]))
        for cells in rows(text):
            name = WORD.findall(cells[0])[0]
            # Programs' have a column of their own; some name one more in their text, or others.
            has_column = heading.endswith(("agent", "extender"))
            told = set(WORD.findall(cells[2])) if has_column else set(common)
            told |= set(re.findall(r"one more label, `(\w+)`", cells[2]))
            if others := re.search(r"\(labels? (.*) only\)", cells[2]):
                told = set(WORD.findall(others[1]))
            if told != by_name[name]:
                wrong.append(f"{name} has {by_name[name]}, documented are {told}")

    assert wrong == []


def test_every_query_uses_metrics_that_are_there() -> None:
    used = {
        name
        for cells in rows(section(METRICS, "## Questions and queries"))
        for name in re.findall(r"vgpu_[a-z0-9_]+", cells[1])
    }

    assert len(used) >= 5
    of_histograms = {f"{m.name}_bucket" for m in METRICS_OF_CODE if m.kind == "histogram"}
    assert used <= {metric.name for metric in METRICS_OF_CODE} | of_histograms


def test_every_event_reason_is_documented_with_its_type_and_no_other_is() -> None:
    told = {WORD.findall(cells[0])[0]: cells[1] for cells in rows(section(METRICS, "## Events"))}

    types = {True: "Warning", False: "Normal"}
    assert told == {reason.value: types[reason.is_warning] for reason in EventReason}


def test_events_that_other_pages_name_are_there() -> None:
    reasons = {reason.value for reason in EventReason}
    camel = re.compile(
        r"`((?:Mps|Gpu|Config|Shim|Unaccounted|Limits|Raise|Foreign|Bypass)[A-Za-z]+)`"
    )
    named = {word for page in DOCS.rglob("*.md") for word in camel.findall(page.read_text())}

    assert len(named) > 5
    assert named <= reasons


# ---- the pages themselves ---------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def broken(page: Path) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists():
            yield f"{page.relative_to(ROOT)}: {target} leads nowhere"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            yield f"{page.relative_to(ROOT)}: {target} names no heading"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_every_page_is_linked_from_readme_or_architecture() -> None:
    text = (ROOT / "README.md").read_text() + (ROOT / "ARCHITECTURE.md").read_text()

    assert [p.name for p in DOCS.rglob("*.md") if f"({p.relative_to(ROOT)}" not in text] == []


@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("ARCHITECTURE.md", 20),
        ("CONTRIBUTING.md", 50),
        ("docs/glossary.md", 20),
        ("docs/design/pairing.md", 15),
    ],
)
def test_every_file_that_a_table_names_is_there(page: str, least: int) -> None:
    named = {
        word
        for cells in rows((ROOT / page).read_text())
        for cell in cells
        for word in WORD.findall(cell)
        if re.match(r"(libvgpu|deviceplugin|vgpuctl|benchmarks|deploy|tests|docs)/[\w./-]*$", word)
    }

    assert len(named) > least
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def prose(page: Path) -> list[str]:
    """Returns the lines of a page without code; links are what one reads of them."""
    text = re.sub(r"```.*?```|(?<=\n)\n( {4}[^\n]*\n|\n)+", "\n", page.read_text(), flags=re.S)
    return re.sub(r"\]\([^)]*\)", "]", text).splitlines()


def paragraphs(page: Path) -> Iterator[str]:
    """Yields each paragraph, and each item of a list, as one line."""
    words: list[str] = []
    for line in [*prose(page), ""]:
        if not line or re.match(r"#|\||\s*([-*]|\d+\.) ", line):
            yield " ".join(words)
            words = []
        if line and not line.startswith(("#", "|")):
            words.append(line.strip())


#: Without the changelog, which is a list of what there is.
READ = [page for page in pages() if page.name != "CHANGELOG.md"]


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_paragraph_is_longer_than_five_lines(page: Path) -> None:
    most = 5 * COLUMNS
    assert [text for text in paragraphs(page) if len(text) > most] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_cell_of_a_table_holds_a_phrase(page: Path) -> None:
    # Names in backticks count as one character: some cells list what there is.
    cells = [re.sub("`[^`]+`", "`", cell) for row in rows("\n".join(prose(page))) for cell in row]

    assert [cell for cell in cells if len(cell) > MOST_CELL] == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_README_LINES


def test_the_version_of_the_chart_and_of_what_pages_name_is_the_projects() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "deploy/chart/Chart.yaml").read_text())

    named = {
        found
        for page in pages()
        for found in re.findall(r"\bvgpu[:-](\d+\.\d+\.\d+)", page.read_text())
    }

    assert named == {version}
    assert (chart["version"], chart["appVersion"]) == (version, version)
