"""Log lines of the form ``time level message key=value …`` on stderr.

A value goes in through ``extra={"fields": {...}}``; `event` is the short way to say so. What a pod
or the Node must be told, too, goes along as the record's ``notice``, which no line shows: `kube`
makes a Kubernetes Event of it.
"""

import json
import logging
import re
import sys
import time
from typing import Any

from .model.notices import Notice

LOGGER = logging.getLogger("deviceplugin")
#: Printable ASCII without what ends or quotes a value.
_PLAIN = re.compile(r"[!#-<>-~]+")


class KeyValueFormatter(logging.Formatter):
    """One line per record; values with blanks are quoted, so a line can be taken apart again.

    Names come from strangers and lines go to terminals, so all but printable ASCII is escaped.
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        parts = [f"{moment}.{int(record.msecs):03d}Z {record.levelname.lower()}"]
        parts.append(f"msg={_quoted(record.getMessage())}")
        for key, value in getattr(record, "fields", {}).items():
            text = str(value)
            plain = _PLAIN.fullmatch(text)
            parts.append(f"{key}={text if plain else _quoted(text)}")
        if record.exc_info:
            parts.append(f"trace={_quoted(self.formatException(record.exc_info))}")
        return " ".join(parts)


def _quoted(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")  # the one that JSON leaves


def set_up(level: int = logging.INFO) -> None:
    """Sends this package's log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(level)
    LOGGER.propagate = False


def event(level: int, message: str, *, notice: Notice | None = None, **fields: Any) -> None:
    """Logs one sentence with its values, but not from where: that search takes longer than all.

    Args:
        notice: what is told to a pod or the Node about it.
    """
    if LOGGER.isEnabledFor(level):
        extra = {"fields": fields, "notice": notice}
        record = LOGGER.makeRecord(LOGGER.name, level, "", 0, message, (), None, extra=extra)
        LOGGER.handle(record)
