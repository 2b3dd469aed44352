"""How fast a trace is read, and in how much memory, beside other ways of reading it.

    python benchmarks/bench_read.py shared/traces/h200/ddpm_eager.json.gz --megabytes 10 54 210 1000

Every reading runs in a process of its own, all ways in turn, several rounds; the best round
counts. Peak memory is that of the process and its children together, sampled from /proc.
`msgspec` is the floor: the file read into memory and decoded into typed Structs, nothing more.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from replicate_trace import replicate

MSGSPEC = """
import sys, time, msgspec
from pathlib import Path
class Args(msgspec.Struct, gc=False, rename={"external_id": "External id"}):
    external_id: int = -1
    correlation: int = -1
    device: int = -1
    stream: int | str = -1
class Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: float = -1.0
    dur: float = -1.0
    args: Args | None = None
class File(msgspec.Struct, gc=False):
    traceEvents: list[Event]
start = time.perf_counter()
kept = msgspec.json.Decoder(File).decode(Path(sys.argv[1]).read_bytes())
print(time.perf_counter() - start)
"""
JSON = """
import json, sys, time
start = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    kept = json.load(file)
print(time.perf_counter() - start)
"""
READ = """
import sys, time
from tracekit.trace.read import read
start = time.perf_counter()
kept = read(sys.argv[1])
print(time.perf_counter() - start)
"""
DIAGNOSE = """
import subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(
    [sys.executable, "-m", "tracekit", "diagnose", sys.argv[1], "--format", "json"],
    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
)
print(time.perf_counter() - start if done.returncode == 0 else "failed: " + done.stderr[-200:])
"""
HTA = """
import sys, time, logging
logging.disable(logging.CRITICAL)
from hta.common.trace_parser import parse_trace_dataframe
start = time.perf_counter()
kept = parse_trace_dataframe(sys.argv[1])
print(time.perf_counter() - start)
"""


def ways() -> dict[str, str]:
    """Name to program, of those that are installed here."""
    found = {"msgspec": MSGSPEC, "tracekit read": READ}
    if importlib.util.find_spec("tracekit.cli"):
        found["tracekit diagnose"] = DIAGNOSE
    found["json.load"] = JSON
    if importlib.util.find_spec("hta"):
        found["HTA parse"] = HTA
    return found


def measure(program: str, path: Path) -> tuple[float | None, float]:
    """Seconds as the program reports them (None if it failed), and peak memory in MB."""
    # Modules are compiled once, as where the package is installed, not at every start.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, memory(process.pid))
        time.sleep(0.05)
    out = process.stdout.read().strip() if process.stdout else ""
    try:
        return float(out.splitlines()[-1]), peak
    except (ValueError, IndexError):
        print("   ", out or "no output", file=sys.stderr)
        return None, peak


def memory(pid: int) -> float:
    """MB held by a process and all below it; pages they share are counted once (PSS)."""
    total = 0
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += next(int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, StopIteration):
        return 0.0
    return total / 1024 + sum(memory(int(child)) for child in children)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("trace", type=Path, help="a real trace to replicate")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[10, 54, 210, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip-above", type=float, default=500, metavar="MB",
                        help="largest file for json.load and HTA")  # fmt: skip
    options = parser.parse_args()
    packed = options.trace.read_bytes()
    text = (gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed).decode()
    print(f"{'file':>8}  {'way':18} {'seconds':>8} {'MB/s':>6} {'x msgspec':>9} {'peak MB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in options.megabytes:
            path = Path(folder) / "trace.json"
            with path.open("w", encoding="utf-8") as file:
                file.writelines(replicate(text, megabytes))
            path.read_bytes()  # into the page cache
            report(path, options)


def report(path: Path, options: argparse.Namespace) -> None:
    """Measures one file and prints a line a way."""
    size = path.stat().st_size / 1e6
    best: dict[str, tuple[float, float]] = {}
    for _ in range(options.rounds):
        for way, program in ways().items():
            if size > options.skip_above and way in ("json.load", "HTA parse"):
                continue
            seconds, peak = measure(program, path)
            if seconds is not None:
                old = best.get(way, (seconds, peak))
                best[way] = (min(old[0], seconds), max(old[1], peak))
    floor = best["msgspec"][0]
    for way, (seconds, peak) in best.items():
        print(
            f"{size:6.0f} MB  {way:18} {seconds:8.2f} {size / seconds:6.0f} "
            f"{seconds / floor:9.2f} {peak:8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
