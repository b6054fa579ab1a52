"""Gets a wheel from the package index that pip is set to, with the standard library alone.

This is how the first installer comes to a machine that has none: on Debian and Ubuntu only root can
install pip or python3-venv.
"""

import configparser
import hashlib
import http.client
import os
import re
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path

DEFAULT_INDEX = "https://pypi.org/simple"
#: What is fetched, by name: the wheels of this machine and the version in their names.
WHEELS = {
    "uv": r"uv-([\d.]+)-py3-none-manylinux\w*_x86_64(?:\.\w+)*\.whl",
    "pip": r"pip-([\d.]+)-py3-none-any\.whl",
}
_SILENT_SECONDS = 30.0  # an index that says nothing for so long is taken for one that hangs


class PackageIndexError(Exception):
    """A package cannot be had from the index; says which index and why."""


def pip_settings() -> dict[str, str]:
    """Returns pip's settings as ``pip config list`` names them (``global.index-url``)."""
    home, only = os.environ.get("HOME", "/"), os.environ.get("PIP_CONFIG_FILE", "")
    user = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    folders = ("/etc/xdg/pip", "/etc", f"{home}/.pip", f"{user}/pip", sys.prefix)
    files = [] if only == os.devnull else [*(f"{folder}/pip.conf" for folder in folders), only]
    settings: dict[str, str] = {}
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip says what is wrong with it, if it comes to pip
        for section in parser.sections():
            for name, value in parser.items(section):
                settings[f"{section}.{name.replace('_', '-')}"] = " ".join(value.split())
    for variable, value in os.environ.items():
        if variable.startswith("PIP_") and value:
            name = variable.removeprefix("PIP_").lower().replace("_", "-")
            settings[f":env:.{name}"] = value
    return settings


def setting(settings: Mapping[str, str], name: str) -> str | None:
    """Returns a setting of ``pip install``: variables count more than files."""
    for section in (":env:.", "install.", "global."):
        if section + name in settings:
            return settings[section + name]
    return None


def fetch_wheel(name: str, folder: Path, settings: Mapping[str, str]) -> Path:
    """Returns the newest wheel of a package of `WHEELS`, downloaded into a folder and checked.

    Raises:
        PackageIndexError: the index cannot be reached, has no such wheel, or sent something else.
    """
    index = (setting(settings, "index-url") or DEFAULT_INDEX).rstrip("/")
    try:
        cert = setting(settings, "cert")
        context = ssl.create_default_context(cafile=cert)
        page = f"{index}/{name}/"
        links = _links(_get(page, context).decode(), WHEELS[name])
        if not links:
            raise PackageIndexError(f"{index} has no wheel of {name} for this machine")
        _, link, digest = max(links)
        content = _get(urllib.parse.urljoin(page, link), context)
    except urllib.error.HTTPError as error:
        raise PackageIndexError(f"{index} answers {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise PackageIndexError(f"{index} cannot be reached: {reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PackageIndexError(f"{index} broke off: {error}") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise PackageIndexError(f"{index} sent {name} damaged: its sha256 is not {digest}")
    wheel = folder / urllib.parse.unquote(link.rpartition("/")[2])
    wheel.write_bytes(content)
    return wheel


def _get(url: str, context: ssl.SSLContext) -> bytes:
    # An index, as pip takes it: https, http or file.
    with urllib.request.urlopen(url, timeout=_SILENT_SECONDS, context=context) as answer:  # noqa: S310
        content: bytes = answer.read()
    return content


def _links(page: str, pattern: str) -> list[tuple[tuple[int, ...], str, str]]:
    """Returns version, link and sha256 of each wheel on a page of the index."""
    found = []
    for attributes in re.findall(r"<a\s([^>]*)>", page):
        if "data-yanked" in attributes:
            continue
        match = re.search(rf'href="([^"#]*/)?({pattern})#sha256=([0-9a-f]{{64}})"', attributes)
        if match:
            version = tuple(int(part) for part in match[3].split("."))
            found.append((version, f"{match[1] or ''}{match[2]}", match[4]))
    return found
