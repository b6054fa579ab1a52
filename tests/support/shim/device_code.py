"""Images of device code for tests: PTX texts, small cubins and fat binaries made of them."""

import re
import struct

PTX_KIND, ELF_KIND = 1, 2
LZ4, ZSTD = 0x2000, 0x8000
STT_OBJECT, STT_FUNC, MANAGED, ENTRY = 1, 2, 4, 0x10

HEAD = ".version 7.0\n.target {target}\n.address_size 64\n"


def ptx(body: str, target: str = "sm_50") -> bytes:
    """Returns a PTX text with its NUL."""
    return (HEAD.format(target=target) + body + "\0").encode()


def kernel(name: str, extra: str = "", body: str = "ret;") -> str:
    return f".visible .entry {name}() {extra} {{ {body} }}\n"


def _entry(kind: int, architecture: int, payload: bytes, flags: int, unpacked: int) -> bytes:
    padded = payload + bytes(-len(payload) % 8)
    packed = len(payload) if flags else 0
    head = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(padded), packed, 0, 0, 8,
                       architecture, 0, 0, flags, 0, unpacked)  # fmt: skip
    return head + padded


def fatbin(*images: tuple[int, int, bytes], flags: int = 0) -> bytes:
    """Returns a bundle of ``(kind, architecture, image)``.

    With the flag ``LZ4`` or ``ZSTD`` each image is packed.
    """
    entries = b""
    for kind, architecture, image in images:
        payload = lz4_block(image) if flags & LZ4 else zstd_frame(image) if flags & ZSTD else image
        entries += _entry(kind, architecture, payload, flags, len(image) if flags else 0)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def _lz4_length(length: int) -> tuple[int, bytes]:
    if length < 15:
        return length, b""
    more, rest = divmod(length - 15, 255)
    return 15, b"\xff" * more + bytes([rest])


def lz4_block(image: bytes) -> bytes:
    """Returns one block: a run, a copy of its last byte where one repeats, and another run."""
    repeated = re.search(rb"(.)\1{8,}", image, flags=re.S)
    if repeated is None:
        high, more = _lz4_length(len(image))
        return bytes([high << 4]) + more + image
    start, end = repeated.span()
    last, behind = _lz4_length(len(image) - end)
    tail = bytes([last << 4]) + behind + image[end:]
    high, more = _lz4_length(start + 1)
    low, further = _lz4_length(end - start - 1 - 4)
    head = bytes([high << 4 | low]) + more + image[: start + 1]
    return head + struct.pack("<H", 1) + further + tail


def zstd_frame(image: bytes) -> bytes:
    """Returns a frame of one raw block (RFC 8878, sections 3.1.1 and 3.1.1.2)."""
    block = len(image) << 3 | 1
    return struct.pack("<IBI", 0xFD2FB528, 0xA0, len(image)) + block.to_bytes(3, "little") + image


def attribute(number: int, data: bytes) -> bytes:
    """Returns one sized attribute of a ``.nv.info`` section."""
    return struct.pack("<BBH", 4, number, len(data)) + data


def parameter(ordinal: int, offset: int, size: int) -> bytes:
    return attribute(0x17, struct.pack("<IHHI", 0, ordinal, offset, size << 18 | 0x1F000))


class Cubin:
    """Builds a cubin section by section."""

    def __init__(self, architecture: int) -> None:
        self.architecture = architecture
        self.sections: list[tuple[str, int, bytes, int]] = [("", 0, b"", 0)]
        self.symbols: list[tuple[str, int, int, int, int]] = []

    def section(self, name: str, data: bytes = b"", size: int | None = None) -> int:
        """Adds a section and returns its number; with a ``size`` it holds no bytes."""
        kind = 1 if size is None else 8
        self.sections.append((name, kind, data, len(data) if size is None else size))
        return len(self.sections) - 1

    def symbol(self, name: str, kind: int, section: int, size: int, other: int = 0) -> None:
        self.symbols.append((name, kind, section, size, other))

    def build(self) -> bytes:
        names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in self.symbols)
        table, at = bytes(24), 1
        for name, kind, section, size, other in self.symbols:
            table += struct.pack("<IBBHQQ", at, 0x10 | kind, other, section, 0, size)
            at += len(name) + 1
        sections = [
            *self.sections,
            (".strtab", 3, names, len(names)),
            (".symtab", 2, table, len(table)),
        ]
        titles = b"".join(name.encode() + b"\0" for name, *_ in sections) + b".shstrtab\0"
        sections.append((".shstrtab", 3, titles, len(titles)))
        body, heads, title = b"", b"", 0
        for name, kind, data, size in sections:
            link = len(sections) - 3 if kind == 2 else 0
            heads += struct.pack("<IIQQQQIIQQ", title, kind, 0, 0, 64 + len(body), size, link, 0,
                                 8, 24 if kind == 2 else 0)  # fmt: skip
            body += data
            title += len(name) + 1
        ident = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7)
        return (
            ident
            + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), self.architecture,
                          64, 0, 0, 64, len(sections), len(sections) - 1)
            + body
            + heads
        )  # fmt: skip


def cubin(architecture: int = 90) -> bytes:
    """Returns a cubin with the kernel ``work``, a device function and three variables."""
    image = Cubin(architecture)
    code = image.section(".text.work", bytes(16))
    called = image.section(".text.helper", bytes(16))
    variables = image.section(".nv.global", size=4 << 20)
    constants = image.section(".nv.constant3", bytes(256))
    image.section(".nv.shared.work", size=2048)
    image.section(
        ".nv.info.work",
        parameter(1, 8, 4) + parameter(0, 0, 8) + attribute(0x05, struct.pack("<III", 256, 1, 1)),
    )
    image.symbol("work", STT_FUNC, code, 16, ENTRY)
    image.symbol("helper", STT_FUNC, called, 16)
    image.symbol("table", STT_OBJECT, variables, 3 << 20)
    image.symbol("shown", STT_OBJECT, variables, 1 << 20, MANAGED)
    image.symbol("scale", STT_OBJECT, constants, 256)
    image.section(
        ".nv.info",
        attribute(0x2F, struct.pack("<II", 1, 128)) + attribute(0x11, struct.pack("<II", 1, 64)),
    )
    return image.build()
