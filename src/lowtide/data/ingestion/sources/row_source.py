"""What tables with a row a sequence have in common, whatever lies in the row."""

from __future__ import annotations

from collections.abc import Mapping

from lowtide.data.ingestion.request import Request
from lowtide.data.ingestion.sources.row_names import RowNames
from lowtide.data.ingestion.sources.source import Source
from lowtide.data.ingestion.sources.table import Table
from lowtide.errors import LowtideError


def refuse_order(request: Request) -> None:
    """Steps that come as one are in their order already.

    Raises:
        LowtideError: Another was asked for.
    """
    if request.order is not None:
        raise LowtideError(
            what=f"order={request.order!r} was given for sequences that come whole",
            why="their steps stay as they lie: only rows that are single steps are put in order",
            fix="leave order= out, and put the steps in order in the source",
        )


class RowSource(Source):
    """Rows as sequences, with names of their own or numbered."""

    def __init__(self, table: Table, request: Request) -> None:
        """Look at the columns.

        Raises:
            LowtideError: The sequence column is not there, or an order was asked for.
        """
        refuse_order(request)
        self._table = table
        self._request = request
        self._names = RowNames(request.sequence, table)
        self.id_type = self._names.id_type
        self.names_differ = self._names.column is None
        self.types_guessed = table.types_guessed

    @property
    def identity(self) -> Mapping[str, object] | None:
        """What the content follows from."""
        return self._table.identity
