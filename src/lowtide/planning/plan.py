"""A plan: how batches of every length are run, what that takes, and how sure it is. Plain values, saved as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lowtide.data.disk.files import write_beside
from lowtide.errors import LowtideError
from lowtide.memory.limit import limit
from lowtide.memory.sizes import in_words
from lowtide.planning.plan_view import as_html, as_text
from lowtide.step.choice import Choice

if TYPE_CHECKING:
    from torch.optim import Optimizer

_FORMAT = 1
_WHOLE = ("budget", "peak_bytes", "base_bytes", "before_proof", "batch_size")
"""What of a plan is a whole number in any case."""


@dataclass(frozen=True)
class Component:
    """Part of the peak."""

    name: str
    bytes: int


@dataclass(frozen=True)
class BucketPlan:
    """What batches up to a length take."""

    choice: Choice
    batch_rows: int
    """Sequences of the largest of them."""
    batches: float
    """In an epoch."""
    bytes: int
    """Above what is held without training."""
    seconds: float
    """Of all of them, in an epoch."""


@dataclass(frozen=True)
class SizeTried:
    """A batch size that "auto" looked at."""

    batch_size: int
    fits: bool
    steps_per_second: float
    """Valid and padded steps alike; 0 where it does not fit."""


@dataclass(frozen=True)
class Offer:
    """What else would help, and what it costs: never done unasked."""

    what: str
    saves: int
    """Bytes of the peak, about."""
    costs: str


@dataclass(frozen=True)
class Plan:
    """How to train inside a budget; made by `lowtide.plan`."""

    budget: int
    """Bytes that may be held in all."""
    budget_source: str
    peak_bytes: int
    """What will be held at most: what `lowtide.memory.watch` will say in `peak.bytes`."""
    base_bytes: int
    """Of that, what was held when the plan was made."""
    before_proof: int
    """The same peak as it was predicted before the proof."""
    device: str
    precision: str
    batch_size: int
    """Sequences of one optimizer step, at most: whatever the micro-batches are."""
    buckets: tuple[BucketPlan, ...]
    """Ascending in steps."""
    components: tuple[Component, ...]
    prefetch_bytes: int | None
    """For the loader's ring; None where the data are not loaded by Lowtide."""
    foreach: bool | None
    """Whether the optimizer may work on all parameters at once; None: as it is set."""
    seconds_per_epoch: float
    sure: str
    """How the figures were found, and what they are unsure of."""
    faster_with: int | None = None
    """The least budget that would make an epoch at least a twentieth faster; None where more memory buys no speed."""
    sizes_tried: tuple[SizeTried, ...] = ()
    offers: tuple[Offer, ...] = ()
    circumstances: Mapping[str, str | int] = field(default_factory=dict)
    """Versions, threads, instruction set and allocator that the figures belong to."""
    fingerprint: str = ""
    """Of model, shapes, versions and machine."""
    planning_seconds: float = field(default=0.0, compare=False)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """How batches are run, ascending in steps."""
        return tuple(bucket.choice for bucket in self.buckets)

    @property
    def growth(self) -> int:
        """What training adds to what was held when the plan was made."""
        return self.peak_bytes - self.base_bytes

    def prepare(self, optimizer: Optimizer) -> None:
        """Set what the plan says of the optimizer: whether it works on all parameters at once."""
        for group in optimizer.param_groups:
            if self.foreach is not None and "foreach" in group:
                group["foreach"] = self.foreach

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a JSON file, beside its place first.

        Raises:
            LowtideError: It cannot be written there.
        """
        write_beside(Path(path), (json.dumps(self.to_json(), indent=1) + "\n").encode())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Plan:
        """Read a plan, for a machine that has room for it.

        Raises:
            LowtideError: The file holds no plan, or the limit here is smaller than its peak.
        """
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
            plan = Plan.from_json(told)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, LowtideError) as error:
            said = error.what if isinstance(error, LowtideError) else f"{type(error).__name__}: {error}"
            raise LowtideError(
                what=f"{path} holds no plan: {said}",
                why="a plan is what Plan.save wrote, of this version",
                fix="make the plan anew with lowtide.plan",
            ) from error
        plan.check_here()
        return plan

    def check_here(self) -> None:
        """See that what the plan takes can be had here.

        Raises:
            LowtideError: It cannot.
        """
        here = limit(self.device)
        if here.bytes < self.peak_bytes:
            raise LowtideError(
                what=f"the plan takes {in_words(self.peak_bytes)}, and {in_words(here.bytes)} can be had here "
                f"({here.source})",
                why="training by it would be killed",
                fix="make a plan on this machine, with lowtide.plan(..., budget=None)",
            )

    def rebased(self, held: int) -> Plan:
        """The same plan for a process that holds so much before training."""
        moved = held - self.base_bytes
        return replace(
            self,
            base_bytes=held,
            peak_bytes=self.peak_bytes + moved,
            faster_with=None if self.faster_with is None else self.faster_with + moved,
            before_proof=self.before_proof + moved,
            components=tuple(
                replace(one, bytes=held) if place == 0 else one for place, one in enumerate(self.components)
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"format": _FORMAT, **asdict(self)}

    @staticmethod
    def from_json(told: Mapping[str, Any]) -> Plan:
        """The plan that `to_json` told.

        Raises:
            ValueError, KeyError, TypeError, AttributeError, LowtideError: It is none of this version.
        """
        values = dict(told)
        if values.pop("format") != _FORMAT:
            message = f"format {told['format']!r} is not {_FORMAT}"
            raise ValueError(message)
        for name in _WHOLE:
            if type(values[name]) is not int or values[name] < 0:
                message = f"{name} is {values[name]!r}"
                raise ValueError(message)
        if not values["buckets"]:
            message = "there are no buckets"
            raise ValueError(message)
        values["buckets"] = tuple(
            BucketPlan(**{**bucket, "choice": Choice(**bucket["choice"])}) for bucket in values["buckets"]
        )
        values["components"] = tuple(Component(**one) for one in values["components"])
        values["sizes_tried"] = tuple(SizeTried(**one) for one in values["sizes_tried"])
        values["offers"] = tuple(Offer(**one) for one in values["offers"])
        return Plan(**values)

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)
