"""The agent's config file, decoded strictly and checked as a whole.

Reading has two steps. `parse_config` needs no GPU: YAML -> schema (unknown keys and wrong types are
errors with key and line) -> the values themselves -> `AgentConfig`. `policy.devices.layout` then
holds it against the GPUs that are there. A file is taken whole or not at all.

Nothing here keeps state; every value is frozen and may be shared between threads.
"""

import difflib
import functools
import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from deviceplugin.model.agent_config import AgentConfig, SaidFlag, WatchPolicy
from deviceplugin.model.limit_rules import LimitRule
from libvgpu.decoding import converter
from libvgpu.errors import ConfigError
from libvgpu.limits import WHOLE_CORE_PERCENT
from libvgpu.places import Places
from libvgpu.sizes import parse_percent
from libvgpu.yamltext import parse, read

from . import schema
from .flags import check_discovery, device_forms, mps_root
from .fractional import fractional_entries
from .label_settings import label_settings
from .mig_layouts import mig_layouts
from .plain_data import as_written_out, put_over
from .quotas import quotas_of
from .values import compute_mode, size_bytes
from .whole_devices import whole_devices

#: The part of a resource before the slash, as the kubelet takes it: it puts ``requests.`` in front.
_DOMAIN_CHARACTERS = 253 - len("requests.")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_FIELD_AT = re.compile(r"^(?P<text>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.S)
_WRONG_TYPE = re.compile(r"Expected `(?P<allowed>[^`]*)`, got `(?P<given>[^`]*)`")
#: What YAML has, by the decoder's words for it.
_KINDS = {
    "object": "a mapping",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}
_NAMED_FIELD = re.compile(r"^Object (contains unknown|missing required) field `([^`]*)`")
_config_file = converter(schema.ConfigFile)


def is_domain(text: str) -> bool:
    """Returns whether a text can be the domain of resources, as ``nvidia.com``.

    The kubelet registers nothing under other domains.
    """
    return (
        _DOMAIN.fullmatch(text) is not None
        and len(text) <= _DOMAIN_CHARACTERS
        and not text.endswith("kubernetes.io")
        and not text.startswith("requests.")
    )


def load_config(path: Path, said: tuple[SaidFlag, ...] = ()) -> AgentConfig:
    """Reads and checks a config file.

    Args:
        said: flags of command line and environment.

    Raises:
        ConfigError: one sentence with file, line, value and what is allowed.
    """
    return parse_config(read(path), str(path), said)


def parse_config(
    text: str,
    name: str = "config",
    said: tuple[SaidFlag, ...] = (),
    *,
    was_in_force: bool = False,
) -> AgentConfig:
    """Returns what a config text says.

    Args:
        text: the whole file.
        name: what to call it in messages.
        said: flags of command line and environment, which count more than the file's.
        was_in_force: it was accepted before, so what only an earlier version allowed is still read.

    Raises:
        ConfigError: one sentence with file, line, value and what is allowed.
    """
    data, places = parse(text, name)
    return config_of(data, replace(places, was_in_force=was_in_force), text, said)


def config_of(data: Any, places: Places, text: str, said: tuple[SaidFlag, ...] = ()) -> AgentConfig:
    """Returns what the data of a config text say.

    Raises:
        ConfigError: the first value that is wrong.
    """
    file, places = checked_file(data, places, said)
    if file.version != "v1":
        raise places.error("$.version", f"version is {file.version!r}, allowed is: v1")
    if not is_domain(file.resource_domain):
        raise places.error(
            "$.resourceDomain",
            f"resourceDomain {file.resource_domain!r} is not a domain name like nvidia.com, of at "
            f"most {_DOMAIN_CHARACTERS} characters, without requests. in front and kubernetes.io "
            "at the end",
        )
    sharing, flags = file.sharing or schema.Sharing(), file.flags or schema.Flags()
    check_discovery(flags, places)
    places.one_of("$.watch.unaccounted", file.watch.unaccounted, WatchPolicy)
    return AgentConfig(
        resource_domain=file.resource_domain,
        fractional=fractional_entries(sharing.fractional, places),
        rules=tuple(_rule(r, f"$.limits[{i}]", places) for i, r in enumerate(file.limits)),
        forms=device_forms(flags, file.imex, places),
        text=text,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        places=places,
        watch=WatchPolicy(file.watch.unaccounted),
        whole=whole_devices(file, places),
        mig_layouts=mig_layouts(file.mig, places),
        said=said,
        fail_on_init_error=flags.fail_on_init_error,
        mps_root=mps_root(flags, places),
        labels=label_settings(file, places),
        quotas=quotas_of(file.quotas, places),
    )


def checked_file(
    data: Any, places: Places, said: tuple[SaidFlag, ...] = ()
) -> tuple[schema.ConfigFile, Places]:
    """Returns the keys of a config with flags over them, and where they stand.

    Raises:
        ConfigError: an unknown key, or a value of the wrong type.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{places.name}: the file must be a mapping that begins with version: v1")
    plain = as_written_out(put_over(data, places, said), (_file_type(),), places)
    try:
        return _config_file(plain), places
    except msgspec.ValidationError as error:
        raise _refused(str(error), places) from None


@functools.cache
def _file_type() -> inspect.Type:
    return inspect.type_info(schema.ConfigFile)


def _refused(said: str, places: Places) -> ConfigError:
    """Returns what the decoder says, for people who know YAML and no Python."""
    match = _FIELD_AT.match(said)
    text, path = (match["text"], match["path"] or "$") if match else (said, "$")
    named = _NAMED_FIELD.match(text)
    if named is None:
        return places.error(path, f"{path[2:] or 'the file'} {_expected(text)}")
    where, key = path[2:] or "the file", named[2]
    if named[1] == "missing required":
        return places.error(path, f"{where} lacks the key {key!r}")
    steps = [int(i) if i else k for k, i in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path)]
    allowed = schema.allowed_keys(steps)
    near = difflib.get_close_matches(key, allowed, 1)
    hint = f"did you mean {near[0]!r}?" if near else None
    return places.error(
        f"{path}.{key}", f"unknown key {key!r} in {where}; allowed are: {', '.join(allowed)}", hint
    )


def _expected(text: str) -> str:
    """Returns what the decoder says of a wrong type."""
    match = _WRONG_TYPE.fullmatch(text)
    if match is None:
        return text
    allowed = [_KINDS.get(each, each) for each in match["allowed"].split(" | ") if each != "null"]
    *first, last = allowed
    given = _KINDS.get(match["given"], match["given"])
    return f"must be {', '.join(first)}{' or ' * bool(first)}{last}, not {given}"


def _rule(rule: schema.Rule, path: str, places: Places) -> LimitRule:
    percent: int | None = None
    part: float | None = None
    if rule.core is not None:
        core = parse_percent(rule.core)
        if core is None or not 0 < core.value <= WHOLE_CORE_PERCENT:
            is_good = False
        elif core.has_sign:
            is_good, part = True, float(core.value / 100)
        else:
            percent = core.whole
            is_good = percent is not None
        if not is_good:
            raise places.error(
                f"{path}.core",
                f"{path[2:]}.core {rule.core!r} must be 1 to 100 percent of a GPU, as a whole "
                'number, or a part of what was asked such as "60%"',
            )
    memory = None if rule.memory is None else size_bytes(rule.memory, f"{path}.memory", places)
    mode = compute_mode(rule.compute, f"{path}.compute", places)
    if rule.core is None and memory is None and mode is None and not rule.allow_raise:
        raise places.error(
            path, f"{path[2:]} changes nothing; give core, memory, compute or allowRaise: true"
        )
    return LimitRule(
        namespace=rule.match.namespace,
        container=rule.match.container,
        core_percent=percent,
        core_part_of_asked=part,
        memory_bytes=memory,
        compute=mode,
        pod_labels=tuple(rule.match.pod_labels.items()),
        allow_raise=rule.allow_raise,
        path=path,
        line=places.line(path),
    )
