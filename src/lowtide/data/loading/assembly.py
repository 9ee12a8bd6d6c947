"""From settings and a view to the parts that a loader consists of."""

from __future__ import annotations

from lowtide.data.frameworks import arrays_of
from lowtide.data.loading.batch_list import BatchList, ListSettings
from lowtide.data.loading.collate import Collator
from lowtide.data.loading.drafts import Drafts
from lowtide.data.loading.lanes import LaneList, Lanes
from lowtide.data.loading.order import Ints
from lowtide.data.loading.policy import Items, SequenceItems, refuse_longer
from lowtide.data.loading.separators import SeparatedItems
from lowtide.data.loading.settings import LoaderSettings
from lowtide.data.loading.weights import ClassBalance, PartWeights, SequenceWeights, Weighting
from lowtide.data.loading.windows import Label, WindowItems, Windows, label_of
from lowtide.data.view import View
from lowtide.errors import LowtideError


def items_of(view: View, settings: LoaderSettings) -> Items:
    """The rows of batches that sequences become.

    Raises:
        LowtideError: Sequences are too long, or nothing is left.
    """
    if settings.windows is not None and settings.windows.separator is not None:
        return _some(_separated(view, settings.windows, settings))
    return items_of_lengths(view.lengths, settings)


def items_of_lengths(lengths: Ints, settings: LoaderSettings) -> Items:
    """The same, where lengths decide alone.

    Raises:
        LowtideError: Sequences are too long, or nothing is left.
    """
    return _some(_items(lengths, settings))


def _some(items: Items) -> Items:
    if not items.count:
        raise _no_batch(items)
    return items


def _no_batch(items: Items) -> LowtideError:
    return LowtideError(
        what=f"no batch comes of {items.report}",
        why="a loader without batches would train nothing, and nobody would see it",
        fix="look at the view's lengths, and at max_length=, over_length=, batch_size=, ranks= and drop_last=",
    )


def drafts_of(items: Items, settings: LoaderSettings) -> Drafts:
    """The order of all batches.

    Raises:
        LowtideError: The longest does not fit what batches are padded to; lanes do not fit ranks or items; there is no
            batch at all.
    """
    if settings.lanes is not None:
        return _lane_list(items, settings.lanes, settings)
    drafts = BatchList(
        items,
        ListSettings(
            settings.size,
            settings.rounding,
            seed=settings.seed,
            shuffle=settings.shuffle,
            drop_last=settings.drop_last,
        ),
        rank=settings.rank,
        ranks=settings.ranks,
    )
    settings.rounding.check(drafts.longest())
    if settings.drop_last and next(drafts.after(drafts.start(0)), None) is None:
        raise _no_batch(items)
    return drafts


def collator_of(view: View, items: Items, settings: LoaderSettings) -> Collator:
    """What makes batches.

    Raises:
        LowtideError: A field or a framework is not there, or the label rule does not fit the targets.
    """
    label = _label(view, items, settings)
    _refuse_parts_scaled_apart(view, settings, label)
    return Collator(
        view,
        arrays_of(settings.framework, pin_memory=settings.pin_memory),
        last=label == "last",
        batch_first=settings.batch_first,
        packed=settings.packed,
        dtypes=settings.dtypes,
        weightings=_weightings(view, items, settings, label),
    )


def _refuse_parts_scaled_apart(view: View, settings: LoaderSettings, label: Label | None) -> None:
    """Refuse to scale by its own numbers what is one of several parts of the same sequence, or a single step."""
    for field in view.schema.fields:
        if not any(transform.per_sequence for transform in view.store.transforms_of(field.name)):
            continue
        single = label == "last" and field.role == "targets" and field.per == "step"
        if single or settings.lanes is not None:
            raise LowtideError(
                what=f"the field {field.name!r} is transformed per sequence, and "
                + ('label="last" takes one step of it' if single else "lanes cut a sequence into chunks"),
                why="each part would be scaled by numbers of its own, a single step to zero",
                fix='ingest it with a transform that is fitted to all sequences, such as "standard"',
            )


def _items(lengths: Ints, settings: LoaderSettings) -> Items:
    limit, said = _limit(settings)
    if settings.windows is not None:
        _check_window(settings.windows, limit)
        return WindowItems(lengths, settings.windows.size, settings.windows.step)
    if limit is None:
        return SequenceItems(lengths)
    match settings.over_length:
        case None if settings.max_length is not None:
            return SequenceItems(lengths, limit=limit, cut=settings.cut or "head", seed=settings.seed)
        case "split":
            return WindowItems(lengths, limit, limit, split=True)
        case "drop":
            return SequenceItems(lengths, most=limit)
        case _:
            refuse_longer(lengths, limit, said=said)
            return SequenceItems(lengths)


def _separated(view: View, windows: Windows, settings: LoaderSettings) -> Items:
    _check_window(windows, _limit(settings)[0])
    return SeparatedItems(view, windows)


def _limit(settings: LoaderSettings) -> tuple[int | None, str]:
    """Steps that an item has at most, and the setting that says so."""
    padded = settings.max_padded_steps
    if padded is None:
        return settings.max_length, f"max_length={settings.max_length}"
    within = settings.rounding.largest_within(padded)
    if not within or (settings.max_length or 0) > within:
        raise LowtideError(
            what=f"max_padded_steps={padded} with max_length={settings.max_length} and "
            f"round_lengths={settings.round_lengths}: at most {within} steps fit",
            why="one row of the longest, with its padding, must fit into a batch",
            fix="raise max_padded_steps, or lower max_length and round_lengths",
        )
    return settings.max_length or within, f"max_padded_steps={padded}"


def _check_window(windows: Windows, limit: int | None) -> None:
    if limit is not None and windows.size > limit:
        raise LowtideError(
            what=f"windows of {windows.size} steps where {limit} fit into a batch",
            why="one window, with its padding, must fit into max_padded_steps",
            fix="raise max_padded_steps, or take smaller windows",
        )


def _lane_list(items: Items, lanes: Lanes, settings: LoaderSettings) -> LaneList:
    drafts = LaneList(
        items,
        lanes,
        settings.rounding,
        seed=settings.seed,
        shuffle=settings.shuffle,
        rank=settings.rank,
        ranks=settings.ranks,
    )
    settings.rounding.check(drafts.longest())
    return drafts


def _label(view: View, items: Items, settings: LoaderSettings) -> Label:
    """What the target of a row is."""
    several = settings.windows is not None or items.report.split > 0
    label = label_of(settings.windows.label if settings.windows else None, view.schema.targets)
    if settings.lanes is not None and label == "inherit":
        raise LowtideError(
            what="lanes, and targets per sequence",
            why="a lane's batch holds a part of a sequence, which has no target of its own",
            fix="use StreamStep(window_steps=...) on whole sequences, or targets per step",
        )
    return label if several else "step"


def _weightings(view: View, items: Items, settings: LoaderSettings, label: Label) -> list[Weighting]:
    found: list[Weighting] = []
    if label == "inherit":
        found.append(PartWeights(items.parts))
    if settings.weights is not None:
        found.append(SequenceWeights(view, settings.weights))
    if settings.balance is not None:
        # Random parts are others in each epoch: all steps count that they may have.
        counted = SequenceItems(view.lengths) if settings.cut == "random" else items
        together, last = label == "inherit", label == "last"
        found.append(ClassBalance(view, settings.balance, counted, last=last, together=together))
    return found
