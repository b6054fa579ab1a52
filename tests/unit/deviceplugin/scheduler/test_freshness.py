"""Until when an old state is still answered from."""

from deviceplugin.scheduler.cluster.freshness import Freshness


class World:
    def __init__(self) -> None:
        self.now_s, self.is_current, self.problem = 100.0, False, ""
        self.freshness = Freshness(
            lambda: self.is_current, lambda: self.problem, 60.0, lambda: self.now_s
        )


def test_nothing_is_answered_before_the_first_list() -> None:
    world = World()
    world.problem = "the API server answers 403: no"

    assert world.freshness.age_s is None
    assert world.freshness.obstacle == (
        "nodes and pods of the cluster are not known yet: the API server answers 403: no"
    )


def test_an_old_state_is_used_until_the_limit() -> None:
    world = World()
    world.is_current = True
    assert world.freshness.obstacle == ""

    world.is_current, world.problem = False, "no route"
    world.now_s += 60
    assert world.freshness.obstacle == ""
    world.now_s += 1
    assert world.freshness.obstacle == (
        "what is known of nodes and pods is 61 s old, and is used for 60 s at most: no route"
    )
    world.is_current = True
    assert (world.freshness.obstacle, world.freshness.age_s) == ("", 0.0)
