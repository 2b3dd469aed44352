"""Columns of one kind of event: numpy arrays, and text interned once.

The reader fills these; the analysis computes on them. `Table.frame()` gives the same
rows as a pandas DataFrame, and is the only place of the core that imports pandas
(0.3 s, more than a whole diagnosis of a small trace).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Strings:
    """A text column. Row i reads `values[codes[i]]`; code -1 means the event had no such field."""

    codes: Codes
    values: list[str]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int | np.integer[Any]) -> str | None:
        code = int(self.codes[row])
        return None if code < 0 else self.values[code]

    def __iter__(self) -> Iterator[str | None]:
        return (None if c < 0 else self.values[c] for c in self.codes.tolist())

    def take(self, rows: npt.NDArray[Any]) -> Strings:
        """The rows given by an index or boolean array; the vocabulary is shared, not copied."""
        return Strings(self.codes[rows], self.values)

    def where(self, wanted: Callable[[str], Any]) -> Bools:
        """Mask of rows whose text satisfies `wanted(text)`; each distinct text is asked once."""
        hit: Bools = np.array([bool(wanted(v)) for v in self.values], np.bool_)
        if not len(hit):
            return np.zeros(len(self.codes), bool)
        return np.where(self.codes >= 0, hit[self.codes], False)

    def map(self, function: Any, dtype: Any) -> npt.NDArray[Any]:
        """`function(text)` for every row, computed once a distinct text; missing text maps to
        `function("")`."""
        mapped = np.array([function(v) for v in self.values] + [function("")], dtype=dtype)
        out: npt.NDArray[Any] = mapped[self.codes]
        return out


Column = npt.NDArray[Any] | Strings


class Table:
    """One kind of event, a row an event, in order of start time.

    Args:
        name: the kind (`ops`, `launches`, `gpu`, ...).
        columns: name to column; all of one length.

    Raises:
        ValueError: if the columns differ in length.
    """

    def __init__(self, name: str, columns: Mapping[str, Column]) -> None:
        sizes = {len(c) for c in columns.values()}
        if len(sizes) > 1:
            raise ValueError(f"table {name}: columns of different lengths {sorted(sizes)}")
        self.name = name
        self.columns: dict[str, Column] = dict(columns)
        self._size = sizes.pop() if sizes else 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def ints(self, column: str) -> npt.NDArray[Any]:
        """A numeric column as its array."""
        found = self.columns[column]
        assert isinstance(found, np.ndarray), f"{self.name}.{column} is text"
        return found

    def text(self, column: str) -> Strings:
        """A text column."""
        found = self.columns[column]
        assert isinstance(found, Strings), f"{self.name}.{column} is numeric"
        return found

    @property
    def ts(self) -> Ints:
        """Start of every row, ns from the file's first event."""
        return self.ints("ts")

    @property
    def end(self) -> Ints:
        """End of every row, ns: start + duration."""
        end: Ints = self.ints("ts") + self.ints("dur")
        return end

    def take(self, rows: npt.NDArray[Any]) -> Table:
        """The rows given by an index or boolean array, as a new table."""
        return Table(
            self.name,
            {
                k: c.take(rows) if isinstance(c, Strings) else c[rows]
                for k, c in self.columns.items()
            },
        )

    def frame(self) -> pd.DataFrame:
        """The table as a DataFrame: int64 ns, text as Categorical."""
        import pandas as pd

        data: dict[str, Any] = {}
        for key, column in self.columns.items():
            if isinstance(column, Strings):
                data[key] = pd.Categorical.from_codes(
                    column.codes, categories=pd.Index(column.values, dtype=object)
                )
            else:
                data[key] = column
        return pd.DataFrame(data)
