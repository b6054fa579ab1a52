"""The list of contents is SPDX 2.3 to the reference library; what it says of licences."""

import json
from email.message import Message
from pathlib import Path

import pytest
from spdx_tools.spdx.model.document import Document
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from deploy.image.sbom import Component, document, licence_of

CREATED = "2026-11-25T12:00:00Z"
IMAGE = Component("vgpu-image", "0.1.0", "pkg:oci/vgpu@0.1.0", purpose="CONTAINER")
DASH = Component(
    "dash",
    "0.5.12-2",
    "pkg:deb/debian/dash@0.5.12-2?arch=amd64",
    licence_comment="by Debian: BSD",
    sha256="a" * 64,
    source="http://deb.debian.org/debian/pool/main/d/dash/dash.deb",
)
CLICK = Component("click", "8.5.1", "pkg:pypi/click@8.5.1", "BSD-3-Clause", sha256="b" * 64)


def parsed(path: Path, content: bytes) -> Document:
    path.write_bytes(content)
    return parse_file(str(path))


def test_the_reference_library_finds_no_fault(tmp_path: Path) -> None:
    found = parsed(tmp_path / "x.spdx.json", document(IMAGE, [DASH, CLICK], CREATED))

    assert [each.validation_message for each in validate_full_spdx_document(found)] == []
    assert {each.name: each.version for each in found.packages} == {
        "vgpu-image": "0.1.0",
        "dash": "0.5.12-2",
        "click": "8.5.1",
    }
    assert {each.checksums[0].value for each in found.packages if each.checksums} == {
        "a" * 64,
        "b" * 64,
    }


def test_the_reference_library_would_find_a_fault(tmp_path: Path) -> None:
    content = json.loads(document(IMAGE, [DASH], CREATED))
    content["packages"][1]["downloadLocation"] = "nowhere in particular"

    found = parsed(tmp_path / "x.spdx.json", json.dumps(content).encode())

    assert validate_full_spdx_document(found)


def test_it_depends_on_what_is_in_it_alone() -> None:
    content = document(IMAGE, [DASH, CLICK], CREATED)

    assert document(IMAGE, [CLICK, DASH], CREATED) == content
    one, other = (
        json.loads(document(IMAGE, each, CREATED))["documentNamespace"]
        for each in ([DASH], [CLICK])
    )
    assert one != other


@pytest.mark.parametrize(
    ("fields", "licence", "comment"),
    [
        ({"License-Expression": "mit OR apache-2.0"}, "MIT OR Apache-2.0", ""),
        ({"License": "BSD-3-Clause"}, "BSD-3-Clause", ""),
        ({"License": "3-Clause BSD License"}, "", "3-Clause BSD License"),
        ({"Classifier": "License :: OSI Approved :: MIT License"}, "", "MIT License"),
        ({"License": "The MIT License\n\nCopyright me"}, "", "The MIT License"),
        ({}, "", ""),
    ],
)
def test_only_an_expression_counts_as_a_licence(
    fields: dict[str, str], licence: str, comment: str
) -> None:
    metadata = Message()
    for key, value in fields.items():
        metadata[key] = value

    found, said = licence_of(metadata)

    assert found == licence
    assert said.removeprefix("in its METADATA: ") == comment
