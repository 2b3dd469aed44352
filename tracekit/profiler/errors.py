"""The recorder's one error."""

from __future__ import annotations


class RecordError(Exception):
    """A recording could not be made or written; the message is one clear sentence.

    `usage` is True where the request itself was wrong (exit 2) and False where it failed
    (exit 1).
    """

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage
