"""Pages are only read, and what is not there is refused with a message."""

import pytest
from werkzeug.test import Client
from werkzeug.wrappers import Request, Response

from deviceplugin.http.pages import line, pages


def fail(request: Request) -> Response:
    raise RuntimeError("planted")


@pytest.fixture
def client() -> Client:
    return Client(pages({"/a": lambda request: line(200, "it"), "/fault": fail}))


def test_a_page_is_read_with_get_and_head(client: Client) -> None:
    assert client.get("/a").text == "it\n"
    head = client.head("/a")
    assert (head.status_code, head.data) == (200, b"")


def test_other_methods_and_paths_are_refused_with_a_message(client: Client) -> None:
    posted, unknown = client.post("/a"), client.get("/b")

    assert (posted.status_code, posted.text) == (405, "pages are only read: use GET\n")
    assert set(posted.headers["Allow"].split(", ")) == {"GET", "HEAD"}
    assert (unknown.status_code, unknown.text) == (404, "no such page; there are: /a, /fault\n")
    assert unknown.content_type == "text/plain; charset=utf-8"


def test_a_fault_of_a_page_is_an_answer(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    answer = client.get("/fault")

    assert (answer.status_code, answer.text) == (500, "the node agent failed; see its log\n")
    assert "GET /fault failed" in caplog.messages
