"""``python -m deviceplugin.webhook``: the mutating webhook's command line."""

import logging
import sys
import threading
from pathlib import Path

import click
import msgspec

from deviceplugin import log
from deviceplugin.log import event
from deviceplugin.serving.certificate import Certificate, check_probes
from deviceplugin.serving.listeners import tcp_listener
from deviceplugin.stopping import stop_on_signals
from libvgpu.decoding import json_decoder
from libvgpu.errors import VgpuError

from .pod_patch import PodRules
from .server import webhook_server


@click.command(help="Adds to pods that ask for GPUs what they need on nodes with the agent.")
@click.option(
    "--rules",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON file that says what is added to whom.",
)
@click.option(
    "--tls-dir",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory with tls.crt and tls.key.",
)
@click.option("--address", default=":8443", show_default=True, help="HOST:PORT.")
@click.option(
    "--probe-address",
    default="",
    help="HOST:PORT of the probe alone, for anybody and without TLS.  [default: none]",
)
@click.option(
    "--client-ca",
    type=click.Path(path_type=Path, dir_okay=False),
    help="PEM of the authority that must have signed the API server's certificate; needs "
    "--probe-address.",
)
def main(
    rules: Path, tls_dir: Path, address: str, probe_address: str, client_ca: Path | None
) -> None:
    """Serves until SIGTERM or SIGINT."""
    log.set_up()
    stop = stop_on_signals()
    try:
        known = json_decoder(PodRules).decode(rules.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise click.UsageError(f"--rules {rules} cannot be read: {error}") from error
    try:
        certificate = Certificate(tls_dir, client_ca)
    except OSError as error:
        and_ca = f", or --client-ca {client_ca} has none" if client_ca else ""
        raise click.UsageError(
            f"--tls-dir {tls_dir} has no certificate{and_ca}: {error}"
        ) from error
    try:
        check_probes(client_ca, probe_address)
        servers = [webhook_server(tcp_listener(address, "--address"), certificate, known)]
        if probe_address:
            servers.append(servers[0].pages_on(tcp_listener(probe_address, "--probe-address")))
    except VgpuError as error:
        click.echo(f"error: {error.message}", err=True)
        sys.exit(1)
    for server in servers:
        threading.Thread(target=server.serve_forever, name="webhook", daemon=True).start()
    ports = [server.server_address[1] for server in servers]
    event(logging.INFO, "webhook started", address=ports[0], probes=ports[-1])
    stop.wait()
    for server in servers:
        server.shutdown()
        server.server_close()
    event(logging.INFO, "webhook stopped")


if __name__ == "__main__":
    main()
