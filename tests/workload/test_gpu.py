"""What only a CUDA GPU can show. Run with: pytest -m gpu tests/workload"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tracekit.workload.checkpoint import load_checkpoint, save_checkpoint
from tracekit.workload.data import ImageSet, load_images
from tracekit.workload.ladder import gpu_work_ms, record
from tracekit.workload.loaders import make_loader
from tracekit.workload.rungs import RUNGS, rung
from tracekit.workload.same_training import fixed_loss
from tracekit.workload.train_step import WARM_UP_STEPS, Trainer, build

# Inductor and the profiler warn on some GPUs (TF32 off, few SMs); that is not what is tested here.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
]


@pytest.fixture(scope="module")
def images() -> ImageSet:
    return load_images("synthetic", 4096)


def tiny(key: str, images: ImageSet, seed: int = 0) -> Trainer:
    return build(rung(key), preset="tiny", device="cuda", images=images, seed=seed)


@pytest.fixture(scope="module")
def graphed(images: ImageSet) -> Trainer:
    built = tiny("5", images)
    built.warm_up()
    return built


@pytest.mark.parametrize("key", list(RUNGS))
@pytest.mark.parametrize("preset", ["tiny", "cifar10"])
def test_every_rung_warms_up_and_steps(key: str, preset: str, images: ImageSet) -> None:
    built = build(rung(key), preset=preset, device="cuda", batch=8, images=images)
    built.warm_up()
    compiled = torch._dynamo.utils.counters["frames"]["total"]
    for _ in range(3):
        built.step()
    built.synchronize()
    assert 0 < built.loss() < 2
    assert built.steps == WARM_UP_STEPS + 3
    assert built.ema.updates.item() == built.steps
    assert torch._dynamo.utils.counters["frames"]["total"] == compiled
    assert (built.graph is not None) == (key == "5")


def test_two_replays_draw_different_noise(graphed: Trainer) -> None:
    # With nothing learnt and the same images, only the noise, times and dropout can differ.
    for group in graphed.optimizer.param_groups:
        group["lr"].zero_()
    assert graphed.graph is not None
    assert graphed.static_x0 is not None
    graphed.static_x0.copy_(graphed.loader.next())
    losses = []
    for _ in range(6):
        graphed.loss()
        graphed.graph.replay()
        graphed.loss_steps = 1
        losses.append(graphed.loss())
    for group in graphed.optimizer.param_groups:
        group["lr"].fill_(2e-4)
    assert len(set(losses)) == 6


def test_noise_of_a_replay_is_normal_and_follows_the_seed() -> None:
    drawn = torch.empty(1 << 16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn.copy_(torch.randn(1 << 16, device="cuda"))

    def replay() -> Tensor:
        graph.replay()
        return drawn.clone()

    torch.manual_seed(1)
    first, second = replay(), replay()
    torch.manual_seed(1)
    again = replay()
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert abs(second.mean().item()) < 0.02
    assert abs(second.std().item() - 1) < 0.02


def test_a_replay_trains_and_the_learning_rate_is_not_frozen(graphed: Trainer) -> None:
    def moved() -> float:
        before = [p.detach().clone() for p in graphed.parameters]
        graphed.step()
        return sum((a - b).abs().sum().item() for a, b in zip(before, graphed.parameters,
                                                              strict=True))  # fmt: skip

    assert moved() > 0
    for group in graphed.optimizer.param_groups:
        group["lr"].zero_()
    assert moved() == 0
    for group in graphed.optimizer.param_groups:
        group["lr"].fill_(2e-4)


def test_the_ema_does_not_freeze_under_the_graph(images: ImageSet) -> None:
    built = tiny("5", images, seed=2)
    built.warm_up()
    at, decay = built.ema.updates.item(), built.ema.decay
    averages = [a.double().clone() for a in built.ema.averages]
    for _ in range(40):
        built.step()
        for average, weight in zip(averages, built.parameters, strict=True):
            average.lerp_(weight.detach().double(), 1 - decay)
    assert built.ema.updates.item() == at + 40
    scale = 1 / (1 - decay ** (at + 40))
    for mine, expected in zip(built.ema.weights(), averages, strict=True):
        torch.testing.assert_close(mine.double(), expected * scale, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("key", ["1", "2", "3", "4", "5"])
def test_rungs_train_as_rung_0_does(key: str, images: ImageSet) -> None:
    losses = []
    for each in ("0", key):
        built = tiny(each, images)
        built.warm_up()
        while built.steps < 200:
            built.step()
        losses.append(fixed_loss(built, images, seed=0))
    assert losses[0] < 0.6  # it has learnt something: the start is 1
    assert losses[1] == pytest.approx(losses[0], rel=0.1)


def test_a_graphed_run_resumes_after_its_capture(tmp_path: Path, images: ImageSet) -> None:
    built = tiny("5", images, seed=3)
    built.warm_up()
    save_checkpoint(built, tmp_path / "ddpm.pt")

    def next_losses() -> list[float]:
        found = []
        for _ in range(5):
            built.step()
            found.append(built.loss())
        return found

    expected = next_losses()
    load_checkpoint(built, tmp_path / "ddpm.pt")
    assert next_losses() == pytest.approx(expected, rel=1e-3)


def test_loaders_agree_on_the_gpu(images: ImageSet) -> None:
    device = torch.device("cuda")
    resident, host = (
        make_loader(kind, images, 64, 0, device, torch.channels_last, workers=0)
        for kind in ("resident", "dataloader")
    )
    for _ in range(70):  # over an epoch's end
        assert torch.equal(resident.next(), host.next())


def test_the_resident_loader_never_waits(images: ImageSet) -> None:
    source = make_loader("resident", images, 64, 0, torch.device("cuda"), torch.channels_last)
    source.next()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(70):  # over an epoch's end
            source.next()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("key", ["3", "5"])
def test_a_step_never_waits(key: str, images: ImageSet, graphed: Trainer) -> None:
    built = graphed if key == "5" else tiny(key, images)
    if key != "5":
        built.warm_up()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            built.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_recording_holds_the_gpu_work(graphed: Trainer, tmp_path: Path) -> None:
    record(graphed, tmp_path / "trace.json.gz")
    work = gpu_work_ms(tmp_path / "trace.json.gz")
    assert work is not None
    assert work > 0.05
