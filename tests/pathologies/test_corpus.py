"""The recorded corpus: what findings promise comes true.

`fixtures/` holds the traces and truths.json of `benchmarks.pathologies.record` on one GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pathologies import score_report
from benchmarks.pathologies.score import score_corpus
from benchmarks.pathologies.scoring import Total
from benchmarks.pathologies.truths import FILE

FIXTURES = Path(__file__).parent / "fixtures"
MOST_BYTES = 5_500_000

pytestmark = pytest.mark.skipif(
    not (FIXTURES / FILE).exists(), reason="the corpus has not been recorded on a GPU yet"
)


@pytest.fixture(scope="module")
def total() -> Total:
    return score_corpus(FIXTURES)[1]


def test_nine_in_ten_predictions_come_true(total: Total) -> None:
    assert not [row.pair.name for row in total.rows if row.error]
    assert total.within >= 0.9, score_report.text(total)


def test_healthy_controls_stay_silent(total: Total) -> None:
    assert total.false_alarms == 0, score_report.text(total)


def test_a_cheap_fault_is_a_note_at_most(total: Total) -> None:
    assert total.overstated == 0, score_report.text(total)


def test_faults_that_cost_something_are_found(total: Total) -> None:
    assert total.found >= 0.9, score_report.text(total)


def test_the_fixtures_are_small() -> None:
    assert sum(path.stat().st_size for path in FIXTURES.iterdir()) < MOST_BYTES
