"""What the config says of the labels of the node: ``flags.gfd``, two more flags, and ``labels``.

Pure. ``flags.gfd`` has the keys of NVIDIA's GPU Feature Discovery, ``labels`` is ours.
"""

from deviceplugin.model.label_settings import LabelSettings, LabelTarget
from libvgpu.errors import UsageError
from libvgpu.places import Places

from . import schema
from .durations import parse_duration_s

#: Of ``labels.writeTo``: what else the config says decides.
AUTO = "auto"


def label_settings(file: schema.ConfigFile, places: Places) -> LabelSettings:
    """Returns how the node is labelled.

    Raises:
        ConfigError: a value that is not allowed.
    """
    flags = file.flags or schema.Flags()
    gfd = flags.gfd
    name = "flags.gfd.sleepInterval"
    try:
        interval_s = parse_duration_s(gfd.sleep_interval, name)
    except UsageError as error:
        raise places.error(f"$.{name}", error.message) from None
    write_to = file.labels.write_to
    places.one_of("$.labels.writeTo", write_to, (AUTO, *LabelTarget))
    by_api = LabelTarget.NODE_FEATURE if flags.use_node_feature_api else LabelTarget.FILE
    return LabelSettings(
        target=by_api if write_to == AUTO else LabelTarget(write_to),
        is_named=write_to != AUTO or flags.use_node_feature_api,
        output_file=gfd.output_file,
        machine_type_file=gfd.machine_type_file,
        interval_s=interval_s,
        oneshot=gfd.oneshot,
        timestamp=not gfd.no_timestamp,
        mig_strategy=flags.mig_strategy,
    )
