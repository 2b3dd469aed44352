"""Diagnose the recorded corpus and score it; needs no GPU and no torch.

    python -m benchmarks.pathologies.score DIR [--json OUT] [--markdown docs/pathologies.md]

Exit 1 where the corpus is below a limit.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

import tracekit
from benchmarks.pathologies import score_report
from benchmarks.pathologies.scoring import POINTS, Limits, Row, Said, Total, said, score
from benchmarks.pathologies.truths import FILE, Pair, Truths, from_json, trace_name


def diagnosed(path: Path) -> tuple[Said, ...]:
    """What tracekit says of one trace; the manifest in it holds the step's unprofiled time."""
    return said(tracekit.diagnose(path).findings)


def score_pair(folder: Path, pair: Pair, points: float) -> Row:
    """Score one pair; a trace that is missing or cannot be diagnosed is the row's error."""
    if pair.saving_percent is None:
        return score(pair, (), (), points=points)
    try:
        first, second = (diagnosed(folder / trace_name(pair.name, v)) for v in pair.variants)
    except Exception as failure:  # one bad trace must not hide the score of the others
        why = f"{type(failure).__name__}: {failure}"
        return Row(pair, pair.saving_percent, None, error=why, points=points)
    return score(pair, first, second, points=points)


def score_corpus(folder: Path, *, points: float = POINTS, limits: Limits | None = None,
                 ) -> tuple[Truths, Total]:  # fmt: skip
    """Score every pair of the folder's truths.json."""
    truths = from_json((folder / FILE).read_text(encoding="utf-8"))
    rows = tuple(score_pair(folder, pair, points) for pair in truths.pairs)
    return truths, Total(rows, limits or Limits())


@click.command(help="Score the recorded corpus in FOLDER.")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--json", "json_out", type=click.Path(path_type=Path), help="Also as JSON.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Also as a page.")
@click.option(
    "--points", default=POINTS, show_default=True, help="How far a prediction may be off."
)
@click.option("--min-within", default=0.9, show_default=True, help="Share of predictions in that.")
@click.option("--min-found", default=0.9, show_default=True, help="Share of faults to be found.")
@click.option("--max-false-alarms", default=0, show_default=True)
@click.option("--max-overstated", default=0, show_default=True)
@click.option("--max-left", type=int, help="Healthy twins still said to have the fault.")
def main(
    folder: Path,
    json_out: Path | None,
    markdown: Path | None,
    points: float,
    min_within: float,
    min_found: float,
    max_false_alarms: int,
    max_overstated: int,
    max_left: int | None,
) -> None:
    """See the module's docstring."""
    limits = Limits(min_within, min_found, max_false_alarms, max_overstated, max_left)
    try:
        truths, total = score_corpus(folder, points=points, limits=limits)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{folder / FILE}: {error}") from error
    click.echo(score_report.text(total))
    if json_out is not None:
        answer = json.dumps(score_report.as_json(total, truths), indent=1)
        json_out.write_text(answer + "\n", encoding="utf-8")
    if markdown is not None:
        markdown.write_text(score_report.markdown(total, truths, points), encoding="utf-8")
    if total.misses:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
