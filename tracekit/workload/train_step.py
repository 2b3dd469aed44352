"""The whole training loop on one page: build a ``Trainer`` for a rung, warm it up, step it.

``Trainer.train_on`` is the training step that every rung runs; the rung only decides what of it is
compiled, in which memory order, which optimizer kernels, and who launches it (see ``rungs.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tracekit.workload.data import ImageSet, load_images
from tracekit.workload.diffusion import TIMESTEPS, Schedule, denoising_loss
from tracekit.workload.ema import EMA
from tracekit.workload.errors import WorkloadError
from tracekit.workload.loaders import Loader, make_loader
from tracekit.workload.rungs import Rung
from tracekit.workload.unet import UNet, UNetConfig, flops_per_image

__all__ = ["PRESETS", "WARM_UP_STEPS", "Preset", "Trainer", "build"]

WARM_UP_STEPS = 8
"""Training steps of every warm-up, equal for all rungs so that they stay comparable.

Inductor's CUDA graphs need three (compile, warm up, record); the rest lets cuDNN's and Triton's
autotuning and the caching allocator come to rest.
"""


@dataclass(frozen=True)
class Preset:
    """A size of the workload: the network, images a step, and images in the stand-in data set."""

    name: str
    unet: UNetConfig
    batch: int
    images: int


PRESETS = {
    "cifar10": Preset("cifar10", UNetConfig(), batch=128, images=50_000),
    "tiny": Preset(
        "tiny",
        UNetConfig((32, 32), 1, (16,), heads=2, groups=8, time_channels=64),
        batch=8,
        images=512,
    ),
}


class Trainer:
    """A DDPM in training: network, data, optimizer and EMA, executed the way its rung says."""

    def __init__(
        self,
        rung: Rung,
        preset: Preset,
        images: ImageSet,
        *,
        device: torch.device,
        batch: int,
        seed: int = 0,
        loader: str = "resident",
        compile_backend: str = "inductor",
        autocast: torch.dtype | None = torch.bfloat16,
        workers: int = 4,
    ) -> None:
        self.rung, self.preset, self.batch, self.device, self.seed = (
            rung, preset, batch, device, seed,
        )  # fmt: skip
        self.autocast = autocast
        self.steps = 0
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(seed)  # seeds the CPU and every GPU: equal weights and noise on all rungs

        layout = torch.channels_last if rung.channels_last else torch.contiguous_format
        # Weights are drawn on the CPU, so that every device starts from the same network.
        self.model = UNet(preset.unet).to(device)
        self.model.to(memory_format=layout)  # type: ignore[call-overload]
        self.parameters = list(self.model.parameters())
        self.schedule = Schedule(device)
        self.loader: Loader = make_loader(loader, images, batch, seed, device, layout, workers)
        self.ema = EMA(self.parameters, decay=0.999)
        self.optimizer = make_optimizer(rung, self.parameters, device)
        self.loss_sum = torch.zeros((), device=device)
        self.loss_sum_host = 0.0
        self.loss_steps = 0

        self.denoise: Callable[[Tensor, Tensor], Tensor] = self.model
        self.forward: Callable[[Tensor], Tensor] = self.forward_batch
        if rung.compile is not None:
            # fullgraph: a graph break or a spent recompile limit is an error, never silently eager.
            def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
                mode = rung.compile if compile_backend == "inductor" else None
                return torch.compile(
                    function, backend=compile_backend, mode=mode, dynamic=False, fullgraph=True
                )

            if rung.scope == "model":
                self.denoise = compiled(self.model)
            else:
                self.forward = compiled(self.forward_batch)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.static_x0: Tensor | None = None

    def step(self) -> None:
        """One training step: next batch, noise it, forward, backward, clip, optimizer, EMA."""
        x0 = self.loader.next()
        if self.graph is not None and self.static_x0 is not None:
            self.static_x0.copy_(x0)
            self.graph.replay()
        else:
            self.train_on(x0)
        self.steps += 1
        self.loss_steps += 1

    def train_on(self, x0: Tensor) -> None:
        """Everything of a step after the batch ``[B, 3, 32, 32]`` has arrived on the device."""
        if self.rung.graph == "inductor":
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        loss = self.forward(x0)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        self.ema.update()
        if self.rung.sync_loss:
            self.loss_sum_host += loss.item()
        else:
            self.loss_sum.add_(loss.detach())
        # At the end, not the start: gradients may lie in a CUDA graph's memory, which the next
        # forward reuses; and a captured step must begin without gradients.
        self.optimizer.zero_grad(set_to_none=True)

    def forward_batch(self, x0: Tensor) -> Tensor:
        """Draw a time and noise for each image; the loss, a float32 scalar."""
        t = torch.randint(0, TIMESTEPS, (x0.shape[0],), device=x0.device)
        # randn of the shape, not randn_like: the same draw whatever the memory order of x0.
        noise = torch.randn(x0.shape, device=x0.device)
        return denoising_loss(self.denoise, self.schedule, x0, t, noise, self.autocast)

    def warm_up(self, progress: Callable[[str], None] | None = None) -> None:
        """Compile, autotune and capture; takes ``WARM_UP_STEPS`` real training steps.

        Afterwards a ``step()`` compiles, tunes and captures nothing. Waits for the device.
        """
        say = progress or (lambda message: None)
        say(f"rung {self.rung.key}: warming up" + (", compiling" if self.rung.compile else ""))
        if self.rung.graph == "step":
            self.capture(say)
        else:
            for _ in range(WARM_UP_STEPS):
                self.step()
        self.synchronize()
        say(f"rung {self.rung.key}: ready, loss {self.loss():.4f}")

    def capture(self, say: Callable[[str], None]) -> None:
        """Compile first, capture second: warm up on a side stream, then record the step on it."""
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        # Everything that ever ran for these weights ran on this stream: a gradient node that was
        # born on the default stream would pull it into the capture and end it.
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                self.step()
            self.static_x0 = self.empty_batch().zero_()
        side.synchronize()
        say(f"rung {self.rung.key}: capturing the step")
        graph = torch.cuda.CUDAGraph()
        # thread_local: a DataLoader's pinning thread may allocate meanwhile. The default generator
        # is registered with the graph, so that each replay draws new times, noise and dropout.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            self.train_on(self.static_x0)
        torch.cuda.current_stream(self.device).wait_stream(side)
        self.graph = graph

    def empty_batch(self) -> Tensor:
        """Uninitialised memory with the shape and strides of a batch."""
        layout = torch.channels_last if self.rung.channels_last else torch.contiguous_format
        size = self.preset.unet.image_size
        return torch.empty(self.batch, 3, size, size, device=self.device, memory_format=layout)

    def loss(self) -> float:
        """Mean loss of the steps since the last call, NaN if there were none; may wait."""
        total = self.loss_sum_host if self.rung.sync_loss else float(self.loss_sum)
        mean = total / self.loss_steps if self.loss_steps else float("nan")
        self.loss_sum.zero_()
        self.loss_sum_host, self.loss_steps = 0.0, 0
        return mean

    def synchronize(self) -> None:
        """Wait until the device has finished everything queued."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def flops_per_step(self) -> int:
        """Operations of a step, forward and backward, attention included; a multiply-add is two."""
        return self.batch * flops_per_image(self.preset.unet, backward=True)


def make_optimizer(
    rung: Rung, parameters: list[torch.nn.Parameter], device: torch.device
) -> torch.optim.AdamW:
    """AdamW at 2e-4 without weight decay, with the rung's kernels.

    For a captured step the counters and the learning rate live on the device: a learning rate that
    was a Python number would be frozen into the graph.
    """
    lr: float | Tensor = 2e-4
    if rung.graph == "step":
        lr = torch.tensor(2e-4, device=device)
    return torch.optim.AdamW(
        parameters,
        lr=lr,
        weight_decay=0.0,
        foreach=rung.optimizer == "foreach" or None,
        fused=rung.optimizer == "fused" or None,
        capturable=rung.graph == "step",
    )


def build(
    rung: Rung,
    *,
    preset: str = "cifar10",
    device: str = "cuda",
    batch: int | None = None,
    data: str | None = None,
    seed: int = 0,
    loader: str | None = None,
    compile_backend: str = "inductor",
    autocast: bool | None = None,
    images: ImageSet | None = None,
) -> Trainer:
    """A ``Trainer`` for ``rung``.

    ``data`` as in ``data.load_images``; ``images`` passes a set already loaded. ``loader`` is one
    of ``loaders.LOADERS`` (default ``resident``). ``autocast`` runs the network in bf16; left out,
    it does so on CUDA and not on the CPU, where bf16 is emulated and 20 times slower. Raises
    ``WorkloadError`` with one sentence: unknown preset or device, no CUDA, no data.
    """
    if preset not in PRESETS:
        raise WorkloadError(f"There is no preset {preset!r}; the presets are {', '.join(PRESETS)}.")
    chosen = PRESETS[preset]
    place = usable_device(rung, device)
    batch = chosen.batch if batch is None else batch
    autocast = place.type == "cuda" if autocast is None else autocast
    if batch < 1:
        raise WorkloadError(f"A batch holds at least one image, not {batch}.")
    return Trainer(
        rung,
        chosen,
        images or load_images(data, max(chosen.images, batch)),
        device=place,
        batch=batch,
        seed=seed,
        loader=loader or "resident",
        compile_backend=compile_backend,
        autocast=torch.bfloat16 if autocast else None,
    )


def usable_device(rung: Rung, device: str) -> torch.device:
    """``device`` as torch's, or a ``WorkloadError`` where it is missing or the rung needs CUDA."""
    try:
        place = torch.device(device)
    except RuntimeError as unknown:
        raise WorkloadError(f"There is no device {device!r}; give cuda or cpu.") from unknown
    if place.type not in ("cuda", "cpu"):
        raise WorkloadError(f"The workload runs on cuda or cpu, not on {device!r}.")
    if place.type == "cuda" and not torch.cuda.is_available():
        raise WorkloadError(
            "No CUDA GPU was found (torch.cuda.is_available() is false); "
            "--device cpu --preset tiny runs rungs eager to 3 without one."
        )
    if rung.needs_cuda and place.type != "cuda":
        raise WorkloadError(
            f"Rung {rung.key} ({rung.name}) needs a CUDA GPU: CUDA graphs do not exist on "
            f"{place.type}; rungs eager to 3 run there."
        )
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise WorkloadError(
            f"There is no {device}; this machine has {torch.cuda.device_count()} GPU(s)."
        )
    return place
