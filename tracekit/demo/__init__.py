"""A real trace to try things on.

`ddpm32m_rung0.json.gz`: three training steps of a DDPM UNet of 31.8 million parameters, batch
128, bf16, NCHW, torch.compile on the model, recorded by this project with torch 2.11 on one
NVIDIA H200. Without the profiler a step took 59.0 ms (48 to 74 ms): the host could not keep up.
"""

from __future__ import annotations

from pathlib import Path

FILE = "ddpm32m_rung0.json.gz"

UNPROFILED_MS = 59.0
"""step time measured without the profiler, ms (the trace itself does not carry it)"""


def trace_path() -> Path:
    """Where the bundled trace lies."""
    return Path(__file__).with_name(FILE)
