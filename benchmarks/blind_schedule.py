"""What a light program can keep next to a heavy one if nobody knows when its steps begin and end.

The GPU serves one process at a time, and a change costs. The heavy program has its part in bursts
of one length, and the light one has what is between them. Short bursts cost many changes, and after
a long one the light program has waited long. A step launches its work evenly over the time that it
takes alone and then waits for the last of it; it begins at any moment of a round of bursts. Whoever
knew the steps could begin each burst with one, and would lose next to nothing.
"""

_KERNELS = 40
_PHASES = 40
_ROUNDS_NS = range(500_000, 8_000_000, 100_000)


def _step_ns(
    solo_ns: float, kernel_ns: float, round_ns: float, taken_ns: float, begun_ns: float
) -> float:
    """Returns how long a step takes that begins so far into a round.

    Args:
        solo_ns: alone.
        kernel_ns: each of `_KERNELS` takes of the GPU.
        round_ns: of a burst and what is between two.
        taken_ns: of each round: the burst and both changes, at its beginning.
        begun_ns: within a round.
    """
    gap_ns = (solo_ns - kernel_ns) / _KERNELS
    done_ns = begun_ns
    for number in range(1, _KERNELS + 1):
        done_ns = max(done_ns, begun_ns + number * gap_ns)
        left_ns = kernel_ns
        while left_ns > 0:
            of_round_ns = done_ns % round_ns
            done_ns += max(0.0, taken_ns - of_round_ns)
            part_ns = min(left_ns, round_ns - max(of_round_ns, taken_ns))
            done_ns += part_ns
            left_ns -= part_ns
    return done_ns - begun_ns


def most_kept(solo_ns: float, gpu_ns: float, heavy_part: float, change_ns: float) -> float:
    """Returns the most that a light program keeps of its rate alone, over all lengths of bursts.

    Args:
        solo_ns: what a step takes alone.
        gpu_ns: and how long the GPU is at it.
        heavy_part: of the GPU, which the other program has.
        change_ns: what a change of process takes.
    """
    best = 0.0
    for round_ns in _ROUNDS_NS:
        taken_ns = heavy_part * round_ns + 2 * change_ns
        if round_ns - taken_ns < gpu_ns / solo_ns * round_ns / 2:
            continue  # it would have half of the GPU that it needs alone
        steps_ns = [
            _step_ns(solo_ns, gpu_ns / _KERNELS, round_ns, taken_ns, round_ns * phase / _PHASES)
            for phase in range(_PHASES)
        ]
        best = max(best, solo_ns * _PHASES / sum(steps_ns))
    return best
