"""Files that are often mistaken for a profiler trace, by how they begin."""

from __future__ import annotations

import re

_LOOKS_LIKE = [
    (re.compile(rb"\A\s*\[\s*\[\s*-?\d+\s*,\s*\d+\s*,"), "a memory timeline of torch.profiler"),
    (re.compile(rb'\A\s*\[\s*\[\s*\d[^{]*\]\s*,\s*\[\s*\['), "a memory timeline of torch.profiler"),
    (re.compile(rb'\A\s*\{\s*"rocprofiler-sdk-tool"'), "rocprof output (rocprofv3)"),
    (re.compile(rb'\A\s*\{[^\[]*"schema"\s*:\s*"[\d.]+'), "a PyTorch execution trace"),
    (re.compile(rb'"nodes"\s*:\s*\[\s*\{'), "a PyTorch execution trace"),
    (re.compile(rb'"segments"\s*:\s*\[|"device_traces"\s*:'), "a CUDA memory snapshot"),
    (re.compile(rb'"cells"\s*:\s*\[|"nbformat"'), "a Jupyter notebook"),
    (re.compile(rb"\A\s*<(?:!DOCTYPE|html|\?xml)", re.I), "a web page or XML"),
    (re.compile(rb"\Aversion https://git-lfs"), "a Git LFS pointer, not the file itself"),
]  # fmt: skip
BINARY = [
    (b"PK\x03\x04", "a zip archive"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3", "an SQLite database (nsys or rocprof)"),
    (b"BZh", "bzip2, which is not read here: unpack it"),
    (b"\xfd7zXZ", "xz, which is not read here: unpack it"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x89PNG", "a PNG image"),
]
_SAMPLE = 1 << 12


def known_other(head: bytes) -> str | None:
    """What the file is, where its first bytes tell that it is no trace."""
    sample = head[:_SAMPLE]
    if b'"traceEvents"' in sample:
        return None
    for pattern, what in _LOOKS_LIKE:
        if pattern.search(sample):
            return what
    return None
