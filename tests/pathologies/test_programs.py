"""Every program builds and steps, and its variants compute the same."""

from __future__ import annotations

import warnings

import pytest
import torch

from benchmarks.pathologies.case import Program
from benchmarks.pathologies.registry import PROGRAMS, choose

CPU = torch.device("cpu")
STEPS = 3
CODE_LENGTH = 6


def results(program: Program, variant: str, device: torch.device = CPU) -> list[torch.Tensor]:
    case = program.make(variant, device)
    with case.around(), warnings.catch_warnings():
        # torch's own, from inside Dynamo
        warnings.simplefilter("ignore")
        return [case.step().detach().clone() for _ in range(STEPS)]


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=lambda program: program.name)
def test_both_variants_compute_the_same(program: Program) -> None:
    first, second = (results(program, variant) for variant in program.variants)
    for before, after in zip(first, second, strict=True):
        assert torch.isfinite(before).all()
        torch.testing.assert_close(before.float(), after.float(), rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=lambda program: program.name)
def test_both_variants_start_alike_on_the_gpu(program: Program) -> None:
    # bf16 and TF32 round differently, and a captured step has been warmed up already
    first, second = (
        results(program, variant, torch.device("cuda"))[0].float().cpu()
        for variant in program.variants
    )
    assert torch.isfinite(first).all()
    torch.testing.assert_close(first, second, rtol=0.1, atol=0.05)


def test_a_training_step_trains() -> None:
    losses = results(PROGRAMS["tiny_mlp"], "faulty")
    assert losses[-1] < losses[0]


def test_the_74_parameters_are_74() -> None:
    assert len(results(PROGRAMS["gradient_norms"], "faulty")[0]) == 74


def test_descriptions() -> None:
    for program in PROGRAMS.values():
        assert program.fault
        assert program.reason.endswith(".")
        assert program.control == bool(program.twin_tests)
        assert all(len(code) == CODE_LENGTH for code in program.expected)


def test_an_unknown_variant_or_name_is_refused() -> None:
    with pytest.raises(ValueError, match="twin"):
        PROGRAMS["tiny_mlp"].make("twin", CPU)
    with pytest.raises(ValueError, match="nonsense"):
        choose(["nonsense"])
    assert [program.name for program in choose(["tiny_mlp", "item_balanced"])] == [
        "item_balanced",
        "tiny_mlp",
    ]
