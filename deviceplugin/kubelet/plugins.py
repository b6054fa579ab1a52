"""The plugin servers of all resources, as many as the config wants now."""

from pathlib import Path

from deviceplugin.core.offers import ResourceOffer, device_offer, fraction_offer
from deviceplugin.core.service import SliceService
from deviceplugin.http.metrics import AllocateDurations
from deviceplugin.model.units import Half

from .plugin_server import PluginServer


class Plugins:
    """The plugin servers of all resources; those that have no device now are not wanted."""

    def __init__(
        self, service: SliceService, directory: Path, durations: AllocateDurations
    ) -> None:
        """Serves nothing yet.

        Args:
            directory: the kubelet's device-plugins directory.
        """
        self.directory = directory
        self._service, self._durations = service, durations
        self._servers: dict[str, PluginServer] = {}

    def wanted(self) -> list[PluginServer]:
        """Returns the servers of the resources that have a device now."""
        layout = self._service.layout
        offers = [
            fraction_offer(self._service, family, half)
            for family in layout.families()
            for half in Half
        ]
        offers += (device_offer(self._service, each.name) for each in layout.resources)
        return [self._server(offer) for offer in offers]

    def _server(self, offer: ResourceOffer) -> PluginServer:
        server = self._servers.get(offer.name)
        if server is None:
            server = PluginServer(offer, self.directory, self._durations.observe)
            self._servers[offer.name] = server
            self._durations.prepare(server.resource)
        return server
