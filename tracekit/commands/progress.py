"""A progress bar on stderr: only for large files, only on a terminal."""

from __future__ import annotations

import sys
import time

from tracekit.report.style import clean, shorten

SMALLEST_FILE = 30_000_000
"""bytes of the file; a smaller one is read before a bar could be of use"""
_REDRAW_S = 0.1


class Progress:
    """Draws a bar while a file is read. Call it with (bytes read, bytes in the file); `close`
    wipes it out."""

    def __init__(self, name: str) -> None:
        self._name = shorten(clean(name), 40)
        self._stream = sys.stderr
        self._terminal = self._stream.isatty()
        self._last = 0.0
        self._drawn = False

    def __call__(self, done: int, total: int) -> None:
        """Take note of how far the reading is."""
        now = time.monotonic()
        if not self._terminal or total < SMALLEST_FILE or now - self._last < _REDRAW_S:
            return
        self._last = now
        self._drawn = True
        share = min(done / total, 1.0)
        bar = "#" * int(24 * share)
        size = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        self._stream.write(f"\r\x1b[Kreading {self._name} [{bar:<24}] {100 * share:3.0f} %  {size}")
        self._stream.flush()

    def close(self) -> None:
        """Remove the bar."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False
