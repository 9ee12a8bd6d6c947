"""What every source can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lowtide.data.disk.row_buffer import Name
from lowtide.data.fields import IdType
from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.progress import Meter
from lowtide.data.ingestion.sources.chunk import RawChunk
from lowtide.data.ingestion.tally import Tally


@dataclass(frozen=True)
class Place:
    """A value, by where it lies in the sequences."""

    sequence: int
    """The number of the sequence among those of the source."""
    name: Name
    step: int | None
    """In its sequence; None for a value per sequence."""
    order: pa.Scalar | None
    """What the step is ordered by, where there is such a column."""
    column: str


@dataclass(frozen=True)
class Setting:
    """What a source has to work with."""

    scratch: Path
    """A folder for temporary files, on the disk of the store; it goes when the ingest ends."""
    meter: Meter
    tally: Tally
    before: int = 0
    """Sequences that the store has already; those without a name are numbered from here."""


class Source(ABC):
    """Sequences from somewhere."""

    id_type: IdType
    """The type of the sequences' names."""
    has_order: bool = False
    """Whether chunks come with the column that steps are ordered by."""
    names_differ: bool = False
    """Whether no two sequences can have one name."""
    types_guessed: bool = False
    """Whether columns' types were read off their first values."""

    @abstractmethod
    def plan(self) -> tuple[FieldPlan, ...]:
        """The fields that were asked for.

        Raises:
            LowtideError: A column is not there, or cannot be what it is asked for.
        """

    @abstractmethod
    def chunks(self, fields: Sequence[FieldPlan], setting: Setting) -> Iterator[RawChunk]:
        """One pass over all sequences, with values for these fields.

        Raises:
            LowtideError: A row cannot be read, or contradicts what was asked for.
        """

    @abstractmethod
    def where(self, place: Place) -> str:
        """Where a value came from, in words: file and row where there are such."""

    @property
    def identity(self) -> Mapping[str, object] | None:
        """What the content follows from, as plain values; None where that cannot be told."""
        return None

    @property
    def vocabularies(self) -> Mapping[str, list[str]]:
        """Vocabularies that are known from the start, by field."""
        return {}

    @property
    def documents(self) -> Mapping[str, str]:
        """Texts that are stored with the sequences."""
        return {}
