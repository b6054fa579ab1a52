"""What the page ``/v1/config`` says: every value of the config in force."""

from typing import Any

import msgspec

from libvgpu.decoding import json_decoder

VERSION = 1


class ConfigValue(msgspec.Struct, frozen=True):
    """One value.

    Attributes:
        key: where it stands, for example ``sharing.fractional[0].family``.
        origin: ``line 4``, an option or variable such as ``--mig-strategy``, or ``default``.
    """

    key: str
    value: Any
    origin: str


class ConfigInForce(msgspec.Struct, frozen=True):
    """The page.

    Attributes:
        path: of the file.
        name: of the named config; empty where there is one file only, or for the empty config.
        is_kept: it was kept from before the agent's start, since the file is bad.
    """

    path: str
    values: tuple[ConfigValue, ...]
    name: str = ""
    is_kept: bool = False
    version: int = VERSION


CONFIG = json_decoder(ConfigInForce)
