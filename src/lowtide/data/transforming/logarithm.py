"""log(1 + x): for amounts that spread over several powers of ten."""

from __future__ import annotations

import numpy as np

from lowtide.data.fields import Array
from lowtide.data.transforming.transform import Offsets, Unlearnt, name_column, refused


class Log1p(Unlearnt):
    """log(1 + x) of the chosen columns, which must lie above -1."""

    kind = "log1p"

    def inverted(self, values: Array, columns: tuple[str, ...], numbers: Array | None) -> Array:
        """exp(y) - 1."""
        del numbers
        at = [place for place, name in enumerate(columns) if name in self.chosen]
        back = values.copy()
        back[..., at] = np.expm1(values[..., at])
        return back

    def _transformed(self, work: Array, offsets: Offsets | None) -> Array:
        del offsets
        every = len(self.chosen) == len(self.columns)
        part = work if every else work[:, self.places]
        if part.size and not part.min() > -1:
            raise refused(
                self.kind,
                self.field,
                f"{name_column(part, ~(part > -1), self.chosen if not every else self.columns)}, "
                "and log(1 + x) is of numbers above -1 alone",
                "shift or clean the column at the source, or leave it out: columns=",
            )
        np.log1p(part, out=part)
        if not every:
            work[:, self.places] = part
        return work
