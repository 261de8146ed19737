"""How the server's log lines look: for people or as JSON, each with the id of its request.

What is logged may hold what a stranger sent (a path, a file's name): it is escaped, so that it can neither begin a line
of its own nor steer a terminal. Prompts and tokens are never logged; what libraries would log of them is turned off.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Literal

FACTS = ("client", "route", "status", "ms")
"""What a record may carry besides its message."""
TALKATIVE = ("sse_starlette", "asyncio", "urllib3", "httpcore", "httpx", "filelock", "multipart")
"""Libraries whose debugging would drown ours; the first would log every event with its token."""


def set_up(level: str, form: Literal["text", "json"]) -> None:
    """Send all logging of this process to stderr, at a level by its name and in a form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == "json" else Text())
    handler.addFilter(_named)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.INFO, root.level))


def plain(text: str) -> str:
    """Text on one line: control characters, separators of lines and what turns writing around are escaped."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


class Text(logging.Formatter):
    """`2026-01-31 12:00:00,123 WARNING atlas.web: what happened [request]`; a traceback is indented under it."""

    def format(self, record: logging.LogRecord) -> str:
        name = getattr(record, "request_id", "")
        facts = "".join(f" {fact}={getattr(record, fact)}" for fact in FACTS if hasattr(record, fact))
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {record.getMessage()}{facts}"
        lines = [plain(f"{line} [{name}]" if name and name not in line else line)]
        if record.exc_info:
            lines += [f"  | {plain(part)}" for part in self.formatException(record.exc_info).splitlines()]
        return "\n".join(lines)


class Json(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, request_id, and what else is known."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        said: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": getattr(record, "request_id", "") or None,
        }
        said |= {fact: getattr(record, fact) for fact in FACTS if hasattr(record, fact)}
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)  # ASCII: whatever is no plain letter is escaped


def _named(record: logging.LogRecord) -> bool:
    """Give a record the id of the request that it was made for."""
    if not hasattr(record, "request_id"):
        from atlas.web.security import current_request

        record.request_id = current_request.get()
    return True
