"""What can be asked of a loader: in one place for `store.loader`, `dataset`, `tf_dataset` and `py_dataset`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, get_args

from numpy.typing import ArrayLike

from lowtide.data.frameworks import Framework
from lowtide.data.loading.buckets import BatchSize, Rounding
from lowtide.data.loading.collate import Augment
from lowtide.data.loading.lanes import Lanes
from lowtide.data.loading.numbers import make_plain
from lowtide.data.loading.policy import Cut, OverLength
from lowtide.data.loading.ranks import check_rank
from lowtide.data.loading.windows import Windows
from lowtide.errors import LowtideError

BATCH_SIZE = 64
"""Sequences in a batch where nothing is said."""
PREFETCH_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """How sequences become batches."""

    batch_size: int | None = None
    """Sequences in a batch; 64 where neither this nor `max_padded_steps` nor `lanes` is given."""
    max_padded_steps: int | None = None
    """Instead: steps in a batch with padding, sequences x longest. A batch has as many sequences as that allows."""
    shuffle: bool = True
    """Whether batches are of nearly equal lengths, in an order of their own in each epoch; else as they are stored."""
    seed: int = 0
    """The order is a function of the seed, the epoch and the lengths, the same on every machine."""
    max_length: int | None = None
    """Steps that are used of a sequence, at most."""
    cut: Cut | None = None
    """Which, of a longer one: "head" (where nothing is said), "tail", or "random", others in each epoch."""
    windows: Windows | None = None
    """Rows are windows of sequences."""
    lanes: Lanes | None = None
    """Rows go on from batch to batch, for truncated back-propagation; instead of `batch_size`."""
    over_length: OverLength | None = None
    """What becomes of sequences longer than `max_length` instead of being cut, or longer than `max_padded_steps`:
    "error" (where nothing is said), "split" into several rows, "drop". `loader.report` counts them."""
    round_lengths: int | Sequence[int] | None = None
    """Batches are padded to a multiple of this, or to one of these lengths: stable memory, fewer kernel shapes."""
    batch_first: bool = True
    """(B, T, ...) rather than (T, B, ...)."""
    framework: Framework = "torch"
    """Tensors of torch, or arrays of NumPy."""
    packed: bool = False
    """Inputs and targets per step as PackedSequence."""
    dtypes: Mapping[str, str] | None = None
    """Types of fields in a batch by name; else float16 and bfloat16 become float32, and whole numbers int64."""
    balance: str | None = None
    """A field of labels: rows, or steps, weigh so that every class weighs the same in all."""
    weights: ArrayLike | str | None = None
    """One weight a sequence, or the field that holds it."""
    augment: Augment | None = None
    """Called with every batch and a NumPy generator that belongs to it; returns the batch to train on."""
    prefetch_bytes: int = PREFETCH_BYTES
    """Bytes of batches made ahead, in one thread; 0: none, batches are made when asked for."""
    pin_memory: bool = False
    """Tensors in pages that a GPU can read while others compute: `batch.to("cuda", non_blocking=True)`."""
    rank: int = 0
    """Which of several processes this is."""
    ranks: int = 1
    """How many processes train together: each is given the same number of batches. Where fewer sequences are left than
    ranks, the last batches of some have none: `batch.size` is 0."""
    drop_last: bool = False
    """Whether what does not fill a batch of `batch_size`, or a round of all ranks, is left out each epoch."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        make_plain(self, *_NUMBERS, "rank", "ranks")
        check_rank(self.rank, self.ranks)
        Rounding.of(self.round_lengths)
        for name, least in _NUMBERS.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise _refused(f"{name}={value!r}", "it is a whole number", f"give one of at least {least}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in (None, *choices):
                raise _refused(f"{name}={getattr(self, name)!r}", f"it is one of {choices}", "choose one of these")
        for first, second, why in _EITHER:
            if _given(getattr(self, first)) and _given(getattr(self, second)):
                raise _refused(f"{first}= and {second}= together", why, "leave one of them out")
        for name, needed, why in _NEEDS:
            if _given(getattr(self, name)) and not any(_given(getattr(self, one)) for one in needed):
                raise _refused(
                    f"{name}={getattr(self, name)!r}", why, f"give {' or '.join(needed)} too, or leave it out"
                )
        if self.packed and self.framework != "torch":
            raise _refused(
                f"packed=True with framework={self.framework!r}", "a PackedSequence is torch's", "leave it out"
            )

    @property
    def size(self) -> BatchSize:
        """When a batch is full."""
        if self.max_padded_steps is not None:
            return BatchSize(padded_steps=self.max_padded_steps)
        return BatchSize(count=BATCH_SIZE if self.batch_size is None else self.batch_size)

    @property
    def rounding(self) -> Rounding:
        """What batches are padded to."""
        return Rounding.of(self.round_lengths)

    def deciding(self) -> dict[str, Any]:
        """The settings that decide which steps each batch holds, as plain values."""
        told = {name: getattr(self, name) for name in _DECIDING}
        made = {
            "batch_size": self.size.count,
            "round_lengths": self.rounding,
            "windows": self.windows,
            "lanes": self.lanes,
        }
        return told | {name: value if isinstance(value, int | None) else repr(value) for name, value in made.items()}


class LoaderOptions(TypedDict, total=False):
    """The same names and types, for functions that pass them on."""

    batch_size: int | None
    max_padded_steps: int | None
    shuffle: bool
    seed: int
    max_length: int | None
    cut: Cut | None
    windows: Windows | None
    lanes: Lanes | None
    over_length: OverLength | None
    round_lengths: int | Sequence[int] | None
    batch_first: bool
    framework: Framework
    packed: bool
    dtypes: Mapping[str, str] | None
    balance: str | None
    weights: ArrayLike | str | None
    augment: Augment | None
    prefetch_bytes: int
    pin_memory: bool
    rank: int
    ranks: int
    drop_last: bool


_NUMBERS = {"batch_size": 1, "max_padded_steps": 1, "max_length": 1, "seed": 0, "prefetch_bytes": 0}
"""The least value of each."""
_CHOICES = {"cut": get_args(Cut), "over_length": get_args(OverLength), "framework": get_args(Framework)}
_EITHER = (
    ("batch_size", "max_padded_steps", "each says when a batch is full"),
    ("batch_size", "lanes", "lanes are the rows of every batch: Lanes(count)"),
    ("max_padded_steps", "lanes", "lanes are the rows of every batch: Lanes(count)"),
    ("windows", "lanes", "lanes hold sequences one after the other, without overlap"),
    ("windows", "max_length", "windows say themselves how long they are: Windows(size)"),
    ("windows", "over_length", "windows hold all of a sequence"),
    ("cut", "over_length", "longer sequences are cut, or treated as over-long"),
    ("packed", "lanes", "lanes that have ended have no steps, and a PackedSequence has no room for none"),
    ("drop_last", "lanes", "lanes end one after the other"),
)
_NEEDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("cut", ("max_length",), "nothing says what is too long"),
    ("over_length", ("max_length", "max_padded_steps"), "nothing says what is too long"),
)
_DECIDING = (
    *("batch_size", "max_padded_steps", "shuffle", "seed", "max_length", "cut", "windows", "over_length"),
    *("lanes", "round_lengths", "drop_last"),
)
assert set(_DECIDING) <= {field.name for field in fields(LoaderSettings)}


def _given(value: object) -> bool:
    return value is not None and value is not False


def _refused(what: str, why: str, fix: str) -> LowtideError:
    return LowtideError(what=what, why=why, fix=fix)
