"""What the agent does to stay small while containers come and go."""

import gc

import pytest

from deviceplugin.footprint import Tidying


def test_it_tidies_up_once_after_containers_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    ended = 5
    tidying = Tidying(lambda: ended)

    tidying.look()
    assert collected == []
    ended = 7
    tidying.look()
    tidying.look()
    assert collected == [1]
