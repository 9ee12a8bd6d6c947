"""Batches from a store in bounded memory, in an order that can be gone back to exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, Unpack

from lowtide.data.batch import Batch
from lowtide.data.loading.assembly import collator_of, drafts_of, items_of
from lowtide.data.loading.batch_list import BatchList
from lowtide.data.loading.collate import augmented
from lowtide.data.loading.drafts import Draft, PositionData, sizes_of
from lowtide.data.loading.join import How, Joiner
from lowtide.data.loading.order import key_of
from lowtide.data.loading.policy import PolicyReport
from lowtide.data.loading.ring import Job, Ring
from lowtide.data.loading.settings import LoaderOptions, LoaderSettings
from lowtide.data.loading.state import check_epoch, check_running, place_in, state_of
from lowtide.data.view import View
from lowtide.errors import LowtideError

_NAMED = 8
"""Sequences that the note on an error names."""
_AUGMENT = 4
"""Keeps the random numbers of `augment` apart from those of the order."""


class Loader:
    """Iterates over the batches of one epoch after the other.

    ```python
    loader = store.loader(batch_size=64, seed=0)
    for epoch in range(10):
        for batch in loader:
            loss = step(batch.inputs, batch.targets, lengths=batch.lengths)
    ```

    A loader is always at one place: a `for` loop goes on from there to the end of the epoch, and the next one goes
    through the next epoch. After a `break` the next loop goes on with the batch that would have come; `set_epoch`
    goes to the start of an epoch. `state_dict()` is the place after the last batch that was handed out, whatever was
    made ahead of it; given to `load_state_dict` of another loader of the same data and settings, that one goes on with
    the very batches that this one would give. The number of ranks may be another one.
    """

    def __init__(self, view: View, settings: LoaderSettings) -> None:
        """Prepare; nothing is read but what class balance and separators need.

        Raises:
            LowtideError: The settings do not fit the data, or each other.
        """
        self.view = view
        self.settings = settings
        self._items = items_of(view, settings)
        self._drafts = drafts_of(self._items, settings)
        self._collate = collator_of(view, self._items, settings)
        self._place: PositionData = self._drafts.start(0)
        self._running: object = None

    @staticmethod
    def of(view: View, **options: Unpack[LoaderOptions]) -> Loader:
        """A loader with these settings, as LoaderSettings explains them."""
        return Loader(view, LoaderSettings(**options))

    def __iter__(self) -> Iterator[Batch]:
        mine = self._running = object()
        if self.settings.prefetch_bytes == 0:
            for job in self._jobs(self._place):
                check_running(mine, self._running)
                batch, self._place = job.make()
                yield batch
        else:
            with closing(Ring(self._jobs(self._place), self.settings.prefetch_bytes)) as ring:
                for batch, place in ring:
                    check_running(mine, self._running)
                    self._place = place
                    yield batch
        check_running(mine, self._running)
        self._place = self._drafts.start(self.epoch + 1)

    def __reduce__(self) -> tuple[Callable[..., Loader], tuple[Any, ...]]:
        return _at_place, (self.view, self.settings, dict(self._place))

    def __len__(self) -> int:
        """Batches of the whole epoch that the loader is in."""
        return self._drafts.count(self.epoch)

    @property
    def epoch(self) -> int:
        """The epoch that the next batch is of."""
        return int(self._place["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        check_epoch(epoch)
        self._move(self._drafts.start(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, in numbers and text: for JSON, or torch.save."""
        return state_of(self.view.fingerprint, self.settings, self._place)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go where another loader was.

        Raises:
            LowtideError: It had other data or other settings, or it is no such state.
        """
        self._move(self._drafts.adopt(place_in(state, self.view.fingerprint, self.settings)))

    @property
    def report(self) -> PolicyReport:
        """How many rows the sequences become, and what was left out, cut and split."""
        return self._items.report

    @property
    def largest(self) -> tuple[int, int]:
        """Rows and steps of a padded batch that none of any epoch exceeds; under `max_padded_steps` in product."""
        return self._drafts.largest()

    def sizes(self) -> Iterator[tuple[int, int]]:
        """Rows and padded steps of each batch of the epoch that the loader is in, from its start; none is read."""
        return sizes_of(self._drafts, self.epoch)

    @property
    def ring_bytes(self) -> int:
        """The most memory that loading takes beside the batch in use: batches made ahead, and what making one takes.

        What `augment` takes is the user's to know.
        """
        return self.ring_bytes_with(self.settings.prefetch_bytes)

    def ring_bytes_with(self, prefetch_bytes: int) -> int:
        """The same for another `prefetch_bytes`."""
        rows, steps = self.largest
        most_rows = max(rows, self._drafts.most_rows())
        largest = self._collate.bytes_of(rows, steps) + self._collate.bytes_of(most_rows - rows, 0)
        return max(prefetch_bytes, largest) + self._collate.scratch_bytes(most_rows, steps)

    def joiner(self, how: How) -> Joiner:
        """What brings predictions on the rows of batches together per sequence.

        Args:
            how: "mean": one prediction a row, averaged over a sequence's rows. "steps": one a step, averaged where
                rows overlap. "each": one a row, all of them in order.

        Raises:
            LowtideError: Rows are the chunks of lanes; or the rows of a sequence may come to several ranks.
        """
        if self.settings.lanes is not None:
            raise LowtideError(
                what="predictions on lanes were to be joined",
                why="a lane's chunks follow one another from batch to batch, and belong to no fixed rows",
                fix="predict with a loader without lanes",
            )
        if self.settings.ranks > 1 and self._items.count > self.report.used:
            raise LowtideError(
                what=f"predictions on {self.report} were to be joined by one of {self.settings.ranks} ranks",
                why="the rows of one sequence are dealt to several ranks, so that none has all of them",
                fix="predict with rank=0, ranks=1 on a part of the data: view[rank::ranks]",
            )
        return Joiner(self.view, self._items, how=how)

    def batch(self, number: int) -> Batch:
        """A batch of the epoch that the loader is in, whatever its place there.

        Raises:
            LowtideError: There is none of this number, or batches go on from one another.
        """
        if not isinstance(self._drafts, BatchList):
            raise LowtideError(
                what=f"batch {number} of lanes was asked for by itself",
                why="a lane goes on where it ended in the batch before",
                fix="loop over the loader",
            )
        return self._make(self._drafts.at(self.epoch, number))

    def part(self, epoch: int, worker: int = 0, workers: int = 1) -> Iterator[Batch]:
        """Every `workers`-th batch of an epoch from its start, made when it is asked for; the loader stays in place."""
        for draft, _ in islice(self._drafts.after(self._drafts.start(epoch)), worker, None, workers):
            yield self._make(draft)

    def _make(self, draft: Draft) -> Batch:
        try:
            batch = self._collate(draft)
            if self.settings.augment is None:
                return batch
            key = key_of(self.settings.seed, draft.epoch, _AUGMENT, draft.number)
            return augmented(batch, self.settings.augment, key)
        except BaseException as error:
            of = draft.spans.sequence[:_NAMED].tolist()
            error.add_note(f"while batch {draft.number} of epoch {draft.epoch} was made, of the sequences {of} ...")
            raise

    def __repr__(self) -> str:
        return (
            f"Loader({self.report}; largest batch about {' x '.join(map(str, self.largest))} steps; epoch {self.epoch})"
        )

    def _jobs(self, place: PositionData) -> Iterator[Job[tuple[Batch, PositionData]]]:
        for draft, after in self._drafts.after(place):
            size = self._collate.bytes_of(len(draft.spans), draft.steps)
            yield Job(size, partial(self._placed, draft, after), _bytes)

    def _placed(self, draft: Draft, after: PositionData) -> tuple[Batch, PositionData]:
        return self._make(draft), after

    def _move(self, place: PositionData) -> None:
        self._running = None
        self._place = place


def _at_place(view: View, settings: LoaderSettings, place: PositionData) -> Loader:
    """The loader that was pickled."""
    loader = Loader(view, settings)
    loader._move(place)  # noqa: SLF001 - its own
    return loader


def _bytes(made: tuple[Batch, PositionData]) -> int:
    return made[0].nbytes
