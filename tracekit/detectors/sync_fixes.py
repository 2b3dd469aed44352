"""What to do about a wait of the host, by the op that waits: SYN001's advice."""

from __future__ import annotations

from tracekit.detectors.finding import Fix

_ITEM = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal")
_INDEX = (
    "aten::nonzero", "aten::masked_select", "aten::unique", "aten::_unique2", "aten::index",
    "aten::_index_put_impl_",
)  # fmt: skip


def _is_item(chain: tuple[str, ...]) -> bool:
    return any(op in _ITEM for op in chain)


def _is_index(chain: tuple[str, ...]) -> bool:
    return any(op.startswith(_INDEX) for op in chain)


def action(chain: tuple[str, ...], api: str) -> str:
    """What to do, as one sentence."""
    if _is_index(chain):
        return "Replace the boolean mask or nonzero by torch.where or a fixed-size index."
    if _is_item(chain):
        return "Keep the number on the GPU; read it every few hundred steps."
    if "emcpy" in api or any("copy" in op or op == "aten::to" for op in chain):
        return "Copy from and to pinned memory with non_blocking=True, and read the result later."
    return "Remove the explicit synchronisation from the step."


def fixes(chain: tuple[str, ...], api: str) -> tuple[Fix, ...]:
    """The code for it."""
    if _is_index(chain):
        return (
            Fix(
                title="torch.where instead of a boolean mask",
                code=(
                    "loss = torch.where(mask, per_item, 0.0).sum() / mask.sum()\n"
                    "# was: loss = per_item[mask].mean()"
                ),
                applies_when="the masked values are only reduced afterwards",
                numerics="sums in another order: the last bits",
            ),
        )
    if _is_item(chain):
        return (
            Fix(
                title="accumulate on the device, read rarely",
                code=(
                    "running += loss.detach()    # stays on the GPU; was: running += loss.item()\n"
                    "if step % 200 == 0:\n"
                    "    print((running / 200).item()); running.zero_()"
                ),
                applies_when="the number is for logging, not for a decision in the same step",
                numerics="nothing",
            ),
        )
    if "emcpy" in api or any("copy" in op or op == "aten::to" for op in chain):
        return (
            Fix(
                title="pinned memory and non_blocking",
                code=(
                    "loader = DataLoader(dataset, pin_memory=True, num_workers=4)\n"
                    "x = x.to('cuda', non_blocking=True)"
                ),
                applies_when="the host does not read the result at once",
                numerics="nothing",
            ),
        )
    return (
        Fix(
            title="no synchronize inside the step",
            code=(
                "start.record(); train_step(); end.record()     # CUDA events; read them later\n"
                "# torch.cuda.synchronize()  <- remove, or call it once every few hundred steps"
            ),
            applies_when="the call is there for timing or logging",
            numerics="nothing",
        ),
    )
