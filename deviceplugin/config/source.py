"""Where the config text comes from: one file, or a directory of named ones (a mounted ConfigMap).

Read as a whole each time it is asked, so a reader follows edits, swapped links and a changed node
label alike: two readings are equal where text, name and reason are. No state but what it was made
with; safe to use from any thread if the label is.
"""

import os
from collections.abc import Callable
from pathlib import Path

from deviceplugin.model.agent_config import AgentConfig, ConfigText, SaidFlag
from libvgpu.errors import ConfigError

from .chosen import Selection, choose
from .loading import parse_config

#: The config that says nothing: what `Fallback.EMPTY` chooses.
EMPTY_TEXT = "version: v1\n"


class ConfigSource:
    """A config file, or a directory with one file for each named config."""

    def __init__(
        self,
        path: Path,
        selection: Selection | None = None,
        label: Callable[[], str] = lambda: "",
    ) -> None:
        """Reads nothing.

        Args:
            label: value of the node's label, empty where it is not set; asked for a directory only.
        """
        self.path = path
        self._selection, self._label = selection or Selection(), label

    @property
    def has_names(self) -> bool:
        """It is a directory of named configs."""
        return self.path.is_dir()

    def read(self) -> ConfigText:
        """Returns what is there now; never raises, a `ConfigText.problem` says what is wrong."""
        path, name, chosen_by = self.path, "", ""
        try:
            if self.has_names:
                names = config_names(path)
                choice = choose(names, self._label(), self._selection, str(path))
                chosen_by = choice.by
                if choice.name is None:
                    return ConfigText(f"{path} (the empty config)", EMPTY_TEXT, chosen_by=chosen_by)
                path, name = path / choice.name, choice.name
            return ConfigText(str(path), path.read_bytes().decode(), name, chosen_by)
        except ConfigError as error:
            problem = error.message
        except UnicodeDecodeError:
            problem = f"config file {path} is not UTF-8 text"
        except OSError as error:
            problem = f"config file {path} cannot be read: {error.strerror}"
        return ConfigText(str(path), "", name, chosen_by, problem)


def config_names(directory: Path) -> frozenset[str]:
    """Returns the names of the configs in a directory.

    What begins with two dots belongs to the volume itself (``..data``), and is no config.

    Raises:
        OSError: it cannot be read.
    """
    with os.scandir(directory) as entries:
        return frozenset(
            each.name
            for each in entries
            if not each.name.startswith("..") and not each.is_dir(follow_symlinks=False)
        )


def parse_text(
    found: ConfigText,
    said: tuple[SaidFlag, ...] = (),
    check_node: Callable[[AgentConfig], None] = lambda config: None,
) -> AgentConfig:
    """Returns what a reading says.

    Args:
        said: flags of command line and environment, which count more than the text's.
        check_node: raises ConfigError if what a config says cannot be on this node.

    Raises:
        ConfigError: there is no text, or it is no good config.
    """
    if found.problem:
        raise ConfigError(found.problem)
    config = parse_config(found.text, found.place, said, was_in_force=found.was_in_force)
    check_node(config)
    return config
