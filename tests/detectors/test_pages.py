"""Every detector's docstring is a page of the same sections in the same order."""

from __future__ import annotations

import dataclasses
import re
from types import ModuleType

import pytest

from tracekit.detectors.registry import modules

SECTIONS = [
    "What it detects",
    "Why it matters",
    "How it is measured",
    "Example",
    "Fix",
    "False positives",
    "References",
]
_HEADING = re.compile(rf"^## ({'|'.join(SECTIONS)})$", re.MULTILINE)

every_detector = pytest.mark.parametrize("module", modules(), ids=lambda m: m.CODE)


@every_detector
def test_sections(module: ModuleType) -> None:
    page = module.__doc__ or ""
    assert page.startswith(f"{module.CODE} {module.NAME}: ")
    assert _HEADING.findall(page) == SECTIONS
    # No heading of another name in it.
    marked = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert marked == SECTIONS


@every_detector
def test_no_section_is_empty(module: ModuleType) -> None:
    _, *rest = _HEADING.split(module.__doc__ or "")
    bodies = dict(zip(rest[::2], rest[1::2], strict=True))
    assert all(body.strip() for body in bodies.values()), bodies


@every_detector
def test_thresholds_say_their_unit_and_source(module: ModuleType) -> None:
    for threshold in dataclasses.fields(module.Config):
        assert threshold.metadata["unit"], threshold.name
        assert threshold.metadata["source"], threshold.name


def test_codes_are_unique() -> None:
    codes = [m.CODE for m in modules()]
    assert len(set(codes)) == len(codes)
