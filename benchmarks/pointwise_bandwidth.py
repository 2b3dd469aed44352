"""Share of copy bandwidth that Triton's pointwise kernels reach in recorded traces.

    python benchmarks/pointwise_bandwidth.py TRACE...

For each kernel named triton_poi_* that moves over 50 MB: the bytes of its recorded tensors, each
moved once, over its duration. FUS001's `fused_efficiency` is the median of this.
"""

from __future__ import annotations

import sys

import numpy as np

from tracekit.analysis.analysis import Analysis
from tracekit.analysis.layout import device_peaks
from tracekit.analysis.opargs import tensors
from tracekit.trace.read import read

LARGE = 50e6
"""bytes: well above what the caches of the device hold"""


def shares(path: str) -> list[float]:
    """Share of copy bandwidth of each large pointwise kernel of one trace."""
    analysis = Analysis(read(path))
    peaks = device_peaks(analysis)
    gpu, ops = analysis.trace.table("gpu"), analysis.trace.table("ops")
    rows = gpu.text("name").where(lambda n: n.startswith("triton_poi"))
    rows &= (analysis.links.gpu_op >= 0) & (analysis.steps.gpu_step >= 0)
    found = []
    for row in np.flatnonzero(rows) if peaks is not None else ():
        op = analysis.links.gpu_op[row]
        recorded = tensors(*((ops.text(c)[op] or "") for c in ("shapes", "dtypes", "strides")))
        moved = sum(t.bytes for t in recorded)
        if moved > LARGE and peaks is not None:
            found.append(moved / gpu.ints("dur")[row] / peaks.copy_bandwidth)
    return found


def main(paths: list[str]) -> None:
    for path in paths:
        found = shares(path)
        if not found:
            print(f"{path}: no pointwise Triton kernel of that size with recorded shapes")
            continue
        low, middle, high = np.percentile(found, [25, 50, 75])
        print(f"{path}: {len(found)} kernels, quartiles {low:.2f} {middle:.2f} {high:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
