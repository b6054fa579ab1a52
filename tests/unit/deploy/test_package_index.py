"""The first installer comes from the package index, or one sentence says why it does not."""

import hashlib
import importlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest

from support import ROOT

WHEEL = b"a wheel"
SHA256 = hashlib.sha256(WHEEL).hexdigest()


@pytest.fixture
def package_index(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, which set_up.py finds next to itself."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy/dev"))
    yield importlib.import_module("package_index")
    del sys.modules["package_index"]


class Index(ThreadingHTTPServer):
    """An index with one page; what it sends of a wheel can be changed."""

    page = ""
    status = 200
    sent = WHEEL
    announced = len(WHEEL)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"


class Handler(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        is_page = self.path.endswith("/")
        body = self.server.page.encode() if is_page else self.server.sent
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body) if is_page else self.server.announced))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def index() -> Iterator[Index]:
    server = Index(("127.0.0.1", 0), Handler)
    server.page = "".join(
        f'<a href="/files/uv-{version}-py3-none-{tag}.whl#sha256={SHA256}" {more}>uv</a>\n'
        for version, tag, more in (
            ("0.9.30", "manylinux_2_17_x86_64.manylinux2014_x86_64", ""),
            ("0.13.2", "manylinux_2_17_x86_64.manylinux2014_x86_64", 'data-requires-python="x"'),
            ("0.13.3", "manylinux_2_17_aarch64.manylinux2014_aarch64", ""),
            ("0.14.0", "manylinux_2_17_x86_64.manylinux2014_x86_64", 'data-yanked="broken"'),
        )
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def settings(index: Index) -> dict[str, str]:
    return {"global.index-url": "http://old/simple", ":env:.index-url": index.url + "/"}


def test_the_newest_wheel_of_this_machine_is_fetched(
    package_index: ModuleType, index: Index, tmp_path: Path
) -> None:
    wheel = package_index.fetch_wheel("uv", tmp_path, settings(index))

    assert wheel.name == "uv-0.13.2-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    assert wheel.read_bytes() == WHEEL


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": 503}, "answers 503 Service Unavailable"),
        ({"announced": 99}, "broke off"),
        ({"sent": b"another"}, "sent uv damaged"),
        ({"page": "<html>"}, "has no wheel of uv for this machine"),
    ],
)
def test_what_the_index_did_is_said_and_nothing_is_kept(
    package_index: ModuleType, index: Index, tmp_path: Path, change: dict[str, object], why: str
) -> None:
    for name, value in change.items():
        setattr(index, name, value)

    with pytest.raises(package_index.PackageIndexError, match=f"{index.url} {why}"):
        package_index.fetch_wheel("uv", tmp_path, settings(index))

    assert list(tmp_path.iterdir()) == []


def test_an_index_that_is_not_there_is_named(
    package_index: ModuleType, index: Index, tmp_path: Path
) -> None:
    unreachable = {"install.index-url": "http://127.0.0.1:1/simple"}

    with pytest.raises(package_index.PackageIndexError, match=r":1/simple cannot be reached: Conn"):
        package_index.fetch_wheel("uv", tmp_path, unreachable)


def test_pips_settings_are_read_from_its_files_and_variables(
    package_index: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_INDEX_URL", "PIP_CERT", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://variable/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "named.conf"))
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nindex_url = https://user/simple\nextra-index-url =\n  https://a\n  https://b\n"
    )
    (tmp_path / "named.conf").write_text("[install]\ncert = /named.pem\n")

    found = package_index.pip_settings()

    assert package_index.setting(found, "index-url") == "https://user/simple"
    assert found["global.extra-index-url"] == "https://a https://b"
    assert package_index.setting(found, "extra-index-url") == "https://variable/simple"
    assert package_index.setting(found, "cert") == "/named.pem"
    (tmp_path / "named.conf").write_text("no section")
    assert package_index.setting(package_index.pip_settings(), "cert") != "/named.pem"
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    assert package_index.setting(package_index.pip_settings(), "index-url") is None
