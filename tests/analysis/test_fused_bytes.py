"""What one kernel in place of a chain moves, by hand."""

from __future__ import annotations

from tracekit.analysis.bytes import Traffic
from tracekit.analysis.fused_bytes import fused_bytes
from tracekit.analysis.opargs import Tensor

ROWS, WIDTH = 1000, 100
N = ROWS * WIDTH


def tensor(*shape: int, item: int = 4) -> Tensor:
    return Tensor(shape, item, None, "float")


def made(shape: tuple[int, ...], *inputs: Tensor, item: int = 4) -> Traffic:
    size = 1
    for extent in shape:
        size *= extent
    return Traffic("pointwise", inputs, shape, size * item, False)


X = tensor(ROWS, WIDTH)
ROW = tensor(ROWS, 1)
WHOLE, NARROW = (ROWS, WIDTH), (ROWS, 1)


def test_a_norm_reads_its_input_again() -> None:
    """h * rsqrt(mean(h * h)): h from memory once, or again for the last product."""
    parts = [made(WHOLE, X), made(NARROW, X), made(NARROW, ROW), made(WHOLE, X, ROW)]
    found = fused_bytes(parts)
    row = 4 * ROWS
    # square N + N, mean N + row, rsqrt row + row, mul N + row + N.
    assert found.now == 4 * (5 * N) + 4 * row
    assert found.least == 4 * 2 * N  # h in, result out
    assert found.likely == 4 * 2 * N + 4 * N // 2
    # h twice, and all of square, mean, rsqrt and result written
    assert found.most == 4 * (2 * N + 2 * N) + 2 * row


def test_a_gate_s_product_may_read_another_tensor() -> None:
    found = fused_bytes([made(WHOLE, X), made(WHOLE, X, X)])  # silu(gate) * up
    assert (found.least, found.likely) == (4 * 2 * N, 4 * 5 * N // 2)
    assert found.most == 4 * 4 * N
    assert found.now == 4 * 5 * N


def test_tensors_read_at_once_are_different_ones() -> None:
    assert fused_bytes([made(WHOLE, X, X, X)]).least == 4 * 4 * N


def test_another_type_is_another_tensor() -> None:
    half = tensor(ROWS, WIDTH, item=2)
    # cast to fp32, then a product with a tensor of the narrow type that was not read before
    found = fused_bytes([made(WHOLE, X, item=4), made(WHOLE, X, half, item=4)])
    assert found.least == 4 * N + 2 * N + 4 * N


def test_never_more_than_now() -> None:
    parts = [made(WHOLE, X), made(WHOLE, X)]
    found = fused_bytes(parts)
    assert found.least <= found.likely <= found.most <= found.now
