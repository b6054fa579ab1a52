"""A real Prometheus with the chart's rules, that scrapes ports of this machine."""

import http.client
import json
import shutil
import socket
import subprocess
import urllib.parse
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from libvgpu.errors import UsageError

from .queries import FILES

PROGRAM = "prometheus"


class Prometheus:
    """A running one; `stop` it."""

    def __init__(
        self,
        folder: Path,
        targets: Sequence[tuple[str, int, str]],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts it.

        Args:
            folder: an existing directory for its files.
            targets: job, port of 127.0.0.1 and node of each.
            environment: of its process; None: this one's.

        Raises:
            UsageError: it is not installed.
        """
        if shutil.which(PROGRAM) is None:
            raise UsageError(
                "prometheus is not installed",
                hint="as root: sh deploy/dev/install-prerequisites.sh node",
            )
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(FILES / "rules.yaml")],
            "scrape_configs": [
                {
                    "job_name": f"{job}-{number}",
                    "honor_labels": True,
                    "relabel_configs": [{"target_label": "job", "replacement": job}],
                    "static_configs": [
                        {"targets": [f"127.0.0.1:{port}"], "labels": {"node": node}}
                    ],
                }
                for number, (job, port, node) in enumerate(targets)
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        # Held, so that nobody else is given it: the server may still listen there.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port = self._held.getsockname()[1]
        self._process = subprocess.Popen(
            [
                PROGRAM,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, query: str) -> list[Any]:
        """Returns the samples that answer a query now; none while it does not answer.

        Raises:
            AssertionError: Prometheus does not understand it.
        """
        return self._get("query", {"query": query})

    def ask_range(self, query: str, begin_s: float, end_s: float, step_s: int) -> list[Any]:
        """Returns the series that answer a query over some time, which is wall-clock time.

        Raises:
            AssertionError: Prometheus does not understand it.
        """
        asked = {"query": query, "start": f"{begin_s}", "end": f"{end_s}", "step": f"{step_s}"}
        return self._get("query_range", asked)

    def stop(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self._process.wait()

    def _get(self, page: str, asked: Mapping[str, str]) -> list[Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", f"/api/v1/{page}?{urllib.parse.urlencode(asked)}")
            response = connection.getresponse()
            body = response.read()
            if response.status == HTTPStatus.SERVICE_UNAVAILABLE:  # it starts
                return []
            answer = json.loads(body)
        except OSError:
            return []
        finally:
            connection.close()
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])
