"""``python -m deviceplugin.webhook``: the mutating webhook's command line."""

import logging
import sys
import threading
from pathlib import Path

import click
import msgspec

from deviceplugin import log
from deviceplugin.log import event
from deviceplugin.serving.certificate import Certificate
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
def main(rules: Path, tls_dir: Path, address: str) -> None:
    """Serves until SIGTERM or SIGINT."""
    log.set_up()
    stop = stop_on_signals()
    try:
        known = json_decoder(PodRules).decode(rules.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise click.UsageError(f"--rules {rules} cannot be read: {error}") from error
    try:
        certificate = Certificate(tls_dir)
    except OSError as error:
        raise click.UsageError(f"--tls-dir {tls_dir} has no certificate: {error}") from error
    try:
        server = webhook_server(tcp_listener(address, "--address"), certificate, known)
    except VgpuError as error:
        click.echo(f"error: {error.message}", err=True)
        sys.exit(1)
    thread = threading.Thread(target=server.serve_forever, name="webhook", daemon=True)
    thread.start()
    event(logging.INFO, "webhook started", address=server.server_address[1])
    stop.wait()
    server.shutdown()
    server.server_close()
    event(logging.INFO, "webhook stopped")


if __name__ == "__main__":
    main()
