"""The training step: rungs agree, and each does what its configuration says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.workload.small import SMALL, images, trainer
from tracekit.workload.diffusion import denoising_loss
from tracekit.workload.errors import WorkloadError
from tracekit.workload.rungs import rung
from tracekit.workload.train_step import WARM_UP_STEPS, Trainer, build, make_optimizer

CPU_RUNGS = ("eager", "0", "1", "2", "3")


def awaken(built: Trainer) -> None:
    """Give the zeroed layers weights, so that every parameter has a gradient."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in built.parameters:
            if not parameter.any():
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(0.05 * drawn)


def first_gradients(built: Trainer) -> tuple[float, list[Tensor]]:
    """Loss and gradients of one fixed batch."""
    awaken(built)
    torch.manual_seed(11)
    loss = built.forward(built.loader.next())
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in built.parameters]
    assert all(g is not None for g in gradients)
    return loss.item(), [g for g in gradients if g is not None]


@pytest.fixture(scope="module")
def reference() -> tuple[float, list[Tensor]]:
    return first_gradients(trainer("eager"))


# 2 and 3 compile what 1 compiled, and take it from the cache.
@pytest.mark.parametrize("key", CPU_RUNGS[1:])
def test_first_gradients_agree_with_eager_in_float32(
    key: str, reference: tuple[float, list[Tensor]]
) -> None:
    loss, gradients = first_gradients(trainer(key))
    assert loss == pytest.approx(reference[0], rel=1e-5)
    for mine, theirs in zip(gradients, reference[1], strict=True):
        assert theirs.abs().max() > 0
        torch.testing.assert_close(
            mine.contiguous(), theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max())
        )


def test_compiling_the_whole_forward_batch_changes_nothing(
    reference: tuple[float, list[Tensor]],
) -> None:
    # What rungs 4 and 5 compile, without the CUDA graphs that a CPU does not have.
    loss, gradients = first_gradients(trainer(replace(rung("5"), graph="none", needs_cuda=False)))
    assert loss == pytest.approx(reference[0], rel=1e-5)
    torch.testing.assert_close(
        gradients[0], reference[1][0], rtol=1e-3, atol=1e-4 * float(reference[1][0].abs().max())
    )


def test_rungs_start_from_the_same_weights_and_images() -> None:
    plain, fast = trainer("eager"), trainer("3")
    for a, b in zip(plain.parameters, fast.parameters, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(plain.loader.next(), fast.loader.next())
    assert fast.loader.next().is_contiguous(memory_format=torch.channels_last)
    assert fast.model.stem.weight.is_contiguous(memory_format=torch.channels_last)


def test_training_lowers_the_loss_on_a_fixed_batch() -> None:
    built = trainer("eager")
    for group in built.optimizer.param_groups:
        group["lr"] = 2e-3
    torch.manual_seed(0)
    x0, noise, t = built.loader.next(), torch.randn(4, 3, 32, 32), torch.tensor([50, 300, 600, 900])

    def fixed(x0: Tensor) -> Tensor:
        return denoising_loss(built.denoise, built.schedule, x0, t, noise)

    built.forward = fixed
    before = fixed(x0).item()
    for _ in range(25):
        built.train_on(x0)
    assert fixed(x0).item() < 0.5 * before


@pytest.mark.parametrize("key", ["eager", "2"])
def test_loss_is_the_mean_since_it_was_last_read(key: str) -> None:
    built = trainer(replace(rung(key), compile=None))
    losses = iter([1.0, 2.0, 6.0, 4.0])
    weight = built.parameters[0]
    built.forward = lambda x0: weight.sum() * 0 + next(losses)
    for parameter in built.parameters[1:]:
        parameter.requires_grad_(False)
    assert built.loss() != built.loss()  # NaN: no steps yet
    for _ in range(3):
        built.step()
    assert built.loss() == pytest.approx(3)
    built.step()
    assert built.loss() == pytest.approx(4)


def test_a_step_clips_counts_and_leaves_no_gradient() -> None:
    built = trainer("eager")
    seen: list[float] = []
    built.optimizer.register_step_pre_hook(
        lambda *_: seen.append(
            torch.nn.utils.get_total_norm(
                [p.grad for p in built.parameters if p.grad is not None]
            ).item()
        )
    )
    loss = built.forward
    built.forward = lambda x0: 1e4 * loss(x0)
    built.step()
    assert seen[0] == pytest.approx(1, abs=1e-3)
    assert built.steps == 1
    assert built.ema.updates.item() == 1
    assert all(p.grad is None for p in built.parameters)


def test_warm_up_takes_a_fixed_number_of_steps_and_tells() -> None:
    built = trainer("eager")
    told: list[str] = []
    built.warm_up(told.append)
    assert built.steps == WARM_UP_STEPS
    assert told[0] == "rung eager: warming up"
    assert told[-1].startswith("rung eager: ready, loss ")
    assert built.loss() != built.loss()


def test_a_captured_step_keeps_its_learning_rate_on_the_device() -> None:
    parameters = list(trainer("eager").model.parameters())
    captured = make_optimizer(rung("5"), parameters, torch.device("cpu")).param_groups[0]
    assert isinstance(captured["lr"], Tensor)
    assert captured["lr"].item() == pytest.approx(2e-4)
    assert captured["capturable"]
    assert captured["fused"]
    plain = make_optimizer(rung("2"), parameters, torch.device("cpu")).param_groups[0]
    assert plain["foreach"]
    assert not plain["fused"]
    assert not plain["capturable"]


def test_static_input_looks_like_a_batch() -> None:
    built = trainer("3")
    batch, static = built.loader.next(), built.empty_batch()
    assert static.shape == batch.shape
    assert static.stride() == batch.stride()
    assert static.dtype == batch.dtype


def test_flops_per_step_scale_with_the_batch() -> None:
    assert (
        trainer("eager", batch=4).flops_per_step() * 2 == trainer("eager", batch=8).flops_per_step()
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="the messages of a machine without a GPU")
@pytest.mark.parametrize(
    ("key", "given", "message"),
    [
        ("0", {}, "No CUDA GPU was found .* --device cpu --preset tiny"),
        ("5", {"device": "cpu"}, "Rung 5 .* needs a CUDA GPU: .*rungs eager to 3 run there"),
        ("0", {"device": "toaster"}, "no device 'toaster'"),
        ("0", {"device": "mps"}, "cuda or cpu, not on 'mps'"),
        ("0", {"device": "cpu", "preset": "huge"}, "no preset .huge.; .* cifar10, tiny"),
        ("0", {"device": "cpu", "batch": 0}, "at least one image, not 0"),
        ("0", {"device": "cpu", "data": "/nowhere"}, "no data set at /nowhere"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_one_sentence(key: str, given: dict[str, object], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        build(rung(key), **given)  # type: ignore[arg-type]


def test_build_takes_the_presets_batch_and_trains_in_float32_on_the_cpu() -> None:
    built = build(rung("eager"), preset="tiny", device="cpu", images=images(), seed=4)
    assert (built.batch, built.autocast, built.seed) == (8, None, 4)
    assert built.preset.unet.channels == (32, 32)
    assert SMALL.name == built.preset.name
