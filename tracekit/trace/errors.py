"""What the trace room raises."""

from __future__ import annotations


class TraceError(Exception):
    """A path holds no readable trace.

    The message is one sentence: file, place, cause, what to do.
    """
