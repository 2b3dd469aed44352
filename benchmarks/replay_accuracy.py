"""How well the replay, unchanged, gives back the recorded step: a row a trace.

python benchmarks/replay_accuracy.py TRACE...
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import tracekit
from tracekit.analysis.analysis import Analysis
from tracekit.replay.engine import error, run


def main(paths: list[str]) -> None:
    """Print a row a trace: modelled steps and work, recorded and replayed step (median),
    the largest error of a step, seconds a replay."""
    print(f"{'trace':44} steps   work  recorded ms  replayed ms  max error  replay s")
    for path in paths:
        try:
            model = Analysis(tracekit.read(path)).replay
        except tracekit.TraceError:
            continue
        if model is None:
            continue
        start = time.perf_counter()
        replayed = run(model)
        seconds = time.perf_counter() - start
        print(
            f"{Path(path).name:44} {model.steps:5} {len(model.work_row):6} "
            f"{model.recorded_ms:12.3f} "
            f"{replayed.step_ms:12.3f} {100 * error(model, replayed):6.2f} % {seconds:8.3f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
