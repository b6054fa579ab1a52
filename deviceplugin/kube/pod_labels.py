"""Labels of the pods that have slices, for rules that match by them; from the API server.

Asked for only while a rule needs them, in a thread of its own: neither an `Allocate` nor the loop
of the agent ever waits for the API server. A pod is asked for once it is known whose an allocation
is, and again every `REFRESH_S`. Until there is an answer no such rule matches. What was answered
stays while the server is away, and over a restart in a file of the state directory, so that no
container gets its request back meanwhile.

`follow` and `stop` are called by the agent's loop, `of` by any thread; tables are replaced whole.
"""

import contextlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from deviceplugin import runtime
from deviceplugin.heartbeats import Beat
from deviceplugin.log import event
from deviceplugin.model.allocations import Owner
from libvgpu.errors import VgpuError

from .api_client import ApiRefused, ApiServer, ApiUnreachable

REFRESH_S = 30.0
RETRY_S = 5.0
FILE = "pod-labels.json"

Labels = Mapping[str, str]


class PodLabels:
    """What the API server says of the pods.

    Attributes:
        beat: of the thread.
    """

    def __init__(self, api: ApiServer | None, state_dir: Path) -> None:
        """Starts with what an agent before this one had learnt.

        Args:
            api: None where there is none; then no labels are known.
        """
        self._api = api
        self._changed: Callable[[], None] = lambda: None
        self._file = state_dir / FILE
        self._known: Mapping[str, Labels] = {} if api is None else _load(self._file)
        self._wanted: Mapping[str, Owner] = {}
        self._asked_at: dict[str, float] = {}
        self._said = ""
        self._news = runtime.condition()
        self._stopping = False
        self._is_told = True  # of the present labels
        self.beat = Beat()
        self._thread = runtime.thread(target=self._run, name="labels")

    def start(self, changed: Callable[[], None]) -> None:
        """Starts the thread, where there is an API server.

        Args:
            changed: called in that thread after labels have changed.
        """
        self._changed = changed
        if self._api is not None:
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread; a call under way is not waited for."""
        with self._news:
            self._stopping = True
            self._news.notify()

    def follow(self, owners: Mapping[str, Owner]) -> None:
        """Takes whose allocations there are now, by id; none while no rule needs labels."""
        with self._news:
            if owners.keys() != self._wanted.keys():
                self._news.notify()
            self._wanted = dict(owners)

    def of(self, allocation_id: str) -> Labels | None:
        """Returns the labels of an allocation's pod, None where they are not known."""
        return self._known.get(allocation_id)

    def _run(self) -> None:
        while not self._stopping:
            with self._news:
                wanted, now = self._wanted, runtime.monotonic()
                due = {i: o for i, o in wanted.items() if now >= self._due_at(i)}
                if not due and self._is_told:
                    wait_s = min((self._due_at(i) - now for i in wanted), default=None)
                    self.beat.rest()
                    self._news.wait(wait_s)
                    continue
            try:
                self._ask(due, wanted)
            except Exception as error:  # what follows from labels may fail; it is tried again
                event(
                    logging.ERROR,
                    "what labels of pods change is not in force, will try again",
                    reason=error.message if isinstance(error, VgpuError) else repr(error),
                )
                with self._news:
                    self._news.wait_for(lambda: self._stopping, RETRY_S)

    def _due_at(self, allocation_id: str) -> float:
        asked_at = self._asked_at.get(allocation_id)
        return float("-inf") if asked_at is None else asked_at + REFRESH_S

    def _ask(self, due: Mapping[str, Owner], wanted: Mapping[str, Owner]) -> None:
        found: dict[str, Labels] = {i: self._known[i] for i in wanted if i in self._known}
        told: dict[tuple[str, str], Labels | None] = {}
        try:
            for allocation_id, owner in due.items():
                self.beat()
                pod = owner.namespace, owner.pod
                if pod not in told:
                    told[pod] = self._labels(*pod)
                labels = told[pod]
                if labels is not None:
                    found[allocation_id] = labels
                self._asked_at[allocation_id] = runtime.monotonic()
        except ApiUnreachable as error:
            self._say(error.message)
            with self._news:
                self._news.wait_for(lambda: self._stopping, RETRY_S)
        self._asked_at = {i: at for i, at in self._asked_at.items() if i in wanted}
        if found != self._known:
            self._known, self._is_told = found, False
            self._save()
        if not self._is_told and not self._stopping:
            self._changed()
            self._is_told = True

    def _labels(self, namespace: str, pod: str) -> Labels | None:
        """Asks for one pod; None where the server does not say.

        Raises:
            ApiUnreachable: there was no answer.
        """
        assert self._api is not None
        try:
            found = self._api.pod(namespace, pod)
        except ApiRefused as error:
            self._say(f"the API server answers {error.status} for pod {namespace}/{pod}")
            return None
        if found is None:
            return None
        self._said = ""
        return {str(key): str(value) for key, value in (found.labels or {}).items()}

    def _say(self, reason: str) -> None:
        if reason != self._said:
            event(
                logging.WARNING,
                "pod labels cannot be read, rules by label match as before",
                reason=reason,
            )
        self._said = reason

    def _save(self) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_text(json.dumps(self._known))
            os.replace(new, self._file)
        except OSError as error:
            reason = f"{self._file}: {error.strerror}"
            event(logging.WARNING, "labels of pods cannot be saved", reason=reason)
            with contextlib.suppress(OSError):
                new.unlink()


def _load(path: Path) -> Mapping[str, Labels]:
    """Returns what was saved; nothing where that cannot be read."""
    try:
        saved = json.loads(path.read_text())
        return {str(i): {str(k): str(v) for k, v in row.items()} for i, row in saved.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
