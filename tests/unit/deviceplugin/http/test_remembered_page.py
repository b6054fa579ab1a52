"""A remembered page is made again only when it is old."""

from collections.abc import Iterator

import pytest
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from deviceplugin.http.remembered_page import OLD_AFTER_S, RememberedPage

REQUEST = Request(EnvironBuilder().get_environ())


def test_it_is_made_again_when_it_is_old() -> None:
    now_s, made = [100.0], iter(range(9))
    page = RememberedPage(lambda: str(next(made)).encode(), lambda: now_s[0])

    def shown() -> str:
        return page.page(REQUEST).get_data(as_text=True)

    assert (shown(), shown()) == ("0", "0")
    now_s[0] += OLD_AFTER_S * 0.9
    assert shown() == "0"
    now_s[0] += OLD_AFTER_S * 0.2
    assert (shown(), shown()) == ("1", "1")
    assert page.page(REQUEST).content_type == "application/json"


def test_what_failed_is_tried_again_at_once() -> None:
    answers: Iterator[OSError | bytes] = iter([OSError("planted"), b"good"])

    def make() -> bytes:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    page = RememberedPage(make, lambda: 0.0)
    with pytest.raises(OSError, match="planted"):
        page.page(REQUEST)
    assert page.page(REQUEST).get_data(as_text=True) == "good"
