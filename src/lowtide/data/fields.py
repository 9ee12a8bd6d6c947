"""What a store holds of each sequence: its fields, their types on disk, in Arrow and in NumPy.

A field is one array of a sequence: per step, (T, width) or (T,), or per sequence, (width,) or (). On disk it is one
Arrow column. Its features lie interleaved, so that the steps of one sequence are one run of bytes. Arrow has no
bfloat16: such fields are stored as their 16 bits, and read as float32, which holds every one of them exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.errors import LowtideError

Array: TypeAlias = NDArray[Any]
StoredType = Literal["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64"]
Role = Literal["inputs", "targets", "static"]
Per = Literal["step", "sequence"]
IdType = Literal["string", "int64"]

ID = "id"
"""The column that holds the sequences' names; no field may be called so."""
_DTYPE_KEY = b"lowtide.dtype"
_WIDEST = 1 << 24


@dataclass(frozen=True)
class Field:
    """One array of every sequence."""

    name: str
    """Its name in a batch, and its column in the shards."""
    role: Role
    per: Per
    dtype: StoredType
    width: int
    """Features; 0 for one scalar a step or sequence, without an axis of features."""
    columns: tuple[str, ...] = ()
    """The source's columns, in order: for messages and for predictions."""
    vocabulary: str | None = None
    """The name of the stored vocabulary whose codes these are."""

    def __post_init__(self) -> None:
        """Refuse what cannot be stored."""
        for wrong, what in self._faults():
            if wrong:
                raise LowtideError(
                    what=f"field {self.name!r}: {what}",
                    why="every sequence's arrays are stored, read and batched by these descriptions",
                    fix="correct the field's description",
                )

    @property
    def storage(self) -> np.dtype[Any]:
        """The type of its numbers as they lie on disk; bfloat16 as uint16."""
        return np.dtype(np.uint16 if self.dtype == "bfloat16" else self.dtype)

    @property
    def arrow_value(self) -> pa.DataType:
        """The Arrow type of one step, or of one sequence's value."""
        scalar = pa.from_numpy_dtype(self.storage)
        return pa.list_(scalar, self.width) if self.width else scalar

    @property
    def arrow(self) -> pa.Field:
        """The column in the shards."""
        value = self.arrow_value
        metadata = {_DTYPE_KEY: b"bfloat16"} if self.dtype == "bfloat16" else None
        return pa.field(self.name, pa.large_list(value) if self.per == "step" else value, metadata=metadata)

    @property
    def step_shape(self) -> tuple[int, ...]:
        """The shape of one step, or of one sequence's value."""
        return (self.width,) if self.width else ()

    @property
    def step_bytes(self) -> int:
        """Bytes of one step, or of one sequence's value."""
        return self.storage.itemsize * max(1, self.width)

    def values(self, stored: Array) -> Array:
        """Numbers as they are meant, from numbers as they lie on disk: the same array but for bfloat16."""
        return from_bfloat16(stored) if self.dtype == "bfloat16" else stored

    def _faults(self) -> list[tuple[bool, str]]:
        told: Any = self  # a manifest may hold anything
        named = isinstance(told.name, str) and told.name != ""
        width = isinstance(told.width, int) and not isinstance(told.width, bool) and 0 <= told.width < _WIDEST
        columns = isinstance(told.columns, tuple) and all(isinstance(column, str) for column in told.columns)
        return [
            (not named, "a name is one or more characters"),
            (self.name == ID, f"{ID!r} is the column of the sequences' names"),
            (self.role not in get_args(Role), f"role {self.role!r} is none of {get_args(Role)}"),
            (self.per not in get_args(Per), f"per {self.per!r} is none of {get_args(Per)}"),
            (self.dtype not in get_args(StoredType), f"type {self.dtype!r} is none of {get_args(StoredType)}"),
            (not width, f"width {self.width!r} is not a number of features from 0 to {_WIDEST - 1}"),
            (not columns, f"columns {self.columns!r} are not a tuple of names"),
            (self.role == "static" and self.per != "sequence", "a static field has one value per sequence"),
            (not isinstance(told.vocabulary, str | None), "a vocabulary is given by name"),
        ]


@dataclass(frozen=True)
class Schema:
    """The fields of every sequence of a store, and the type of the sequences' names."""

    fields: tuple[Field, ...]
    id_type: IdType

    def __post_init__(self) -> None:
        """Refuse two fields of one name, and sequences without steps."""
        names = [field.name for field in self.fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise LowtideError(
                what=f"several fields are called {twice[0]!r}",
                why="a field is found by its name, over inputs, targets and static fields together",
                fix="give the inputs, targets or static fields other names, as {name: columns}",
            )
        if not any(field.per == "step" for field in self.fields):
            raise LowtideError(
                what=f"no field of {names} has values per step",
                why="a sequence is as long as its fields per step",
                fix="name at least one field that has a value at every step",
            )
        if self.id_type not in get_args(IdType):
            raise LowtideError(
                what=f"the names of sequences are of type {self.id_type!r}",
                why=f"they are stored as one of {get_args(IdType)}",
                fix="convert them to one of these",
            )

    @cached_property
    def inputs(self) -> tuple[Field, ...]:
        """What a model is given."""
        return self.of_role("inputs")

    @cached_property
    def targets(self) -> tuple[Field, ...]:
        """What it should give."""
        return self.of_role("targets")

    @cached_property
    def static(self) -> tuple[Field, ...]:
        """What it is given once a sequence."""
        return self.of_role("static")

    @cached_property
    def per_step(self) -> tuple[Field, ...]:
        """Fields as long as the sequence."""
        return tuple(field for field in self.fields if field.per == "step")

    @cached_property
    def per_sequence(self) -> tuple[Field, ...]:
        """Fields with one value a sequence."""
        return tuple(field for field in self.fields if field.per == "sequence")

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns of the shards: `id`, then the fields in order."""
        named = pa.field(ID, pa.string() if self.id_type == "string" else pa.int64())
        return pa.schema([named, *(field.arrow for field in self.fields)])

    def of_role(self, role: Role) -> tuple[Field, ...]:
        """The fields of one role, in order."""
        return tuple(field for field in self.fields if field.role == role)

    def field(self, name: str) -> Field:
        """The field of this name.

        Raises:
            LowtideError: There is none.
        """
        for field in self.fields:
            if field.name == name:
                return field
        raise LowtideError(
            what=f"no field is called {name!r}",
            why=f"the fields are {[field.name for field in self.fields]}",
            fix="use one of these names",
        )

    def to_json(self) -> dict[str, object]:
        """Plain values for the manifest."""
        return {"id_type": self.id_type, "fields": [asdict(field) for field in self.fields]}

    @staticmethod
    def from_json(described: Mapping[str, Any]) -> Schema:
        """The schema that `to_json` described.

        Raises:
            LowtideError: A field cannot be what is written there.
            KeyError, TypeError: Something is missing or of another kind.
        """
        fields = [Field(**{**field, "columns": tuple(field["columns"])}) for field in described["fields"]]
        return Schema(tuple(fields), described["id_type"])


def to_bfloat16(values: Array) -> NDArray[np.uint16]:
    """The 16 bits of the nearest bfloat16 of every number, ties to even; what overflows becomes infinite."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    bits = single.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    # Rounding may carry a NaN's payload away: one bit of it is set for good.
    return np.where(np.isnan(single), (bits >> np.uint32(16)).astype(np.uint16) | np.uint16(0x40), rounded)


def from_bfloat16(bits: Array) -> NDArray[np.float32]:
    """The numbers, as float32, whose bfloat16 bits these are."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
