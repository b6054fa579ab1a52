"""Writes layers and their config as one archive, the same bytes for the same contents.

The archive is an OCI image layout with a ``manifest.json`` besides, which older ``docker load`` and
``ctr images import`` go by. Entries are sorted, all of one time and root's. Compression is zlib's;
where another implementation makes other bytes of the same contents, the diff ids still agree.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .tree import Directory, File, Link, Tree

_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Settings:
    """What an image says of itself.

    Attributes:
        name: with registry and tag.
        architecture: in Debian's and Go's word.
        config: of the OCI image config: Env, Entrypoint, Labels.
        epoch_s: the time of everything.
    """

    name: str
    architecture: str
    config: Mapping[str, Any]
    epoch_s: int
    created: str


@dataclass(frozen=True)
class Written:
    """What came of it: digests in hex, and sizes."""

    digest: str
    diff_ids: tuple[str, ...]
    unpacked_bytes: int
    archive_bytes: int


def layer_tar(tree: Tree, epoch_s: int) -> bytes:
    """Returns a tree as an uncompressed tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, entry in tree.complete():
            header = _header(path, epoch_s)
            if isinstance(entry, Link):
                header.type, header.linkname, header.mode = tarfile.SYMTYPE, entry.target, 0o777
                archive.addfile(header)
            elif isinstance(entry, Directory):
                header.type, header.mode = tarfile.DIRTYPE, entry.mode
                archive.addfile(header)
            elif isinstance(entry, File):
                header.mode = 0o755 if entry.is_executable else 0o644
                header.size = len(entry.content)
                archive.addfile(header, io.BytesIO(entry.content))
    return buffer.getvalue()


def write_archive(path: Path, layers: Sequence[tuple[str, Tree]], settings: Settings) -> Written:
    """Writes an image; the file is there whole or not at all.

    Args:
        layers: what each one is, and its tree, from below.
    """
    blobs: dict[str, bytes] = {}

    def blob(media_type: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    tars = [layer_tar(tree, settings.epoch_s) for _, tree in layers]
    diff_ids = tuple(hashlib.sha256(tar).hexdigest() for tar in tars)
    described = [blob(_LAYER, _compressed(tar)) for tar in tars]
    config = blob(_CONFIG, _json({
        "architecture": settings.architecture,
        "os": "linux",
        "created": settings.created,
        "config": settings.config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each}" for each in diff_ids]},
        "history": [{"created": settings.created, "created_by": f"deploy.image: {what}"}
                    for what, _ in layers],
    }))  # fmt: skip
    manifest = blob(
        _MANIFEST,
        _json({"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": described}),
    )
    files = {
        "index.json": _json({
            "schemaVersion": 2,
            "mediaType": _INDEX,
            "manifests": [manifest | {
                "platform": {"architecture": settings.architecture, "os": "linux"},
                "annotations": {
                    "io.containerd.image.name": settings.name,
                    "org.opencontainers.image.ref.name": settings.name.rpartition(":")[2],
                },
            }],
        }),
        "manifest.json": _json([{
            "Config": _blob_path(config),
            "RepoTags": [settings.name.removeprefix("docker.io/library/")],
            "Layers": [_blob_path(each) for each in described],
        }]),
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        **blobs,
    }  # fmt: skip
    draft = path.with_name(f".{path.name}.new")
    with tarfile.open(draft, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in sorted(files.items()):
            header = _header(name, settings.epoch_s)
            header.mode, header.size = 0o644, len(content)
            archive.addfile(header, io.BytesIO(content))
    draft.replace(path)
    unpacked = sum(tree.size_bytes for _, tree in layers)
    digest = manifest["digest"].removeprefix("sha256:")
    return Written(digest, diff_ids, unpacked, path.stat().st_size)


def _header(path: str, epoch_s: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    header.mtime, header.uname, header.gname = epoch_s, "root", "root"
    return header


def _compressed(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=buffer, mtime=0) as file:
        file.write(content)
    return buffer.getvalue()


def _json(content: Any) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


def _blob_path(descriptor: Mapping[str, Any]) -> str:
    return "blobs/sha256/" + str(descriptor["digest"]).removeprefix("sha256:")
