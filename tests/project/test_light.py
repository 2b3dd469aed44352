"""Starting is cheap: nothing heavy is imported before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tracekit import demo

HEAVY = ("torch", "triton", "dash", "plotly", "pandas", "scipy", "sklearn", "skimage", "matplotlib")
CORE = ("numpy", "msgspec")


def loaded_after(code: str) -> set[str]:
    """Top-level packages in sys.modules after the code ran in a fresh interpreter."""
    code += "\nimport sys\nsys.stderr.write(' '.join({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


RUN = "from tracekit.cli import run\nassert run({args!r}) == 0"


@pytest.mark.parametrize(
    "code",
    ["import tracekit", "import tracekit.cli", RUN.format(args=["--help"])],
    ids=["import", "cli", "help"],
)
def test_start_loads_no_numpy_either(code: str) -> None:
    assert not loaded_after(code) & {*HEAVY, *CORE}


@pytest.mark.parametrize(
    "args",
    [["explain"], ["demo", "--format", "json"], ["diagnose", str(demo.trace_path())]],
    ids=["explain", "demo", "diagnose"],
)
def test_the_core_commands_load_nothing_heavy(args: list[str]) -> None:
    assert not loaded_after(RUN.format(args=args)) & set(HEAVY)


def test_python_use_loads_pandas_only_for_a_frame() -> None:
    code = (
        f"import tracekit\nd = tracekit.diagnose({str(demo.trace_path())!r})\nd.findings, d.steps"
    )
    assert "pandas" not in loaded_after(code)
    assert "pandas" in loaded_after(code + "\nd.trace.gpu")
