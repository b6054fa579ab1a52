"""Which GPUs count as healthy: pure verdicts over what NVML said when."""

from deviceplugin.inventory.health import XID_COUNTS_S, Verdicts

GPU, OTHER = "GPU-a", "GPU-b"
DOUBLE_BIT_ERROR = 48


def test_a_critical_error_counts_for_a_while_after_the_last_one() -> None:
    verdicts = Verdicts()
    verdicts.note_xid(GPU, DOUBLE_BIT_ERROR, 100)
    verdicts.note_xid(GPU, DOUBLE_BIT_ERROR + 1, 110)

    assert verdicts.unhealthy(110 + XID_COUNTS_S - 0.1) == {GPU: "XID 49 was reported"}
    assert verdicts.unhealthy(110 + XID_COUNTS_S) == {}


def test_a_gpu_that_went_and_came_back_was_reset() -> None:
    verdicts = Verdicts()
    verdicts.note_xid(GPU, 79, 0)

    verdicts.note_answer(GPU, "")
    assert verdicts.unhealthy(1) == {GPU: "XID 79 was reported"}
    verdicts.note_answer(GPU, "NVML says: GPU is lost")
    verdicts.note_answer(GPU, "")

    assert verdicts.unhealthy(1) == {}


def test_what_nvml_says_now_is_told_before_an_older_error() -> None:
    verdicts = Verdicts()
    verdicts.note_xid(GPU, 79, 0)
    verdicts.note_answer(GPU, "NVML says: GPU is lost")

    assert verdicts.unhealthy(1) == {GPU: "NVML says: GPU is lost"}
