"""Length-aware batches for a torch Dataset that exists already: the order and the padding of Lowtide's own loader."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from lowtide.data.batch import Batch
from lowtide.data.loading.assembly import drafts_of, items_of_lengths
from lowtide.data.loading.drafts import Drafts, PositionData
from lowtide.data.loading.order import Ints
from lowtide.data.loading.settings import LoaderSettings
from lowtide.data.loading.state import check_epoch, check_running, place_in, state_of
from lowtide.errors import LowtideError


def bucketed(
    dataset: Dataset[Any],
    lengths: ArrayLike,
    *,
    batch_size: int | None = None,
    max_padded_steps: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    round_lengths: int | Sequence[int] | None = None,
    drop_last: bool = False,
    rank: int = 0,
    ranks: int = 1,
    batch_first: bool = True,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    num_workers: int = 0,
    pin_memory: bool = False,
) -> BucketedLoader:
    """A DataLoader over batches of nearly equal lengths, padded to their longest.

    ```python
    loader = lowtide.nn.bucketed(dataset, lengths, batch_size=64)
    for batch in loader:
        loss = step(batch.inputs, batch.targets, lengths=batch.lengths)
    ```

    Args:
        dataset: Gives samples by number: inputs, or (inputs, targets), each a tensor, array or number, or several of
            them by name. Those whose first axis is as long as the sample are padded, others are stacked.
        lengths: Steps of every sample.
        batch_size: Samples in a batch; 64 where neither this nor `max_padded_steps` is given.
        max_padded_steps: Instead: steps in a batch with padding, samples x longest.
        shuffle: Whether samples are grouped by length, in an order of their own in each epoch; else in order.
        seed: The order is a function of the seed, the epoch and the lengths.
        round_lengths: Batches are padded to a multiple of this, or to one of these lengths; not by an own collate_fn.
        drop_last: Whether what does not fill a batch of `batch_size`, or a round of all ranks, is left out.
        rank: Which of several processes this is.
        ranks: How many there are.
        batch_first: (B, T, ...) rather than (T, B, ...).
        collate_fn: From a list of samples to a batch, in place of padding them to a `Batch`.
        num_workers: As of a DataLoader.
        pin_memory: As of a DataLoader.

    Raises:
        LowtideError: The lengths do not fit the dataset, or the settings each other.
    """
    table = _checked(dataset, lengths)
    settings = LoaderSettings(
        batch_size=batch_size,
        max_padded_steps=max_padded_steps,
        shuffle=shuffle,
        seed=seed,
        round_lengths=round_lengths,
        drop_last=drop_last,
        rank=rank,
        ranks=ranks,
    )
    sampler = BucketSampler(table, settings)
    if collate_fn is not None:
        return BucketedLoader(dataset, sampler, collate_fn, num_workers=num_workers, pin_memory=pin_memory)
    collate = PadCollate(dataset, table, settings, batch_first=batch_first)
    return BucketedLoader(_Numbered(dataset), sampler, collate, num_workers=num_workers, pin_memory=pin_memory)


class BucketSampler(Sampler[list[int]]):
    """The numbers of the samples of each batch, epoch after epoch."""

    def __init__(self, lengths: Ints, settings: LoaderSettings) -> None:
        """Prepare the batches.

        Raises:
            LowtideError: A sample does not fit into a batch.
        """
        self.settings = settings
        self.drafts: Drafts = drafts_of(items_of_lengths(lengths, settings), settings)
        self.fingerprint = hashlib.sha256(np.ascontiguousarray(lengths, "<i8").data).hexdigest()[:32]
        """A name for the lengths."""
        self.place: PositionData = self.drafts.start(0)
        """Where the next loop goes on."""
        self.drawn: deque[PositionData] = deque()
        """The places after the batches that were drawn and not handed out yet."""

    def __iter__(self) -> Iterator[list[int]]:
        self.drawn.clear()
        for draft, after in self.drafts.after(self.place):
            self.drawn.append(after)
            yield draft.spans.sequence.tolist()

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.drafts.count(int(self.place["epoch"]))


class BucketedLoader(DataLoader[Any]):
    """A DataLoader that knows where it is: after the last batch that was handed out, whatever workers made ahead.

    After a `break` the next loop goes on with the batch that would have come.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        sampler: BucketSampler,
        collate_fn: Callable[[list[Any]], Any],
        *,
        num_workers: int,
        pin_memory: bool,
    ) -> None:
        """As a DataLoader with a batch sampler."""
        super().__init__(
            dataset, batch_sampler=sampler, collate_fn=collate_fn, num_workers=num_workers, pin_memory=pin_memory
        )
        self._sampler = sampler
        self._running: object = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a DataLoader promises its own class
        mine = self._running = object()
        for batch in super().__iter__():
            check_running(mine, self._running)
            self._sampler.place = self._sampler.drawn.popleft()
            yield batch
        check_running(mine, self._running)
        self.set_epoch(self.epoch + 1)

    @property
    def epoch(self) -> int:
        """The epoch that the next batch is of."""
        return int(self._sampler.place["epoch"])

    @property
    def drafts(self) -> Drafts:
        """The batches of all epochs, before they are read."""
        return self._sampler.drafts

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        check_epoch(epoch)
        self._move(self._sampler.drafts.start(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, in numbers and text: for JSON, or torch.save."""
        return state_of(self._sampler.fingerprint, self._sampler.settings, self._sampler.place)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go where a loader of the same lengths and settings was; the number of ranks may be another one.

        Raises:
            LowtideError: It had other lengths or other settings, or it is no such state.
        """
        place = place_in(state, self._sampler.fingerprint, self._sampler.settings)
        self._move(self._sampler.drafts.adopt(place))

    def _move(self, place: PositionData) -> None:
        self._running = None
        self._sampler.place = place


class PadCollate:
    """From numbered samples to a `Batch`."""

    def __init__(self, dataset: Dataset[Any], lengths: Ints, settings: LoaderSettings, *, batch_first: bool) -> None:
        """Look at the shortest and at the longest sample: what is as long as both has one entry a step.

        Raises:
            LowtideError: The inputs of a sample are not as long as its length says.
        """
        self._lengths = lengths
        self._rounding = settings.rounding
        self._batch_first = batch_first
        places = {int(np.argmin(lengths)), int(np.argmax(lengths))}
        found = [_names_as_long(*_parts(dataset[place]), int(lengths[place])) for place in places]
        self._per_step = frozenset(set.intersection(*found))
        if not any(name.startswith("inputs") for name in self._per_step):
            raise _unlike(min(places), int(lengths[min(places)]), dataset[min(places)])

    def __call__(self, samples: list[tuple[int, Any]]) -> Batch:
        """Pad and stack.

        Raises:
            LowtideError: A sample is not as long as its length says.
        """
        index = torch.tensor([number for number, _ in samples])
        lengths = torch.from_numpy(self._lengths[index.numpy()])
        parts = [_parts(sample) for _, sample in samples]
        for (number, sample), (inputs, targets) in zip(samples, parts, strict=True):
            if not self._per_step <= _names_as_long(inputs, targets, int(self._lengths[number])):
                raise _unlike(number, int(self._lengths[number]), sample)
        steps = int(self._rounding(lengths.max()[None].numpy())[0])
        return Batch(
            inputs=self._together("inputs", [inputs for inputs, _ in parts], steps),
            targets=self._together("targets", [targets for _, targets in parts], steps),
            lengths=lengths,
            index=index,
            start=torch.zeros_like(index),
            steps=steps,
            batch_first=self._batch_first,
            per_step=self._per_step,
        )

    def _together(self, name: str, parts: list[Any], steps: int) -> Any:  # noqa: ANN401 - tensors, as samples have them
        if parts[0] is None:
            return None
        if isinstance(parts[0], Mapping):
            return {key: self._together(f"{name}/{key}", [part[key] for part in parts], steps) for key in parts[0]}
        tensors = [torch.as_tensor(part) for part in parts]
        if name not in self._per_step:
            return torch.stack(tensors)
        padded = tensors[0].new_zeros((len(tensors), steps, *tensors[0].shape[1:]))
        for row, tensor in zip(padded, tensors, strict=True):
            row[: len(tensor)] = tensor
        return padded if self._batch_first else padded.transpose(0, 1).contiguous()


class _Numbered(Dataset[tuple[int, Any]]):
    """Samples with their numbers."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset

    def __getitem__(self, number: int) -> tuple[int, Any]:
        return number, self._dataset[number]


def _checked(dataset: Dataset[Any], lengths: ArrayLike) -> Ints:
    table = np.asarray(lengths.cpu() if isinstance(lengths, Tensor) else lengths)
    samples = len(dataset) if hasattr(dataset, "__len__") else None
    if table.shape != (samples,) or not np.issubdtype(table.dtype, np.integer) or (table < 1).any():
        raise LowtideError(
            what=f"lengths of shape {table.shape} and type {table.dtype} for a dataset of {samples} samples",
            why="batches are made from the lengths alone, before any sample is read",
            fix="give one whole number above 0 for each sample of a dataset that has a length",
        )
    return table.astype(np.int64)


def _parts(sample: Any) -> tuple[Any, Any]:  # noqa: ANN401 - whatever a dataset gives
    """Inputs and targets."""
    if isinstance(sample, tuple | list):
        if len(sample) != 2:  # noqa: PLR2004 - inputs and targets
            raise LowtideError(
                what=f"a sample of {len(sample)} parts",
                why="a sample is its inputs, or (inputs, targets)",
                fix="give several inputs or targets by name, {name: tensor}; or give collate_fn=",
            )
        return sample[0], sample[1]
    return sample, None


def _names_as_long(inputs: Any, targets: Any, length: int) -> set[str]:  # noqa: ANN401 - whatever a dataset gives
    """The parts of a sample whose first axis has so many entries."""
    found = set()
    for role, part in (("inputs", inputs), ("targets", targets)):
        named = {f"{role}/{key}": leaf for key, leaf in part.items()} if isinstance(part, Mapping) else {role: part}
        for name, leaf in named.items():
            shape = () if leaf is None else np.shape(leaf)
            found |= {name} if shape[:1] == (length,) else set()
    return found


def _unlike(number: int, length: int, sample: Any) -> LowtideError:  # noqa: ANN401 - whatever a dataset gives
    inputs, targets = _parts(sample)
    shapes = [np.shape(part) for part in (inputs, targets) if not isinstance(part, Mapping) and part is not None]
    return LowtideError(
        what=f"sample {number}, of {length} steps by lengths, holds arrays of shapes {shapes or sample!r}",
        why="a sample's arrays per step have as many entries as it has steps, time first",
        fix="correct lengths, or give collate_fn=",
    )
