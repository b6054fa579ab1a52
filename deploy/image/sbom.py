"""The list of what is in the image: SPDX 2.3 as JSON, one package each of Debian and of Python.

https://spdx.github.io/spdx-spec/v2.3/ says what the fields mean. A licence stands as declared only
where its author wrote it as an SPDX expression; Debian's own names are given as a comment, with the
file in the image that has the whole text.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from email.message import Message
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

_UNKNOWN = "NOASSERTION"


@dataclass(frozen=True)
class Component:
    """One package in the image.

    Attributes:
        purl: https://github.com/package-url/purl-spec
        licence: an SPDX expression; empty if none is known.
        licence_comment: what is known of it besides.
        sha256: of the file that it came in, in hex; empty if it was made here.
    """

    name: str
    version: str
    purl: str
    licence: str = ""
    licence_comment: str = ""
    sha256: str = ""
    source: str = ""
    purpose: str = "LIBRARY"


def licence_of(metadata: Message) -> tuple[str, str]:
    """Returns the licence of a wheel's METADATA: an SPDX expression or nothing, and a comment."""
    stated = [str(metadata[key]) for key in ("License-Expression", "License") if metadata[key]]
    for each in stated:
        try:
            return canonicalize_license_expression(each), ""
        except InvalidLicenseExpression:
            continue
    named = [
        str(each).rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier", ())
        if str(each).startswith("License ::")
    ]
    first = [each.strip().splitlines()[0] for each in stated if each.strip()]
    return "", f"in its METADATA: {'; '.join([*named, *first])}" if named or first else ""


def document(image: Component, components: Iterable[Component], created: str) -> bytes:
    """Returns the document of an image.

    Args:
        created: as ISO 8601 in UTC.
    """
    found: Sequence[Component] = sorted(components, key=lambda each: each.purl)
    packages = [_package(each) for each in (image, *found)]
    identity = hashlib.sha256(json.dumps([created, packages], sort_keys=True).encode()).hexdigest()
    top = packages[0]["SPDXID"]
    content = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{image.name}-{image.version}",
        # It names the document and leads nowhere, as the specification allows.
        "documentNamespace": f"https://spdx.org/spdxdocs/{image.name}-{identity}",
        "creationInfo": {"created": created, "creators": ["Tool: vgpu-deploy.image"]},
        "packages": packages,
        "relationships": [
            _relationship("SPDXRef-DOCUMENT", "DESCRIBES", top),
            *(_relationship(top, "CONTAINS", each["SPDXID"]) for each in packages[1:]),
        ],
    }
    return json.dumps(content, indent=1).encode() + b"\n"


def _package(component: Component) -> dict[str, Any]:
    package: dict[str, Any] = {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", component.purl),
        "name": component.name,
        "versionInfo": component.version,
        "primaryPackagePurpose": component.purpose,
        "downloadLocation": component.source or _UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": _UNKNOWN,
        "licenseDeclared": component.licence or _UNKNOWN,
        "copyrightText": _UNKNOWN,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": component.purl,
            }
        ],
    }
    if component.licence_comment:
        package["licenseComments"] = component.licence_comment
    if component.sha256:
        package["checksums"] = [{"algorithm": "SHA256", "checksumValue": component.sha256}]
    return package


def _relationship(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
