"""Measure every pair, then record both variants.

    python -m benchmarks.pathologies.record -o DIR [--only NAME]... [--tar corpus.tar]

All pairs are built and measured before the first is recorded: a profiler that has run once stays
attached to the driver, and would slow what is measured after it. Writes `NAME.VARIANT.json.gz`
and `truths.json` (see `truths`); a pair that fails is reported there, and the rest go on.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import re
import tarfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import torch

from benchmarks.pathologies import truths
from benchmarks.pathologies.case import SEED, Case, Program
from benchmarks.pathologies.interleave import Timed, interleaved, warm_up
from benchmarks.pathologies.registry import PROGRAMS, choose
from tracekit.profiler import About, Options, Phase, Plan, Recorder, environment
from tracekit.profiler.destination import prepare, resolve
from tracekit.profiler.statistics import mean_interval, median_interval
from tracekit.profiler.timing import Unprofiled

PROFILER_WAIT, PROFILER_WARM_UP = 3, 2
MEASURING_SHARE = 0.65
"""Share of `--seconds` after which no further pair is built, so that recording has its time."""


@dataclass
class Pair:
    """A program with its variants built, and what became of it."""

    program: Program
    cases: tuple[Case, Case] | None = None
    timed: Timed | None = None
    error: str | None = None


def measure(pair: Pair, settings: Settings) -> None:
    """Build, warm up and time both variants."""
    program = pair.program
    first, second = (program.make(variant, settings.device) for variant in program.variants)
    for case in (first, second):
        warm_up(case)
    pair.timed = interleaved(first, second, rounds=settings.rounds, seconds=settings.block_seconds)
    pair.cases = (first, second)


def unprofiled(samples: Sequence[float]) -> Unprofiled:
    """The interleaved blocks' times, in the form the manifest has for steps without profiler."""
    median, mean = median_interval(samples), mean_interval(samples)
    rounded = [round(sample, 6) for sample in samples]
    return Unprofiled(median, mean.median, rounded, rounded, "block")


def record_variant(pair: Pair, index: int, settings: Settings, sizes: list[str]) -> None:
    """One variant's trace, with the interleaved times in its manifest; adds its size to `sizes`."""
    assert pair.cases is not None and pair.timed is not None
    name, variant = pair.program.name, pair.program.variants[index]
    case = pair.cases[index]
    # worked out here: its 1.5 ms would be host time of every recorded step
    measured = unprofiled((pair.timed.first, pair.timed.second)[index])
    destination = resolve(
        settings.folder / truths.trace_name(name, variant), environment.Rank(0, 1)
    )
    prepare(destination)
    recorder = Recorder(
        Plan(PROFILER_WAIT, 0, PROFILER_WARM_UP, pair.program.steps or settings.steps),
        destination,
        options=Options(),
        about=About(
            step_on="record",
            command=["benchmarks.pathologies.record", "--only", name],
            workload=f"pathologies/{name}.{variant}",
            seed=SEED,
        ),
    )
    with case.around():
        recorder.start()
        try:
            while not recorder.done:
                case.step()
                # measured before, in turns with the other variant: the plan measures nothing
                if recorder.phase in (Phase.WARMUP, Phase.RECORD):
                    recorder.unprofiled = measured
                recorder.step()
        except BaseException:
            recorder.stop("the program failed")
            raise
    if recorder.recording is None:
        raise RuntimeError(recorder.trouble or "nothing was recorded")
    destination.manifest.unlink()  # the trace file holds the same object
    anonymise(destination.trace)
    sizes.append(f"{destination.trace.stat().st_size / 1000:.0f} kB")


def anonymise(trace: Path) -> None:
    """Take out the machine's name and the user's in Inductor's paths: traces get committed."""
    text = gzip.decompress(trace.read_bytes())
    text = re.sub(rb'("host_name"\s*:\s*)"[^"]*"', rb'\1"host"', text)
    text = re.sub(rb'"[^"]*/torchinductor_[^/"]*/', rb'"torchinductor/', text)
    trace.write_bytes(gzip.compress(text, 9, mtime=0))


def pack(folder: Path, archive: Path) -> None:
    """All traces and truths.json in one file (the traces are compressed already)."""
    with tarfile.open(archive, "w") as tar:
        for path in sorted([*folder.glob("*.json.gz"), folder / truths.FILE]):
            tar.add(path, arcname=path.name)


@dataclass(frozen=True)
class Settings:
    """How to measure and record."""

    folder: Path
    device: torch.device
    steps: int = 3
    rounds: int = 9
    block_seconds: float = 0.08
    seconds: float = 540.0
    """pairs that cannot be measured and recorded in this time are left out"""


def run(programs: Sequence[Program], settings: Settings) -> truths.Truths:
    """Measure all, then record all; truths.json is up to date after every pair."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    pairs = [Pair(program) for program in programs]
    about = machine(settings.device)
    # cuDNN chooses its algorithms by trial during the warm-up, for both variants alike
    torch.backends.cudnn.benchmark = True
    for number, pair in enumerate(pairs, 1):
        start = time.perf_counter()
        if start - began > MEASURING_SHARE * settings.seconds:
            pair.error = "left out: the time was up"
            continue
        attempt(pair, "measuring", partial(measure, pair, settings))
        if pair.timed is not None:
            say_measured(pair, number, len(pairs), time.perf_counter() - start)
        write(pairs, settings, about)
    for number, pair in enumerate(pairs, 1):
        if pair.cases is None:
            continue
        start = time.perf_counter()
        sizes: list[str] = []
        for index in (0, 1):
            attempt(pair, "recording", partial(record_variant, pair, index, settings, sizes))
        pair.cases = None
        click.echo(
            f"{number}/{len(pairs)} {pair.program.name}: recorded {', '.join(sizes)} "
            f"({time.perf_counter() - start:.1f} s)"
        )
        write(pairs, settings, about)
    click.echo(f"{time.perf_counter() - began:.0f} s in all")
    return write(pairs, settings, about)


def attempt(pair: Pair, what: str, action: Callable[[], None]) -> None:
    """Do it; a failure is the pair's, and the others go on."""
    try:
        action()
    except Exception as failure:
        traceback.print_exc()
        first_line = next(iter(str(failure).splitlines()), "")
        pair.error = f"{what}: {type(failure).__name__}: {first_line}"
        click.echo(f"{pair.program.name}: failed while {pair.error}", err=True)
    gc.collect()


def write(pairs: Sequence[Pair], settings: Settings, about: dict[str, object]) -> truths.Truths:
    """truths.json as far as it is known."""
    found = truths.Truths(
        machine=about,
        command=f"python -m benchmarks.pathologies.record -o DIR --steps {settings.steps} "
        f"--rounds {settings.rounds}",
        pairs=tuple(truth(pair) for pair in pairs if pair.timed or pair.error),
    )
    (settings.folder / truths.FILE).write_text(found.to_json(), encoding="utf-8")
    return found


def say_measured(pair: Pair, number: int, of: int, seconds: float) -> None:
    """One line: both steps and what removing the fault saves."""
    assert pair.timed is not None
    saved, (first, second) = pair.timed.saving_percent, pair.program.variants
    click.echo(
        f"{number}/{of} {pair.program.name}: "
        f"{first} {median_interval(pair.timed.first).median:.3f} ms, "
        f"{second} {median_interval(pair.timed.second).median:.3f} ms, "
        f"saves {saved.median:.1f} % [{saved.low:.1f}, {saved.high:.1f}] ({seconds:.1f} s)"
    )


def machine(device: torch.device) -> dict[str, object]:
    """What it ran on; asks nvidia-smi, so once is enough."""
    gpu = environment.gpu() if device.type == "cuda" else None
    return {
        "device": gpu.name if gpu else device.type,
        "clocks_mhz": gpu.found if gpu else {},
        "driver": gpu.driver if gpu else None,
        "versions": environment.versions(),
    }


def truth(pair: Pair) -> truths.Pair:
    """The pair as truths.json holds it."""
    program, timed = pair.program, pair.timed
    return truths.Pair(
        name=program.name,
        fault=program.fault,
        expected=program.expected,
        reason=program.reason,
        variants=program.variants,
        twin_tests=program.twin_tests,
        first=truths.interval(median_interval(timed.first)) if timed else None,
        second=truths.interval(median_interval(timed.second)) if timed else None,
        saving_ms=truths.interval(timed.saving) if timed else None,
        saving_percent=truths.interval(timed.saving_percent) if timed else None,
        error=pair.error,
    )


@click.command(help="Measure and record the corpus: " + ", ".join(PROGRAMS))
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True)
@click.option("--only", multiple=True, metavar="NAME", help="Only this program; may be repeated.")
@click.option("--steps", default=3, show_default=True, help="Steps to record.")
@click.option("--rounds", default=9, show_default=True, help="Timed blocks of each variant.")
@click.option("--block-ms", default=80.0, show_default=True, help="Length of a timed block.")
@click.option("--device", default="cuda", show_default=True, help="cpu is for trying it out.")
@click.option("--seconds", default=540.0, show_default=True,
              help="Leave out what cannot be done in this time.")  # fmt: skip
@click.option("--tar", type=click.Path(path_type=Path), help="Also pack everything into this file.")
def main(
    out: Path,
    only: tuple[str, ...],
    steps: int,
    rounds: int,
    block_ms: float,
    device: str,
    seconds: float,
    tar: Path | None,
) -> None:
    """See the module's docstring."""
    try:
        programs = choose([name for part in only for name in part.split(",") if name])
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise click.UsageError("no CUDA GPU was found; --device cpu only tries the command out")
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.init()
        place = torch.device("cuda", torch.cuda.current_device())
    try:
        found = run(programs, Settings(out, place, steps, rounds, block_ms / 1e3, seconds))
    finally:
        if tar is not None:
            with contextlib.suppress(FileNotFoundError):
                pack(out, tar)
    if any(pair.error for pair in found.pairs):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
