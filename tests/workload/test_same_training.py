"""The same-training check itself: it passes for equal rungs and fails for a different one."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from tests.workload.small import SMALL
from tracekit.workload import same_training, train_step

GIVEN = ["--rungs", "2", "--steps", "10", "--preset", "tiny", "--device", "cpu",
         "--data", "synthetic", "--compile-backend", "aot_eager"]  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(train_step.PRESETS, "tiny", SMALL)
    monkeypatch.setattr(same_training, "FIXED_IMAGES", 16)


def test_equal_rungs_agree() -> None:
    import json

    done = CliRunner().invoke(same_training.main, GIVEN, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [run["rung"] for run in result["runs"]] == ["0", "0", "2"]
    assert result["agrees"]
    assert all(run["steps"] == 10 and len(run["curve"]) == 2 for run in result["runs"])
    assert result["runs"][2]["ema_updates"] == 10
    # Rungs 0 and 2 draw the same noise on a CPU, so they differ by rounding alone.
    assert abs(result["runs"][2]["relative_difference"]) < 1e-3


def test_a_rung_that_trains_otherwise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train_step.make_optimizer

    def other(rung: Any, *rest: Any) -> Any:
        made = whole(rung, *rest)
        if rung.key == "2":
            made.param_groups[0]["lr"] = 5e-2
        return made

    monkeypatch.setattr(train_step, "make_optimizer", other)
    done = CliRunner().invoke(same_training.main, GIVEN, catch_exceptions=False)
    assert done.exit_code == 1
