"""Every small change of a C or Python file that a test should notice. Pure.

A change is found in the syntax tree, so it never touches a comment, a message or a type.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import tree_sitter_c
import tree_sitter_python
from tree_sitter import Language, Node, Parser

_SWAPS = {
    "<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"),
    "==": ("!=",), "!=": ("==",), "is": ("is not",), "is not": ("is",),
    "in": ("not in",), "not in": ("in",), "and": ("or",), "or": ("and",), "&&": ("||",),
    "||": ("&&",), "+": ("-",), "-": ("+",), "|": ("&",), "&": ("|",), "<<": (">>",),
    ">>": ("<<",), "+=": ("-=",), "-=": ("+=",), "|=": ("&=",), "++": ("--",),
}  # fmt: skip
_WITH_OPERATOR = {
    "binary_expression", "assignment_expression", "update_expression",
    "comparison_operator", "boolean_operator", "binary_operator", "augmented_assignment",
}  # fmt: skip
_LOOPS = {"while_statement", "for_statement", "do_statement"}
_REMOVED = {
    "expression_statement", "continue_statement", "break_statement", "raise_statement",
    "delete_statement",
}  # fmt: skip
_LEFT_ALONE = {
    "string", "type", "decorator", "assert_statement", "import_statement", "import_from_statement",
    "comment", "string_literal", "type_descriptor", "sizeof_expression", "preproc_include",
    "preproc_def", "preproc_function_def", "attribute_specifier", "raise_statement",
}  # fmt: skip
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)")


@dataclass(frozen=True)
class Mutant:
    """A file with one change.

    Attributes:
        file: relative to the checkout.
        function: in which it is; empty outside of any.
        kind: operator, condition, statement, return, constant or arguments.
        original: the file's text as it is.
        start: of the bytes that are replaced.
    """

    file: str
    function: str
    kind: str
    original: bytes = field(repr=False)
    start: int
    end: int
    replacement: bytes

    @property
    def text(self) -> bytes:
        """The changed file."""
        return self.original[: self.start] + self.replacement + self.original[self.end :]

    @property
    def lines(self) -> tuple[str, str]:
        """The lines that it changes, before and after."""
        begin = self.original.rfind(b"\n", 0, self.start) + 1
        end = self.original.find(b"\n", self.end)
        after = self.original[begin : self.start] + self.replacement + self.original[self.end : end]
        return self.original[begin:end].decode(), after.decode()

    @property
    def diff(self) -> str:
        """The change as a diff shows it."""
        number = self.original.count(b"\n", 0, self.start) + 1
        changed = (
            f"{sign}{line}"
            for sign, text in zip("-+", self.lines, strict=True)
            for line in text.splitlines()
        )
        return "\n".join((f"{self.file}:{number} in {self.function or 'no function'}", *changed))

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it for as long as its lines stay, wherever they stand in the function."""
        before, after = (" ".join(text.split()) for text in self.lines)
        return self.file, self.function, before, after


@dataclass(frozen=True)
class _Grammar:
    is_c: bool
    language: object
    nothing: str
    true: str
    false: str
    zero: str
    negation: str


_C = _Grammar(True, tree_sitter_c.language(), ";", "1", "0", "0", "!({})")
_PYTHON = _Grammar(
    False, tree_sitter_python.language(), "pass", "True", "False", "None", "not ({})"
)


def mutants(file: str, original: bytes) -> list[Mutant]:
    """Returns all of a file, each once, in the order of the file."""
    grammar = _C if file.endswith(".c") else _PYTHON
    tree = Parser(Language(grammar.language)).parse(original)
    found: dict[tuple[int, int, str], Mutant] = {}
    nodes = [(tree.root_node, "")]
    while nodes:
        node, function = nodes.pop()
        function = _function(node) or function
        for kind, start, end, replacement in _changes(node, grammar):
            mutant = Mutant(file, function, kind, original, start, end, replacement.encode())
            if mutant.text != original:
                found.setdefault((start, end, replacement), mutant)
        if node.type not in _LEFT_ALONE:
            nodes += ((child, function) for child in node.children)
    return [found[place] for place in sorted(found)]


def _function(node: Node) -> str:
    if node.type != "function_definition":
        return ""
    named = node.child_by_field_name("name") or node.child_by_field_name("declarator")
    return re.findall(r"\w+", _text(named).partition("(")[0])[-1] if named else ""


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _changes(node: Node, grammar: _Grammar) -> Iterator[tuple[str, int, int, str]]:
    def instead(kind: str, of: Node, replacement: str) -> tuple[str, int, int, str]:
        return kind, of.start_byte, of.end_byte, replacement

    parent = node.parent
    if parent is not None and parent.type in _WITH_OPERATOR and not node.is_named:
        yield from (instead("operator", node, other) for other in _SWAPS.get(node.type, ()))
    condition = node.child_by_field_name("condition")
    if condition is not None and _text(condition) not in (grammar.true, f"({grammar.true})"):
        brackets = "({})" if condition.type == "parenthesized_expression" else "{}"
        yield instead("condition", condition, brackets.format(grammar.false))
        if node.type not in _LOOPS:  # a loop without an end teaches nothing
            yield instead("condition", condition, brackets.format(grammar.true))
            negated = grammar.negation.format(_text(condition))
            yield instead("condition", condition, brackets.format(negated))
    if node.type in _REMOVED and not _is_docstring(node):
        yield instead("statement", node, grammar.nothing)
    if node.type == "return_statement" and node.named_children:
        value = node.named_children[0]
        if value.type not in ("true", "false") and _text(value) != grammar.zero:
            yield instead("return", value, grammar.zero)
    if node.type in ("true", "false"):
        other = "false" if node.type == "true" else "true"
        yield instead("constant", node, other if grammar.is_c else other.capitalize())
    if node.type in ("number_literal", "integer") and (
        number := _NUMBER.fullmatch(_text(node).replace("_", ""))
    ):
        yield instead("constant", node, f"{int(number[1], 0) + 1}{number[2]}")
    if node.type == "argument_list":
        given = [each for each in node.named_children if each.type != "keyword_argument"]
        for one, two in pairwise(given):
            swapped = f"{_text(two)}{_between(node, one, two)}{_text(one)}"
            yield "arguments", one.start_byte, two.end_byte, swapped


def _between(parent: Node, one: Node, two: Node) -> str:
    """Returns what stands between two arguments."""
    text = parent.text or b""
    return text[one.end_byte - parent.start_byte : two.start_byte - parent.start_byte].decode()


def _is_docstring(node: Node) -> bool:
    return bool(node.named_children) and node.named_children[0].type == "string"
