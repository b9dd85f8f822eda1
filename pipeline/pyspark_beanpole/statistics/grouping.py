"""Group rows by keys and sum them, with NumPy on Arrow columns.

Independent of events: a `Shape` says which columns are keys and which are sums.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

# NumPy arrays of integers; a more precise type would not help here.
Ints = Any
Floats = Any

# The code of a null.
NONE: Final = -1
# For up to this many possible keys, a table of all of them (8 MB) is faster than sorting the rows.
DENSE_MAX: Final = 1 << 20
# Joint keys stay below this, so that they fit into 64 bits.
_JOINT_MAX: Final = 1 << 62


class Shape(NamedTuple):
    """The keys to group by, and the integer columns to sum, minimize and maximize in each group."""

    keys: tuple[str, ...]
    sums: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    most: tuple[str, ...] = ()


class Groups(NamedTuple):
    """Rows in groups: `of` has the group of each row, `firsts` the first row of each group."""

    of: Ints
    firsts: Ints

    @property
    def size(self) -> int:
        return len(self.firsts)

    def summed(self, amounts: Ints) -> Ints:
        """Add up the integers of each group, exactly (modulo 2**64)."""
        found = np.zeros(self.size, np.int64)
        np.add.at(found, self.of, amounts.astype(np.int64, copy=False))
        return found

    def counted(self, chosen: Ints) -> Ints:
        """Count the rows of each group for which `chosen` is true."""
        return np.bincount(self.of[chosen], minlength=self.size).astype(np.int64)

    def least(self, amounts: Ints) -> Ints:
        """Return the smallest of each group."""
        found = np.full(self.size, np.iinfo(np.int64).max)
        np.minimum.at(found, self.of, amounts)
        return found

    def most(self, amounts: Ints) -> Ints:
        """Return the largest of each group."""
        found = np.full(self.size, np.iinfo(np.int64).min)
        np.maximum.at(found, self.of, amounts)
        return found

    def added(self, amounts: Floats) -> Floats:
        """Add up floats; the result depends on their order."""
        return np.bincount(self.of, weights=amounts, minlength=self.size)


class Coded(NamedTuple):
    """A column of texts as codes: each is the index of its text in `words`, NONE for null."""

    codes: Ints
    words: Any

    def texts(self, codes: Ints) -> Any:
        """Return the texts of codes as an Arrow array."""
        return self.words.take(pa.array(codes, pa.int64(), mask=codes == NONE))


def coded(column: Any, known: Sequence[str] = ()) -> Coded:
    """Return the codes of the texts of an Arrow column; `known` texts have their index as code."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # combine_chunks does not always join dictionaries
        column = column.unify_dictionaries().cast(pa.string()).combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    words = column.dictionary
    places = column.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    if not known:
        numbers = np.arange(len(words) + 1)
    else:
        found = {word: number for number, word in enumerate(known)}
        numbers = np.array([found.setdefault(w, len(found)) for w in words.to_pylist()] + [NONE])
        words = pa.array(list(found), pa.string())
    numbers[-1] = NONE
    return Coded(numbers[places], words)


def numbered(column: Any) -> Ints:
    """Return integers that are equal where the values of a column are; NONE for null."""
    if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
        return coded(column).codes
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    if column.null_count:
        # No key is ever as small as this.
        column = column.fill_null(NONE)
    return column.to_numpy().astype(np.int64, copy=False)


def grouped(*keys: Ints) -> Groups:
    """Group rows by columns of integers, in the order of the keys.

    Raises:
        ValueError: there are no keys.
    """
    if not keys:
        raise ValueError("grouping needs keys")
    if not len(keys[0]):
        nothing = np.zeros(0, np.int64)
        return Groups(nothing, nothing)
    joint, size = np.zeros(len(keys[0]), np.int64), 1
    for key in keys:
        low = int(key.min())
        more = int(key.max()) - low + 1
        if size * more > _JOINT_MAX:
            joint, size = _dense(joint)
        if size * more > _JOINT_MAX:
            key, more = _dense(key)
            low = 0
        joint = joint * more + (key - low)
        size *= more
    if size > DENSE_MAX:
        _, firsts, of = np.unique(joint, return_index=True, return_inverse=True)
        return Groups(of, firsts)
    # Written in reverse order, so that the first row of each key remains.
    seen = np.full(size, NONE)
    seen[joint[::-1]] = np.arange(len(joint) - 1, -1, -1)
    there = np.flatnonzero(seen != NONE)
    firsts = seen[there]
    seen[there] = np.arange(len(there))
    return Groups(seen[joint], firsts)


def _dense(key: Ints) -> tuple[Ints, int]:
    _, of = np.unique(key, return_inverse=True)
    return of, int(of.max()) + 1


def table_groups(table: pa.Table, by: Sequence[str]) -> Groups:
    """Group the rows of a table; without `by`, all rows, even if there are none, are one group."""
    if not by:
        return Groups(np.zeros(table.num_rows, np.int64), np.zeros(1, np.int64))
    return grouped(*[numbered(table[name]) for name in by])


def ints(table: pa.Table, name: str) -> Ints:
    """Return a column of integers, times or dates, without nulls, as 64-bit integers."""
    column = table[name]
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.to_numpy().astype(np.int64, copy=False)


def folded(table: pa.Table, shape: Shape) -> pa.Table:
    """Sum rows that have equal keys; the columns keep their order."""
    if table.num_rows == 0:
        return table
    groups = table_groups(table, shape.keys)
    if groups.size == table.num_rows:
        return table
    found: dict[str, Any] = {}
    for field in table.schema:
        name = field.name
        if name in shape.keys:
            found[name] = table[name].take(pa.array(groups.firsts))
        elif name in shape.sums:
            found[name] = groups.summed(ints(table, name))
        elif name in shape.least:
            found[name] = groups.least(ints(table, name))
        elif name in shape.most:
            found[name] = groups.most(ints(table, name))
        else:
            raise ValueError(f"no rule for column {name}")
    return made(table.schema, found)


def made(schema: pa.Schema, columns: dict[str, Any]) -> pa.Table:
    """Return a table of NumPy or Arrow columns with exactly this schema."""
    arrays = []
    for field in schema:
        column = columns[field.name]
        if isinstance(column, np.ndarray):
            plain = pa.int32() if pa.types.is_date32(field.type) else None
            kind = plain or (pa.int64() if pa.types.is_timestamp(field.type) else field.type)
            column = pa.array(column.astype(kind.to_pandas_dtype(), copy=False), kind)
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)
