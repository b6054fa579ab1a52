"""Which form of answer the node's runtime understands, for ``deviceListStrategy: auto``. Pure.

In order: CDI, where the runtime surely does it, since it needs neither a runtime class nor a
variable that any pod can set; NVIDIA's runtime where it is the default one; NVIDIA's runtime behind
a runtime class. Where nothing is known both forms are given: a runtime that knows one of them does
not mind the other, and our specs keep NVIDIA's runtime from doing a GPU twice. CDI counts only
where there will be a spec, since a runtime refuses a name that it does not find.
"""

import re
from dataclasses import dataclass, field

from deviceplugin.model.device_forms import ListStrategy

CONTAINERD, CRIO, DOCKER = "containerd", "cri-o", "docker"
#: Of containerd: the first that knows CDI at all, and the first where it is on without being asked.
_KNOWS_CDI, _CDI_IS_ON = (1, 7), (2, 0)
#: Of the kubelet: the first that passes CDI names of plugins on without a feature gate.
_PASSES_NAMES = (1, 29)
DEFAULT_SPEC_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
CDI_LISTS = frozenset({ListStrategy.CDI_CRI, ListStrategy.CDI_ANNOTATIONS})
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})")


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """What is known of the node's container runtime.

    Attributes:
        name: one of the three above; empty where nobody tells.
        version: major and minor; None where nobody tells.
        source: the file that the rest is from; empty where none could be read.
        cdi_setting: what the file says of CDI; None where it says nothing.
        spec_directories: where the runtime looks for CDI specs.
        nvidia_handlers: runtime handlers that are NVIDIA's runtime.
        default_handler: the runtime handler of pods without a runtime class.
        takes_mounts: NVIDIA's runtime reads mounts of /dev/null.
        takes_variable: NVIDIA's runtime believes the variable of an unprivileged container.
        kubelet_version: major and minor; None where nobody tells.
    """

    name: str = ""
    version: tuple[int, int] | None = None
    source: str = ""
    cdi_setting: bool | None = None
    spec_directories: tuple[str, ...] = DEFAULT_SPEC_DIRECTORIES
    nvidia_handlers: tuple[str, ...] = ()
    default_handler: str = ""
    takes_mounts: bool = False
    takes_variable: bool = True
    kubelet_version: tuple[int, int] | None = None

    @property
    def label(self) -> str:
        """The runtime's name with its version, for sentences."""
        version = ".".join(map(str, self.version)) if self.version else ""
        return " ".join(filter(None, (self.name or "the container runtime", version)))

    @property
    def does_cdi(self) -> bool | None:
        """Whether it injects devices by CDI names; None where that is not known."""
        if self.name == CRIO:
            return True
        if self.name == DOCKER:
            return False  # the kubelet's way to it, cri-dockerd, passes no names on
        if self.name != CONTAINERD:
            return None
        if self.version is not None and self.version < _KNOWS_CDI:
            return False
        if self.cdi_setting is not None:
            return self.cdi_setting
        if self.version is None:
            return None
        return self.version >= _CDI_IS_ON


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and why: a sentence's second half.

    Attributes:
        needs_class: pods must name one of these runtime classes' handlers.
    """

    lists: tuple[ListStrategy, ...]
    because: str
    needs_class: tuple[str, ...] = field(default=())


def parse_version(text: str) -> tuple[int, int] | None:
    """Returns major and minor of a version such as ``v1.33.2+k3s1``, None where it has none."""
    match = _VERSION.match(text)
    return (int(match[1]), int(match[2])) if match else None


def choose(facts: RuntimeFacts, spec_directory: str, obstacle: str) -> Choice:
    """Returns the form of answer for a node.

    Args:
        spec_directory: where the agent writes its CDI specs.
        obstacle: why there would be none; empty where there would.
    """
    if not obstacle and _normal(spec_directory) not in map(_normal, facts.spec_directories):
        read = ", ".join(facts.spec_directories) or "no directory"
        obstacle = f"{facts.label} reads CDI specs in {read} and not in {spec_directory}"
    if facts.does_cdi and not obstacle:
        return _by_cdi(facts)
    passed_over = ""
    if facts.does_cdi is False:
        passed_over = f"{facts.label} does not do CDI{_from(facts)}; "
    elif obstacle:
        passed_over = f"{obstacle}; "
    if facts.default_handler and facts.default_handler in facts.nvidia_handlers:
        lists, how = _by_nvidia(facts)
        return Choice(
            lists,
            f"{passed_over}its default runtime {facts.default_handler} is NVIDIA's, {how}",
        )
    if facts.nvidia_handlers:
        lists, how = _by_nvidia(facts)
        return Choice(
            lists,
            f"{passed_over}NVIDIA's runtime is there as {', '.join(facts.nvidia_handlers)}, {how}; "
            "pods need a runtimeClassName of it, or they start without a GPU",
            facts.nvidia_handlers,
        )
    if facts.does_cdi is None:
        unknown = f"nothing is known of what {facts.label} injects"
        if obstacle:  # a name that no spec has would keep a container from starting
            return Choice((ListStrategy.ENVVAR,), f"{passed_over}{unknown}")
        return Choice((ListStrategy.ENVVAR, ListStrategy.CDI_CRI), f"{unknown}, so both are given")
    return Choice(
        (ListStrategy.ENVVAR,),
        f"{passed_over}no runtime of NVIDIA's is named{_from(facts)}, so containers may start "
        "without a GPU; turn CDI on, or install NVIDIA's container toolkit",
    )


def cannot_inject(lists: tuple[ListStrategy, ...], facts: RuntimeFacts) -> str:
    """Returns why containers with these forms would start without their GPU; empty: not known to.

    Only what is certain counts: a runtime that drops CDI names says nothing and starts.
    """
    if facts.does_cdi is False and set(lists) <= CDI_LISTS:
        # NVIDIA's runtime reads annotations itself, under a prefix that the config can name.
        if facts.nvidia_handlers and ListStrategy.CDI_ANNOTATIONS in lists:
            return ""
        return (
            f"flags.plugin.deviceListStrategy is {' and '.join(lists)}, and {facts.label} on this "
            f"node drops CDI names{_from(facts)}, so the container would start without its GPU"
        )
    return ""


def _by_cdi(facts: RuntimeFacts) -> Choice:
    if facts.kubelet_version is not None and facts.kubelet_version < _PASSES_NAMES:
        return Choice(
            (ListStrategy.CDI_ANNOTATIONS,),
            f"{facts.label} does CDI{_from(facts)}, and kubelet "
            f"{'.'.join(map(str, facts.kubelet_version))} passes names by annotations only",
        )
    return Choice((ListStrategy.CDI_CRI,), f"{facts.label} does CDI{_from(facts)}")


def _by_nvidia(facts: RuntimeFacts) -> tuple[tuple[ListStrategy, ...], str]:
    if facts.takes_mounts and not facts.takes_variable:
        return (ListStrategy.VOLUME_MOUNTS,), "set up to read mounts and not to trust a variable"
    return (ListStrategy.ENVVAR,), "which reads NVIDIA_VISIBLE_DEVICES"


def _from(facts: RuntimeFacts) -> str:
    return f" ({facts.source})" if facts.source else ""


def _normal(directory: str) -> str:
    # One and the same on every node: /var/run is a link to /run.
    plain = directory.rstrip("/")
    return plain.removeprefix("/var") if plain.startswith("/var/run/") else plain
