"""Bytes from recorded arguments, memory formats, device peaks."""

from __future__ import annotations

import json

import pytest

from tracekit.analysis.bytes import traffic
from tracekit.analysis.device_peaks import peaks_of
from tracekit.analysis.opargs import memory_format, moves_memory_format, tensors


def text(*values: object) -> str:
    return json.dumps(values)


def test_a_product_of_two_tensors() -> None:
    found = traffic("aten::mul", text([4, 8], [4, 8]), text("float", "float"))
    assert found is not None
    assert (found.read, found.written, found.shape) == (2 * 128, 128, (4, 8))


def test_broadcasting_reads_the_small_input_once() -> None:
    found = traffic("aten::mul", text([4, 1], [4, 8]), text("c10::BFloat16", "c10::BFloat16"))
    assert found is not None
    assert (found.read, found.written) == (8 + 64, 64)


def test_an_expanded_input_is_read_once() -> None:
    found = traffic("aten::add", text([4, 8], [4, 8]), text("float", "float"), text([0, 1], [8, 1]))
    assert found is not None
    assert found.read == 8 * 4 + 32 * 4


def test_a_cast_writes_the_destination_type() -> None:
    found = traffic("aten::copy_", text([8], [8], []), text("float", "c10::Half", "Scalar"))
    assert found is not None
    assert (found.read, found.written) == (16, 32)


def test_a_comparison_writes_bools() -> None:
    found = traffic("aten::gt", text([8], []), text("float", "Scalar"))
    assert found is not None
    assert (found.read, found.written) == (32, 8)


@pytest.mark.parametrize(
    ("concrete", "shape"),
    [
        (text("", "[-1]", "True", ""), (4, 1)),
        (text("", "[1]", "False", ""), (4,)),
        (text("", "[]", "False", ""), ()),
        ("", None),
    ],
)
def test_a_reduction_needs_its_recorded_dimensions(
    concrete: str, shape: tuple[int, ...] | None
) -> None:
    found = traffic("aten::mean", text([4, 8], [], [], []), text("float", "", "", ""), "", concrete)
    assert found is not None
    assert found.shape == shape


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes"),
    [
        ("aten::mm", text([4, 4], [4, 4]), text("float", "float")),
        ("mul", text([4]), text("float")),
        ("aten::mul", "", ""),
        ("aten::mul", text([4]), text("quantum float")),
        ("aten::mul", "[[4", text("float")),
        ("aten::mul", text([3], [4]), text("float", "float")),
    ],
)
def test_what_is_not_known_is_not_judged(name: str, shapes: str, dtypes: str) -> None:
    assert traffic(name, shapes, dtypes) is None


def test_a_list_argument_counts_each_tensor() -> None:
    found = tensors(text([[2, 3], [4]], []), text("TensorList", "Scalar"), text([[3, 1], [1]], []))
    assert [t.shape for t in found] == [(2, 3), (4,)]
    assert found[0].strides == (3, 1)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((2, 3, 4, 5), (60, 20, 5, 1), "channels_first"),
        ((2, 3, 4, 5), (60, 1, 15, 3), "channels_last"),
        ((2, 1, 4, 5), (20, 20, 5, 1), "both"),
        ((2, 3, 1, 1), (3, 1, 1, 1), "both"),
        ((2, 3, 4, 5), (120, 1, 30, 6), "channels_last"),  # a slice of 6 channels
        ((2, 3, 4, 5), (0, 0, 0, 0), None),
        ((2, 3, 4), (12, 4, 1), None),
        ((2, 4, 3, 5), (60, 5, 20, 1), None),  # heads and positions exchanged
    ],
)
def test_memory_formats(
    shape: tuple[int, ...], strides: tuple[int, ...], expected: str | None
) -> None:
    assert memory_format(shape, strides) == expected


def test_a_transposition_of_heads_is_no_memory_format() -> None:
    shape = [2, 4, 3, 5]
    assert moves_memory_format(text(shape, shape), text([60, 15, 5, 1], [60, 5, 20, 1])) is False
    assert moves_memory_format(text(shape, shape), "") is None


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ],
)
def test_devices(name: str, device: str) -> None:
    found = peaks_of(name)
    assert found is not None and found.device == device and found.source


@pytest.mark.parametrize("name", [None, "", "AMD Radeon Graphics", "RTX 4070 Laptop GPU"])
def test_an_unknown_device_has_no_peaks(name: str | None) -> None:
    assert peaks_of(name) is None


def test_a_measured_copy_beats_the_data_sheet() -> None:
    h200, a100 = peaks_of("NVIDIA H200"), peaks_of("NVIDIA A100-SXM4-40GB")
    assert h200 is not None and h200.copy_bandwidth == 4260
    assert a100 is not None and a100.copy_bandwidth == pytest.approx(1555 * 0.9)
