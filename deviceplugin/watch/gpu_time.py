"""Who takes more of a GPU's time than its share, by NVML's figures.

A container's own account of its time lies in its `usage`, where it can write whatever it likes.
NVML samples how busy each process kept a GPU, also one without the shim. For each container and GPU
there is a debt of GPU time. It grows by what was seen while turns were taken: then the others do
not run meanwhile. It falls by what is due: the cap of a strict share, and for an elastic one what
its arbiter gave it, if that is more.

Who owes more than `MOST_OWED_S` gets no turn until the debt has gone. For an honest program this
changes nothing: its own shim makes it wait as long for a kernel that outlasted its share. One that
asks for the GPU all the while has forged its books.

NVML keeps the newest sample alone, a sixth of a second to a second long. One look a second tells
which GPU deserves a suspicion. That one is then looked at so often that no sample is missed, and
only those count. Where the samples of one moment add up to more than the GPU, they are no shares of
it, and do not count.

Pure but for what it is given; used by the watch's thread.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from libvgpu.arbitration import ArbiterCounters
from libvgpu.limits import ComputeMode, DeviceLimit
from libvgpu.sharing_mode import Mode

#: How long to look closely at a GPU after the last sample above a share.
SUSPECT_S = 3.0
LOOK_CLOSELY_S = 0.15
#: GPU time that one may be ahead: more than a shim lets its program catch up after a pause.
MOST_OWED_S = 0.25
#: How far measured shares of honest programs are off, and one step of NVML's percentages.
_TOLERANCE, _STEP = 1.03, 0.005
_LEAST_SAMPLE_S, _MOST_SAMPLE_S, _SAMPLES_KEPT = 0.1, 1.1, 8
_MOST_TOGETHER_PERCENT = 105
#: Whoever comes to owe `MOST_OWED_S` within this took 2.5 points and the tolerance too much.
_GROSS_WITHIN_S = 10.0
_MOST_OF_THE_TIME, _WHOLE_TIME = 0.5, 0.9

Key = tuple[str, str]  # allocation, GPU


@dataclass(frozen=True, slots=True)
class TimeSample:
    """How busy a process kept a GPU up to a moment.

    Attributes:
        at_us: when the sample ended, on the wall clock.
        percent: of the time, 0 to 100.
    """

    pid: int
    at_us: int
    percent: int


@dataclass(frozen=True, slots=True)
class Due:
    """What a slice may have of a GPU.

    Attributes:
        part: of its time.
        counts: whether what NVML sees counts: while turns are taken nobody else runs meanwhile.
    """

    part: float
    counts: bool


def due_part(
    limit: DeviceLimit, directory: Path, before: ArbiterCounters | None, now: ArbiterCounters | None
) -> Due | None:
    """Returns what was due to a slice between two looks, None where nothing bounds its time.

    Nothing is known of clients of MPS: their kernels run at the same time.
    """
    if limit.is_mps_client or limit.is_whole or limit.compute_mode is ComputeMode.OFF:
        return None
    part = limit.core_percent / 100
    if before is None or now is None or directory not in before.tenants.keys() & now.tenants.keys():
        return Due(part, False)
    passed_ns = sum(now.mode_ns.values()) - sum(before.mode_ns.values())
    turns_ns = now.mode_ns[Mode.WINDOWS] - before.mode_ns[Mode.WINDOWS]
    if limit.compute_mode is ComputeMode.STRICT:
        return Due(part, turns_ns > _MOST_OF_THE_TIME * passed_ns)
    given_ns = now.tenants[directory].occupancy_ns - before.tenants[directory].occupancy_ns
    given_part = given_ns / passed_ns if passed_ns > 0 else 0
    return Due(max(part, given_part), turns_ns > _WHOLE_TIME * passed_ns)


@dataclass(slots=True)
class _Seen:
    """What was seen of one GPU: its last sample, and how far its samples are apart."""

    noted_s: float
    at_us: int = 0
    suspect_until_s: float = 0
    is_close: bool = False
    apart_s: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES_KEPT))

    def advance(self, at_us: int) -> float:
        """Returns how long the sample that ended then was, 0 where that is not known."""
        if at_us <= self.at_us:
            return 0
        passed_s = (at_us - self.at_us) / 1e6
        if self.is_close and _LEAST_SAMPLE_S <= passed_s <= _MOST_SAMPLE_S:
            self.apart_s.append(passed_s)
        self.at_us = at_us
        return min(passed_s, *self.apart_s) if self.is_close and self.apart_s else 0


@dataclass(slots=True)
class TimeDebts:
    """What containers owe of each GPU.

    Attributes:
        owed_s: GPU time, of those that owe any.
        withheld_s: who is withheld, and the most it owed meanwhile.
        gross: which of these came to owe so much so fast that no error of measurement explains it.
        busy: of whom the last sample of its GPU tells anything.
    """

    owed_s: dict[Key, float] = field(default_factory=dict)
    withheld_s: dict[Key, float] = field(default_factory=dict)
    gross: set[Key] = field(default_factory=set)
    busy: set[Key] = field(default_factory=set)
    _owing_since_s: dict[Key, float] = field(default_factory=dict)
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def note(
        self,
        gpu: str,
        samples: Sequence[TimeSample],
        holders: Mapping[int, str],
        due: Mapping[str, Due | None],
        now_s: float,
    ) -> None:
        """Takes the samples since the last look.

        Args:
            gpu: whose they are.
            samples: those since `seen_us`; none where all were idle, or there is no newer one.
            holders: the allocation of each process that belongs to one.
            due: see `due_part`, by allocation, of all that have a slice of the GPU.
            now_s: on a clock that never goes back.
        """
        seen = self._seen.setdefault(gpu, _Seen(now_s))
        passed_s, seen.noted_s = now_s - seen.noted_s, now_s
        sample_s = seen.advance(max((each.at_us for each in samples), default=0))
        busy = dict.fromkeys(due, 0.0)
        if sum(each.percent for each in samples) <= _MOST_TOGETHER_PERCENT:
            for each in samples:
                if holders.get(each.pid) in busy:
                    busy[holders[each.pid]] += each.percent / 100
        for allocation_id, share in due.items():
            key, part = (allocation_id, gpu), busy[allocation_id]
            if samples:
                (self.busy.add if part else self.busy.discard)(key)
            most = 1 if share is None else share.part * _TOLERANCE + _STEP
            counted = part if share and share.counts else 0
            owed_s = self.owed_s.pop(key, 0) - most * passed_s + counted * sample_s
            if owed_s > 0 or counted > most:
                seen.suspect_until_s = now_s + SUSPECT_S
            self._owe(key, owed_s, now_s)
        seen.is_close = self.is_suspect(gpu, now_s)

    def _owe(self, key: Key, owed_s: float, now_s: float) -> None:
        if owed_s <= 0:
            for known in (self._owing_since_s, self.withheld_s):
                known.pop(key, None)
            self.gross.discard(key)
            return
        self.owed_s[key] = owed_s
        since_s = self._owing_since_s.setdefault(key, now_s)
        if owed_s > MOST_OWED_S or key in self.withheld_s:
            if key not in self.withheld_s and now_s - since_s < _GROSS_WITHIN_S:
                self.gross.add(key)
            self.withheld_s[key] = max(owed_s, self.withheld_s.get(key, 0))

    def seen_us(self, gpu: str) -> int:
        """Returns when the last sample of a GPU ended; 0 where there was none."""
        return self._seen[gpu].at_us if gpu in self._seen else 0

    def is_suspect(self, gpu: str, now_s: float) -> bool:
        """Returns whether a GPU is to be looked at closely."""
        return gpu in self._seen and now_s < self._seen[gpu].suspect_until_s

    def owes_most(self, key: Key) -> bool:
        """Returns whether one that is withheld, and idle by now, still owes most of what it did."""
        return key not in self.busy and self.owed_s[key] > self.withheld_s[key] / 2

    def keep(self, gpus: Collection[str], keys: Collection[Key]) -> None:
        """Forgets GPUs that nobody shares, and slices that have ended."""
        for gpu in self._seen.keys() - set(gpus):
            del self._seen[gpu]
        for known in (self.owed_s, self.withheld_s, self._owing_since_s):
            for key in known.keys() - set(keys):
                del known[key]
        for named in (self.busy, self.gross):
            named.intersection_update(keys)
