"""Clients that send or read slowly, on a clock that the test moves."""

import collections
import io

import pytest

from deviceplugin.serving.timed_streams import HeadTooLong, Pace, TimedReader, TimedWriter

PACE = Pace(grace_s=2.0, bytes_s=100, most_s=10.0)


class Peer:
    """A connection to a client that takes its time; nothing of it waits."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.each_s = 0.0
        self.bytes_each = 1

    def clock(self) -> float:
        return self.now_s

    def settimeout(self, seconds: float) -> None:
        self.waits_s = seconds

    def _pass(self) -> None:
        if self.each_s >= self.waits_s:
            self.now_s += self.waits_s
            raise TimeoutError
        self.now_s += self.each_s

    def recv_into(self, buffer: memoryview) -> int:
        self._pass()
        count = min(self.bytes_each, len(buffer))
        buffer[:count] = b"x" * count
        return count

    def send(self, data: memoryview) -> int:
        self._pass()
        return min(self.bytes_each, len(data))


@pytest.fixture
def peer() -> Peer:
    return Peer()


def read_until_dropped(reader: TimedReader) -> None:
    with pytest.raises(TimeoutError):
        collections.deque(iter(lambda: reader.read(64 << 10), b""), maxlen=0)


@pytest.mark.parametrize("each_s", [0.01, 0.9, 4.9, 100.0])
def test_a_head_has_its_time_whenever_its_bytes_come(peer: Peer, each_s: float) -> None:
    begun: list[float] = []
    reader = TimedReader(peer, peer.clock, lambda: begun.append(peer.now_s))  # type: ignore[arg-type]
    reader.expect_head(120.0, 5.0, 1 << 10)
    peer.each_s = each_s
    peer.bytes_each = 1
    if each_s == 100.0:  # the time between two calls is another
        assert reader.read(1) == b"x"
        began_s = peer.now_s
        peer.each_s = 1.0
    else:
        began_s = peer.now_s + each_s
    read_until_dropped(reader)

    assert peer.now_s == pytest.approx(began_s + 5.0)
    assert begun == [began_s]


@pytest.mark.parametrize("bytes_each", [1, 700, 8 << 10])
def test_a_head_has_an_end_and_the_body_behind_it_is_not_counted(
    peer: Peer, bytes_each: int
) -> None:
    reader, taken = TimedReader(peer, peer.clock), 0  # type: ignore[arg-type]
    peer.bytes_each = bytes_each
    reader.expect_head(120.0, 5.0, 20_000)

    def read() -> None:
        nonlocal taken
        while taken < 100_000:
            taken += len(reader.read(8 << 10) or b"")

    with pytest.raises(HeadTooLong):
        read()

    assert 20_000 - bytes_each <= taken <= 20_000 + bytes_each
    reader.expect_body(PACE)
    assert all(reader.read(8 << 10) for _ in range(10))


@pytest.mark.parametrize(
    ("bytes_each", "each_s", "lasts_s"),
    [(1, 100.0, 2.0), (1, 0.5, 2.04), (49, 0.5, 90.0), (60, 0.5, 10.0), (10_000, 1.0, 10.0)],
)
def test_a_body_needs_a_rate_and_ends_some_time(
    peer: Peer, bytes_each: int, each_s: float, lasts_s: float
) -> None:
    reader = TimedReader(peer, peer.clock)  # type: ignore[arg-type]
    peer.bytes_each, peer.each_s = bytes_each, each_s
    reader.expect_body(PACE)
    read_until_dropped(reader)

    assert peer.now_s - 50.0 <= min(lasts_s, PACE.most_s) + 0.001


@pytest.mark.parametrize(("bytes_each", "each_s"), [(1, 100.0), (1, 0.5), (10_000, 1.0)])
def test_an_answer_that_is_read_slowly_ends(peer: Peer, bytes_each: int, each_s: float) -> None:
    writer = TimedWriter(peer, peer.clock, PACE)  # type: ignore[arg-type]
    peer.bytes_each, peer.each_s = bytes_each, each_s
    peer.now_s += 1000.0  # as it took so long to be found out
    began_s = peer.now_s
    with pytest.raises(TimeoutError):
        io.BufferedWriter(writer).write(b"x" * (1 << 20))

    assert peer.now_s - began_s <= PACE.most_s
    assert peer.now_s - began_s <= PACE.grace_s + 1 or bytes_each > 100
