"""Random lives in which the agent is killed again and again."""

from typing import Protocol

from support.world.histories import CORE, MEMORY, PAUSES_S, History, Life, Node

#: More changes than an admission makes: where a step makes fewer, it is killed after the step.
_MOST_POINTS = 40
_START_POINTS = 12


class KillableNode(Node, Protocol):
    """A node whose agent can be killed at a change of its files.

    Attributes:
        hides_record: the agent cannot read the kubelet's checkpoint, where the node can do so.
    """

    hides_record: bool

    def arm(self, kill_at: int) -> None:
        """Has it killed before its next change but so many."""

    def kill(self) -> bool:
        """Kills it now, if it lives; returns whether it did."""


class UnderKills(History):
    """A life in which the agent is killed in every second step, or right after it.

    Attributes:
        kills: how often it was.
        in_midst: how often of these between two changes of its files.
    """

    def __init__(self, node: KillableNode, seed: int, life: Life) -> None:
        super().__init__(node, seed, life)
        self.killable = node
        self.kills = self.steps = self.in_midst = 0

    def step(self, kind: str) -> None:
        self.steps += 1
        self.may_be_cut_off = self.steps % 2 == 0
        if not self.may_be_cut_off:
            super().step(kind)
            return
        self.kills += 1
        self.killable.arm(self.chance.randrange(_MOST_POINTS))
        super().step(kind)
        self.node.pass_time(self.chance.choice(PAUSES_S))
        self.in_midst += not self.killable.kill()
        if self.chance.random() < 0.2:
            self.killable.arm(self.chance.randrange(_START_POINTS))
        # An agent has two records: its own, and the kubelet's, which may be lost as well.
        self.killable.hides_record = self.chance.random() < 0.3
        self.node.start_agent()
        self.killable.hides_record = False
        self.node.wait_registered([CORE, MEMORY])
