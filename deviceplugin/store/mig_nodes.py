"""Which device nodes MIG devices have, by the node's driver; read where an answer names them."""

from collections.abc import Iterable
from pathlib import Path

from deviceplugin.cdi.mig_minors import MIG_MINORS, MigMinors, parse_mig_minors
from deviceplugin.model.device_forms import DeviceForms
from deviceplugin.model.gpus import Gpu

_FILE = Path(MIG_MINORS)


def minors_for(gpus: Iterable[Gpu], forms: DeviceForms, file: Path = _FILE) -> MigMinors:
    """Returns the minors of capabilities; none where the answer needs none, or there are none."""
    if not forms.pass_device_specs or not any(gpu.mig is not None for gpu in gpus):
        return {}
    try:
        return parse_mig_minors(file.read_text())
    except (OSError, UnicodeDecodeError):
        return {}
