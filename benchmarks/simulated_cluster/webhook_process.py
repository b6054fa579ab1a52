"""The real webhook (``python -m deviceplugin.webhook``) as a process that asks for certificates."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libvgpu
from libvgpu.errors import VgpuError

_STARTED = re.compile(r'msg="webhook started" address=(\d+) probes=(\d+)')
_READY_S, _POLL_S = 60.0, 0.01


@dataclass(frozen=True, slots=True)
class WebhookProcess:
    """One run of it.

    Attributes:
        port, probes: where it listens.
    """

    pid: int
    port: int
    probes: int


@contextlib.contextmanager
def running_webhook(base: Path, tls: Path) -> Iterator[WebhookProcess]:
    """Gives a webhook that listens, and ends it.

    Args:
        tls: directory of its certificate, by which it knows callers, too.

    Raises:
        VgpuError: it does not start.
    """
    rules, log = base / "rules.json", base / "webhook.log"
    rules.write_text('{"resources": ["nvidia.com/*"], "labels": {"a": "b"}}')
    words = [f"--rules={rules}", f"--tls-dir={tls}", f"--client-ca={tls / 'tls.crt'}"]
    words += ["--address=127.0.0.1:0", "--probe-address=127.0.0.1:0"]
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "deviceplugin.webhook", *words],
            cwd=Path(libvgpu.__file__).resolve().parent.parent, stderr=file,
        )  # fmt: skip
    try:
        end_s = time.monotonic() + _READY_S
        while (found := _STARTED.search(log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > end_s:
                raise VgpuError(f"the webhook does not start: {log.read_text()[-500:]}")
            time.sleep(_POLL_S)
        yield WebhookProcess(process.pid, int(found[1]), int(found[2]))
    finally:
        process.kill()
        process.wait()
