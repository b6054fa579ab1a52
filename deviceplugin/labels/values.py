"""Texts as Kubernetes allows them for the values of labels.

Pure. A value has at most 63 letters, digits, ``-``, ``_`` and ``.``, and begins and ends with a
letter or digit; anything else in a text is left out, and its blanks become dashes.
"""

import re

MOST_CHARACTERS = 63
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9\-_. ]")
_ENDS = "-_."


def label_value(text: str, *suffixes: str) -> str:
    """Returns a text as the value of a label; empty where nothing of it is allowed.

    Args:
        suffixes: what ends it, each after a dash; a text that is too long is cut before them.
    """
    end = "".join(f"-{suffix}" for suffix in suffixes)
    plain = "-".join(_NOT_ALLOWED.sub("", text).split())
    cut = plain.lstrip(_ENDS)[: MOST_CHARACTERS - len(end)]
    return (cut.rstrip(_ENDS) + end).strip(_ENDS)
