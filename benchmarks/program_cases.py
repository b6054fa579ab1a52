"""The cases of the figure `programs`: which programs run together, with which shares."""

from dataclasses import dataclass
from enum import Enum

from .program_plans import Loop, Program, Queue, Training
from .repeats import US


class Goal(Enum):
    """What is asked of a case."""

    KEPT = "each keeps what it does bare"
    SHARE = "the cap binds and is kept"
    LIGHT = "the first is served soon, the second has the rest"


@dataclass(frozen=True, slots=True)
class Case:
    """Programs that run together, and the share of each in percent."""

    programs: tuple[Program, ...]
    core_percents: tuple[int, ...]
    goal: Goal

    @property
    def title(self) -> str:
        shares = "/".join(map(str, self.core_percents))
        return f"{' + '.join(map(str, self.programs))}, {shares} %"

    def title_of(self, index: int) -> str:
        """Returns the title of one program of the case."""
        if len(self.programs) == 1:
            return self.title
        return f"{self.title}: {index + 1}, {self.programs[index]}"


TRAINING = Training(6 * US)
ALONE: tuple[Program, ...] = (
    *("decode", "gpt", "conv", "generate"),
    *(Loop(8), Loop(64), Loop(500)),
    TRAINING,
)
CASES = (
    *(Case((program,), (90,), Goal.KEPT) for program in ALONE),
    Case(("gpt",), (40,), Goal.SHARE),
    Case(("conv",), (40,), Goal.SHARE),
    Case(("gpt", "decode"), (50, 50), Goal.KEPT),
    Case((Loop(64), Loop(64)), (50, 50), Goal.KEPT),
    Case(("decode", Queue(200 * US)), (30, 70), Goal.LIGHT),
)
