"""Honest callers of extender and webhook next to a crowd that finishes no call.

Both servers are real, processes of their own, and ask for certificates. The crowd is a process on
this machine, too (`unfinished_calls`). An honest caller keeps its connection, as kube-scheduler and
API servers do; a newcomer connects for each call; a probe reads the port of probes. A stretch with
the crowd and one without it are measured in the same run.
"""

import contextlib
import http.client
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from libvgpu.errors import VgpuError

from .churn import quantile
from .extender_nodes import NAMESPACE, cluster_of, one
from .figure import Figure, Measurement, Options
from .process import memory
from .repeats import say
from .simulated_cluster.account import make_certificate
from .simulated_cluster.extender_client import HttpSender
from .simulated_cluster.extender_process import running_extender
from .simulated_cluster.machines import CORE, MEMORY
from .simulated_cluster.pod_shapes import Shape
from .simulated_cluster.webhook_process import running_webhook

RATE, SECONDS, NODES, ADDRESSES = 1000, 60.0, 1000, (1, 250)
MOST_MS = 50.0
_MIB = 1 << 20
_CALLS_A_SECOND, _NEW_A_SECOND, _PROBES_A_SECOND = 20, 4, 2


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is asked.

    Attributes:
        port, probes: of calls, and of probes.
        verb, body: of an honest call.
        most_mib: of memory, as the chart has it.
    """

    name: str
    pid: int
    port: int
    probes: int
    verb: str
    body: bytes
    most_mib: int


@dataclass
class Heard:
    """How long answers took, in milliseconds, and how many failed."""

    took: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def ask(self, call: Callable[[], object]) -> None:
        """Makes one call."""
        began = time.perf_counter()
        try:
            call()
        except (OSError, http.client.HTTPException) as error:
            self.failed.append(repr(error))
        else:
            self.took.append((time.perf_counter() - began) * 1e3)


def measure(options: Options) -> Sequence[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: a server does not start or ends, or there is no openssl.
    """
    seconds = options.seconds or (5.0 if options.quick else SECONDS)
    found: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="vgpu-") as name:
        base = Path(name)
        tls = base / "tls"
        tls.mkdir()
        make_certificate(tls / "tls.crt", tls / "tls.key")
        for start in (_extender, _webhook):
            with start(base, tls) as served:
                found += _beside(served, tls, seconds, None)
                for addresses in ADDRESSES:
                    found += _beside(served, tls, seconds, addresses)
    return found


@contextlib.contextmanager
def _extender(base: Path, tls: Path) -> Iterator[Served]:
    with (
        cluster_of(base, NODES, 0.6, 27) as (server, light),
        running_extender(server, base, NAMESPACE, tls) as found,
    ):
        pod = Shape([{CORE: 20, MEMORY: 8}]).pod("asked")
        pod["metadata"]["uid"] = "asked"
        body = msgspec.json.encode({"Pod": pod, "NodeNames": light.names})
        yield Served("extender", found.pid, found.port, found.probes, "filter", body, 1024)


@contextlib.contextmanager
def _webhook(base: Path, tls: Path) -> Iterator[Served]:
    with running_webhook(base, tls) as found:
        container = {"name": "c", "resources": {"limits": {CORE: "20"}}}
        request = {"uid": "7", "object": {"metadata": {}, "spec": {"containers": [container]}}}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = msgspec.json.encode(review | {"request": request})
        yield Served("webhook", found.pid, found.port, found.probes, "pods", body, 128)


def _beside(
    served: Served, tls: Path, seconds: float, addresses: int | None
) -> Iterator[Measurement]:
    case = "nobody else" if addresses is None else f"{RATE} a second, of {addresses} addresses"
    say(f"{served.name}, {case}: {seconds:g} s")
    context = ssl.create_default_context(cafile=str(tls / "tls.crt"))
    context.load_cert_chain(tls / "tls.crt", tls / "tls.key")
    (kept, new, probes), rate = _listen(served, context, seconds, addresses)
    bar = None if addresses is None else MOST_MS
    for what, heard in (("calls", kept), ("calls of newcomers", new), ("probes", probes)):
        if not heard.took:
            raise VgpuError(f"{served.name}, {case}: no {what} were answered: {heard.failed[:1]}")
        worst, failed = max(heard.took), len(heard.failed)
        note = f"{len(heard.took)} answered, {failed} not, worst {worst:.1f} ms"
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            most = bar if (what, name) == ("calls", "p99") else None
            value = quantile(heard.took, part)
            yield one(case, f"{what}, {name}", "ms", value, note, most=most, subject=served.name)
        yield one(case, f"{what}, not answered", "", failed, most=0, subject=served.name)
    if addresses is not None:
        yield one(case, "unfinished connections", "1/s", rate, subject=served.name)
    peak = memory(served.pid).peak_bytes / _MIB
    yield one(case, "peak of memory", "MiB", peak, most=served.most_mib, subject=served.name)


def _listen(
    served: Served, context: ssl.SSLContext, seconds: float, addresses: int | None
) -> tuple[list[Heard], float]:
    """Returns what a caller, newcomers and a probe hear, and how many of a crowd came a second."""
    kept = HttpSender("localhost", served.port, tls=context)

    def newcomer() -> None:
        sender = HttpSender("localhost", served.port, tls=context)
        with contextlib.closing(sender):
            sender(served.verb, served.body)

    def probe() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", served.probes, timeout=3)
        with contextlib.closing(connection):
            connection.request("GET", "/healthz")
            if connection.getresponse().status != http.HTTPStatus.OK:
                raise http.client.HTTPException("not well")

    calls: list[tuple[float, Callable[[], object]]] = [
        (_CALLS_A_SECOND, lambda: kept(served.verb, served.body)),
        (_NEW_A_SECOND, newcomer),
        (_PROBES_A_SECOND, probe),
    ]
    heard = [Heard() for _ in calls]
    end_s = time.monotonic() + seconds

    def go_on(rate: float, call: Callable[[], object], into: Heard) -> None:
        due_s = time.monotonic()
        while (now_s := time.monotonic()) < end_s:
            due_s = max(due_s + 1 / rate, now_s)
            into.ask(call)
            time.sleep(max(0.0, due_s - time.monotonic()))

    threads = [
        threading.Thread(target=go_on, args=(*each, into))
        for each, into in zip(calls, heard, strict=True)
    ]
    for thread in threads:
        thread.start()
    while not heard[0].took and threads[0].is_alive():
        time.sleep(0.01)  # its connection is there before the crowd is
    began_s = time.monotonic()
    with _crowd(served.port, addresses) as made:
        for thread in threads:
            thread.join()
        return heard, made() / (time.monotonic() - began_s)


@contextlib.contextmanager
def _crowd(port: int, addresses: int | None) -> Iterator[Callable[[], int]]:
    """Gives how many connections there were."""
    if addresses is None:
        yield lambda: 0
        return
    words = [sys.executable, "-m", "benchmarks.unfinished_calls", str(port), str(RATE)]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    with subprocess.Popen([*words, str(addresses)], env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        read = process.stdout
        counts = [0]

        def count() -> None:
            for line in read:
                counts.append(int(line))

        thread = threading.Thread(target=count)
        thread.start()
        try:
            yield lambda: counts[-1]
        finally:
            process.kill()
            thread.join()


FIGURE = Figure(
    name="crowd",
    summary="how extender and webhook answer next to a crowd that finishes no call",
    label="simulated API server and nodes, host time",
    measure=measure,
    rounds=1,
)
