"""Run a script or a module as `python SCRIPT` and `python -m MODULE` do, in this process.

`__main__` is really the script's module, so that pickling by name, `multiprocessing`'s spawn
and `if __name__ == "__main__"` work as they do without us.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import io
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from tracekit.profiler.errors import RecordError

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells show it (128 + SIGINT)."""


@dataclass(frozen=True)
class Program:
    """Something to run: its code and what `__main__` and `sys` look like while it runs."""

    code: CodeType
    file: str
    """absolute, as Python sets `__file__`"""

    argv0: str
    package: str | None
    spec: ModuleSpec | None
    path0: str


def load_script(script: str) -> Program:
    """A script by its path. Raises `RecordError` (usage) where it can't be read or compiled."""
    if not script:
        raise RecordError("the name of the script is empty", usage=True)
    path = Path(script)
    try:
        if path.is_dir():
            raise RecordError(
                f"{script} is a directory; give a script, or -m and a module", usage=True
            )
        absolute = str(path.absolute())
        with io.open_code(absolute) as file:
            source = file.read()
    except OSError as error:
        raise RecordError(
            f"cannot read {script}: {(error.strerror or str(error)).lower()}", usage=True
        ) from error
    # compiled without this module's __future__ flags; a SyntaxError is the script's own
    code = compile(source, absolute, "exec", dont_inherit=True)
    return Program(code, absolute, script, None, None, str(path.resolve().parent))


def load_module(name: str) -> Program:
    """A module by its name, or a package's `__main__`. Raises `RecordError` (usage)."""
    cwd = str(Path.cwd())
    sys.path.insert(0, cwd)
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError) as error:
        raise RecordError(f"cannot find the module {name}: {error}", usage=True) from error
    finally:
        sys.path.remove(cwd)
    get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
    if spec is None or get_code is None:
        raise RecordError(f"no module named {name}", usage=True)
    code = get_code(name)
    if code is None:
        raise RecordError(f"the module {name} has no Python code", usage=True)
    origin = spec.origin or name
    return Program(code, origin, origin, spec.parent, spec, cwd)


def run(program: Program, arguments: Sequence[str]) -> ModuleType:
    """Run it to its end; what it raises is passed on. Returns its `__main__` module.

    `sys.argv`, `sys.path` and `sys.modules["__main__"]` are put back afterwards.
    """
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=program.file,
        __package__=program.package,
        __spec__=program.spec,
        __builtins__=builtins,
        __loader__=program.spec.loader
        if program.spec is not None
        else SourceFileLoader("__main__", program.file),
    )
    if program.spec is None:
        main.__dict__["__cached__"] = None
    with _as_main(main, program, arguments):
        exec(program.code, main.__dict__)
    return main


@contextlib.contextmanager
def _as_main(main: ModuleType, program: Program, arguments: Sequence[str]) -> Iterator[None]:
    before = sys.argv, list(sys.path), sys.modules["__main__"]
    sys.argv = [program.argv0, *arguments]
    if not sys.flags.safe_path:
        # `python SCRIPT` has the script's folder first, `python -m` the working directory; the
        # first entry now is that of the program that started us, which may still be imported
        sys.path[:] = [program.path0, *sys.path[1:], *sys.path[:1]]
    sys.modules["__main__"] = main
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = before


def exit_status(error: BaseException) -> int:
    """The status Python would exit with after `error`, which is shown on stderr as Python does."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    # Python's own hook shows the exception's traceback, not the one that it is given
    error = error.with_traceback(_without_us(error.__traceback__))
    hook = sys.excepthook
    if hook is sys.__excepthook__:
        traceback.print_exception(error)
    else:
        hook(type(error), error, error.__traceback__)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _without_us(frames: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's first frame on."""
    here = Path(__file__).parent
    first = frames
    while first is not None and not Path(first.tb_frame.f_code.co_filename).is_relative_to(here):
        first = first.tb_next
    while first is not None and _ours(first, here):
        first = first.tb_next
    # a SyntaxError of the program itself has no frame of its own
    return first


def _ours(frame: TracebackType, here: Path) -> bool:
    name = Path(frame.tb_frame.f_code.co_filename)
    return name.is_relative_to(here) or name.name == "contextlib.py"
