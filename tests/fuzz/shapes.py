"""Values made of an input's bytes: JSON of known words, numbers, texts.

Raw bytes rarely pass a JSON decoder. Of these a guided search finds its way to what comes after it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import inspect

_ODD = (0, 1, -1, 100, 255, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 63))
_TEXTS = ("", "a", "\0", "\r", "\u2028", "é", "\ud800", "0", "-1", "1e999", "9" * 5000)
_MOST_DEPTH = 6
_FIELDS = (inspect.StructType, inspect.DataclassType, inspect.NamedTupleType)


class Shapes:
    """Takes values of the bytes, one after the other; behind their end all is zero or empty."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def __bool__(self) -> bool:
        """There are bytes left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """Returns the next one."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def rest(self) -> bytes:
        """Returns all that are left."""
        at, self._at = self._at, len(self._data)
        return self._data[at:]

    def some(self) -> bytes:
        """Returns up to 255 of them."""
        length = self.byte()
        self._at += length
        return self._data[self._at - length : self._at]

    def pick(self, of: Sequence[Any]) -> Any:
        """Returns one of several."""
        return of[self.byte() % len(of)]

    def number(self) -> int:
        """Returns a whole number, often at the edge of some range."""
        how = self.byte()
        return _ODD[how] if how < len(_ODD) else how if how < 200 else self.byte() << 8 | how

    def text(self, words: Sequence[str]) -> str:
        """Returns a known word, or any text."""
        how = self.byte()
        if how < 160 and words:
            return words[how % len(words)]
        return self.pick(_TEXTS) if how < 200 else self.some().decode("latin-1")

    def json(self, words: Sequence[str], depth: int = 0) -> Any:
        """Returns a value as JSON has it; keys and texts are mostly known words."""
        how = self.byte()
        if depth < _MOST_DEPTH and how < 120:
            return {self.text(words): self.json(words, depth + 1) for _ in range(how % 8)}
        if depth < _MOST_DEPTH and how < 170:
            return [self.json(words, depth + 1) for _ in range(how % 5)]
        if how < 205:
            return self.text(words)
        return self.number() if how < 240 else self.pick((None, True, False, 0.5, 1e300))

    def like(self, kind: inspect.Type, words: Sequence[str] = (), depth: int = 0) -> Any:
        """Returns a value of a type as JSON has it, now and then of another; some fields lack."""
        how = self.byte()
        if how >= 250 or depth > 2 * _MOST_DEPTH:
            return self.json(words)
        if isinstance(kind, _FIELDS):
            wanted = self.byte() | self.byte() << 8 | 0xFF0000
            return {
                field.encode_name: self.like(field.type, words, depth + 1)
                for number, field in enumerate(kind.fields)
                if field.required or wanted >> number % 24 & 1
            }
        if isinstance(kind, inspect.UnionType):
            return self.like(kind.types[how % len(kind.types)], words, depth + 1)
        if isinstance(kind, inspect.DictType):
            return {
                self.text(words): self.like(kind.value_type, words, depth + 1)
                for _ in range(how % 4)
            }
        if isinstance(kind, inspect.TupleType):
            return [self.like(each, words, depth + 1) for each in kind.item_types]
        if isinstance(kind, inspect.CollectionType):
            return [self.like(kind.item_type, words, depth + 1) for _ in range(how % 4)]
        return self._scalar(kind, words, how)

    def _scalar(self, kind: inspect.Type, words: Sequence[str], how: int) -> Any:
        if isinstance(kind, inspect.LiteralType):
            return kind.values[how % len(kind.values)]
        if isinstance(kind, inspect.EnumType):
            return self.pick([each.value for each in kind.cls])
        if isinstance(kind, inspect.StrType):
            return self.text(words)
        if isinstance(kind, inspect.BoolType):
            return bool(how & 1)
        if isinstance(kind, inspect.IntType | inspect.FloatType):
            return how if how < 200 else self.number()
        return None if isinstance(kind, inspect.NoneType) else self.json(words)


def words_of(kind: inspect.Type, seen: frozenset[type] = frozenset()) -> Iterator[str]:
    """Yields the keys and words that a type knows."""
    if isinstance(kind, _FIELDS):
        for field in kind.fields if kind.cls not in seen else ():
            yield field.encode_name
            yield from words_of(field.type, seen | {kind.cls})
    for name in ("item_type", "value_type"):
        if hasattr(kind, name):
            yield from words_of(getattr(kind, name), seen)
    for each in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
        yield from words_of(each, seen)
    if isinstance(kind, inspect.LiteralType):
        yield from map(str, kind.values)
