"""The label of this Node that chooses its config, followed through the API server.

Asked for only once somebody wants to know it (there are several named configs): first by whoever
wants it, at most a few seconds long, then every `REFRESH_S` in a thread of its own, so that neither
an `Allocate` nor the agent's loop waits for the API server. What was answered stays while the
server is away or does not let the agent ask, and over a restart in a file of the state directory.

`value` is called by one thread, the agent's; the table is replaced whole.
"""

import json
import logging
from pathlib import Path

from deviceplugin import runtime
from deviceplugin.heartbeats import Beat
from deviceplugin.log import event
from deviceplugin.store.disk import Disk
from deviceplugin.store.whole_file import replace_file

from .api_client import ApiRefused, ApiServer, ApiUnreachable

REFRESH_S = 10.0
FILE = "node-label.json"
_MOST_BYTES = 64 << 10


class NodeLabel:
    """What the API server says of one label of one Node.

    Attributes:
        problem: why the label is not known for certain; empty where it is, or nobody asked.
    """

    def __init__(self, api: ApiServer | None, node_name: str, label: str, state_dir: Path) -> None:
        """Starts with what an agent before this one had learnt.

        Args:
            api: None where there is none; then the last known value stays.
            label: its key.
        """
        self._api, self._node, self._label = api, node_name, label
        self._disk = Disk()
        self._path = state_dir / FILE
        self._saved = _load(self._path, node_name, label)
        self._value = self._saved or ""
        self.problem = ""
        self._news = runtime.condition()
        self._asked = self._stopping = False
        self.beat = Beat()
        self._thread = runtime.thread(target=self._run, name="node-label")

    def start(self) -> None:
        """Follows the label from now on, once it was asked for."""
        if self._api is not None:
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread; a call under way is not waited for."""
        with self._news:
            self._stopping = True
            self._news.notify()

    def value(self) -> str:
        """Returns the label's last known value; empty where it is not set or was never known.

        The first call asks the API server, and so may take some seconds.
        """
        if not self._asked:
            self._ask()
            with self._news:
                self._asked = True
                self._news.notify()
        return self._value

    def _run(self) -> None:
        with self._news:
            self._news.wait_for(lambda: self._asked or self._stopping)
        while not self._stopping:
            self.beat()
            self._save()
            self.beat.rest()
            with self._news:
                # Nodes that started together must not ask together for ever.
                self._news.wait_for(lambda: self._stopping, REFRESH_S * runtime.uniform(0.8, 1.2))
            self.beat()
            if not self._stopping:
                self._ask()

    def _ask(self) -> None:
        if self._api is None:
            self._say("there is no API server, or no service account to ask it with")
            return
        try:
            found = self._api.node(self._node)
        except ApiUnreachable as error:
            self._say(error.message)
        except ApiRefused as error:
            self._say(f"the API server answers {error.status} for node {self._node}: {error}")
        else:
            if found is None:
                self._say(f"the API server has no node {self._node} (see --node-name)")
                return
            if self.problem:
                event(logging.INFO, "the node's config label is read again", label=self._label)
            self.problem = ""
            self._value = str((found.labels or {}).get(self._label, ""))

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            event(
                logging.WARNING,
                "the node's config label cannot be read, the last known one stays",
                label=self._label,
                last_known=self._value or "none",
                reason=problem,
            )
        self.problem = problem

    def _save(self) -> None:
        value = self._value
        if self._saved == value or self.problem:
            return
        content = {"node": self._node, "label": self._label, "value": value}
        try:
            replace_file(self._path, json.dumps(content).encode(), self._disk)
            self._saved = value
        except OSError as error:
            event(logging.WARNING, "the node's label cannot be saved", reason=error.strerror)


def _load(path: Path, node_name: str, label: str) -> str | None:
    """Returns the saved value of a label of a Node, None where it was not saved, or is damaged."""
    try:
        found = json.loads(Disk().read(path, _MOST_BYTES))
        is_ours = (found["node"], found["label"]) == (node_name, label)
        return str(found["value"]) if is_ours else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
