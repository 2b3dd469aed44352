"""Every program of the corpus, in the order they run."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.pathologies.case import Program
from benchmarks.pathologies.programs import (
    convolutions,
    fusion,
    inputs,
    launches,
    memory,
    optimizers,
    precision,
    reductions,
    syncs,
)

PROGRAMS: dict[str, Program] = {
    program.name: program
    for family in (
        syncs,
        optimizers,
        inputs,
        precision,
        memory,
        reductions,
        launches,
        convolutions,
        fusion,
    )
    for program in family.PROGRAMS
}


def choose(names: Sequence[str]) -> list[Program]:
    """The programs of these names in registry order; all of them for no name.

    Raises `ValueError` for a name that is not registered.
    """
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        raise ValueError(f"no program {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    return [program for name, program in PROGRAMS.items() if not names or name in names]
