"""What the watch tells: each finding once, none drowned by another's flood."""

from deviceplugin.watch.report import MOST_SHOWN, PAUSE_S, Ration, SeenProcess, WatchFindings

GPU = "GPU-a"


def seen(pid: int, allocation_id: str = "", *, has_slice: bool = False) -> SeenProcess:
    return SeenProcess(GPU, pid, 1, "x", 100, allocation_id, has_slice=has_slice)


def test_a_finding_is_told_once_until_it_is_over() -> None:
    ration = Ration()

    assert ration.may_tell("f", "a", 0.0)
    assert not ration.may_tell("f", "a", 100.0)
    ration.keep(set(), 100.0)
    assert ration.may_tell("f", "a", 101.0)


def test_a_flood_waits_and_holds_up_nothing_of_others() -> None:
    ration = Ration()

    assert [ration.may_tell(n, "a", n / 100) for n in range(50)] == [True] + [False] * 49
    assert ration.may_tell("other", "b", 0.5)
    assert ration.may_tell(7, "a", PAUSE_S)  # it still stands
    assert not ration.may_tell(8, "a", PAUSE_S)


def test_what_is_over_is_forgotten() -> None:
    ration = Ration()
    for n in range(100):
        ration.may_tell(n, str(n), 0.0)

    ration.keep(set(), PAUSE_S)

    assert ration == Ration()


def test_what_processes_without_a_slice_hold_counts_on_their_gpu() -> None:
    findings = WatchFindings(
        foreign=(seen(1),),
        bypassing=(seen(2, "a", has_slice=True), seen(3, "a")),
    )

    assert findings.outside_bytes(GPU) == 200
    assert findings.outside_bytes("GPU-b") == 0
    by_gpu, by_allocation = findings.counts()
    assert (by_gpu[GPU], by_allocation["a", GPU]) == (1, 2)


def test_a_page_is_bounded() -> None:
    shown = WatchFindings(foreign=tuple(map(seen, range(1000)))).shown()

    assert shown.foreign_count == 1000
    assert len(shown.foreign) == MOST_SHOWN
