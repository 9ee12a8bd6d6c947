"""An ingest from its request to the store: what a source gives is encoded, shifted, written, split and fitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lowtide.data.disk.manifest import SPLITS
from lowtide.data.disk.supplements import read_splits
from lowtide.data.disk.writer import StoreWriter
from lowtide.data.fields import Schema
from lowtide.data.ingestion.chunk_encoder import ChunkEncoder
from lowtide.data.ingestion.field_plan import CATEGORY, FieldPlan
from lowtide.data.ingestion.filling import policies_of
from lowtide.data.ingestion.horizon import Horizon
from lowtide.data.ingestion.mean_fill import Refill, by_column, column_means, means_of, wants_means
from lowtide.data.ingestion.missing import Missing, Policy
from lowtide.data.ingestion.progress import Meter, Watcher
from lowtide.data.ingestion.report import IngestReport
from lowtide.data.ingestion.request import Request
from lowtide.data.ingestion.sink import Sink
from lowtide.data.ingestion.sources.chunk import Chunk
from lowtide.data.ingestion.sources.open_source import open_source
from lowtide.data.ingestion.sources.source import Setting, Source
from lowtide.data.ingestion.tally import Tally
from lowtide.data.ingestion.unique_names import UniqueNames
from lowtide.data.splitting.splits import SplitMaker, Splits, training_part
from lowtide.data.store import TOKENIZER, Store
from lowtide.data.text.tokenizing import Tokenizer
from lowtide.data.transforms import fit_transforms
from lowtide.data.view import View
from lowtide.errors import LowtideError

MEANS = "means"
_UNFILLED = "unfilled"


class Ingest:
    """One ingest."""

    def __init__(self, request: Request, watcher: Watcher | None) -> None:
        """Look at the store that is appended to, if there is one.

        Raises:
            LowtideError: It is not there, or has what only a new store can be given.
        """
        self._before = _appended_to(request)
        self._means: dict[str, float] = {}
        """By column: what missing values are filled with, as far as that is known."""
        self._request = request
        if self._before is not None:
            self._means = _means_before(request, self._before)
            self._request = _with_means(request, self._before, self._means)
        self._tally = Tally()
        self._meter = Meter(watcher)

    def run(self, sources: Any) -> tuple[Store, IngestReport]:  # noqa: ANN401 - see `ingest`
        """Read the sources and write the store.

        Raises:
            LowtideError: Something cannot be read, or be what was asked for.
        """
        request = self._request
        with open_source(sources, request, self._tally, self._known_tokenizer()) as source:
            splits = self._split_maker(source)
            plans = source.plan()
            schema = Schema(tuple(plan.field for plan in plans), source.id_type)
            writer = StoreWriter(
                request.out,
                schema,
                shard_bytes=request.shard_bytes,
                request=self._identity(source, plans),
                append=request.append,
            )
            with writer:
                report = self._write(writer, source, plans, schema, splits)
                report = replace(report, sources=_told(sources))
                self._commit(writer, source, splits, report)
        self._meter.begin("done")
        return Store(request.out), report

    def _write(
        self,
        writer: StoreWriter,
        source: Source,
        plans: Sequence[FieldPlan],
        schema: Schema,
        splits: SplitMaker | None,
    ) -> IngestReport:
        before = [] if self._before is None else self._before.ids.chunks()
        names = None if source.names_differ and self._before is None else UniqueNames(before)
        encoder = self._encoder(source, plans)
        chunks = self._encoded(writer.scratch, encoder, source, plans)
        if not wants_means(plans):
            sink = Sink(writer, schema, self._tally, splits=splits, names=names)
            self._pour(chunks, sink, schema)
            encoder.finish()
        else:
            with StoreWriter(writer.scratch / _UNFILLED, schema) as unfilled:
                self._pour(chunks, Sink(unfilled, schema, self._tally, splits=splits, names=None), schema)
                encoder.finish()
                everything = unfilled.written()
                found = means_of(_training(everything, None if splits is None else splits.finish()), plans)
                self._means |= by_column(plans, found)
                self._meter.begin("filling")
                sink = Sink(writer, schema, self._tally, splits=None, names=names)
                self._pour(Refill(everything, plans, found).chunks(), sink, schema)
        self._vocabularies = encoder.vocabularies
        if names is not None:
            names.check(writer.written())
        return IngestReport(
            sequences=sink.sequences,
            steps=sink.steps,
            tally=self._tally,
            halves=tuple(sink.halves),
            missing=policies_of(plans),
            means=self._means,
            horizon=self._request.horizon,
        )

    def _encoded(
        self, scratch: Path, encoder: ChunkEncoder, source: Source, plans: Sequence[FieldPlan]
    ) -> Iterator[Chunk]:
        horizon = self._request.horizon
        shifter = Horizon(horizon, plans) if horizon else None
        count = 0 if self._before is None else len(self._before)
        setting = Setting(scratch, self._meter, self._tally, count)
        made = [plan for plan in plans if plan.shifted_from is None]
        for raw in source.chunks(made, setting):
            chunk = encoder.encode(raw)
            if len(chunk.names):
                yield chunk if shifter is None else shifter.shift(chunk)

    def _pour(self, chunks: Iterable[Chunk], sink: Sink, schema: Schema) -> None:
        step_bytes = sum(field.step_bytes for field in schema.per_step)
        for chunk in chunks:
            sink.put(chunk)
            steps = int(chunk.offsets[-1])
            self._meter.wrote(steps, steps * step_bytes)
        if not sink.sequences and self._tally.dropped:
            raise LowtideError(
                what=f"nothing is left for {self._request.out}: {'; '.join(self._tally.lines())}",
                why="an empty store would fail where it is used, far from what made it empty",
                fix="correct the sources; or ask for another horizon=, or missing=",
            )

    def _encoder(self, source: Source, plans: Sequence[FieldPlan]) -> ChunkEncoder:
        known: dict[str, list[str]] = {}
        if self._before is not None:
            before = self._before
            known = {name: before.vocabulary(name) for name in before.manifest.vocabularies}
        mixed = {name for name, told in self._request.dtypes.items() if told == CATEGORY}
        return ChunkEncoder(plans, source, self._tally, known=known, mixed=mixed)

    def _commit(self, writer: StoreWriter, source: Source, splits: SplitMaker | None, report: IngestReport) -> None:
        made = None if splits is None else splits.finish()
        transforms = None
        if self._request.transforms is not None:
            self._meter.begin("fitting")
            transforms = fit_transforms(_training(writer.written(), made), self._request.transforms)
        appended = [] if self._before is None else list(self._before.manifest.notes.get("ingests", []))
        writer.commit(
            vocabularies={**source.vocabularies, **self._vocabularies} or None,
            documents=source.documents or None,
            splits=made,
            transforms=transforms,
            notes={"ingests": [*appended, report.notes()]},
        )

    def _split_maker(self, source: Source) -> SplitMaker | None:
        request, before = self._request, self._before
        after = None
        if before is not None and before.manifest.splits is not None:
            path = before.path / before.manifest.arrays[SPLITS].path
            after = read_splits(path, before.manifest.splits, len(before))
        if request.split is None and after is None:
            return None
        if before is not None and after is None:
            raise LowtideError(
                what=f"split= was given, and {request.out}, which is appended to, is not split",
                why="its sequences would belong to no part",
                fix="leave split= out, or ingest everything anew with it",
            )
        made = SplitMaker(request.split, gap=request.horizon, after=after)
        if made.boundaries and not source.has_order:
            raise LowtideError(
                what=f"the parts end at {made.boundaries[0]!r}, and the source has no order column",
                why="steps are put into parts by that column",
                fix="name it as order=, or cut by fractions: ByTime(fractions={...})",
            )
        return made

    def _known_tokenizer(self) -> Tokenizer | None:
        if self._before is None or TOKENIZER not in self._before.manifest.documents:
            return None
        return self._before.tokenizer()

    def _identity(self, source: Source, plans: Sequence[FieldPlan]) -> Mapping[str, object] | None:
        """What the store's content follows from, by which an interrupted ingest is known again."""
        found = source.identity if self._request.resume else None
        if found is None:
            return None
        asked = replace(self._request, transforms=None, memory_limit=0)
        if not wants_means(plans) and asked.text is None:
            asked = replace(asked, split=None)  # which then changes nothing of what is written
        return {"sources": dict(found), "request": repr(asked)}


def _training(store: Store, splits: Splits | None) -> View:
    if splits is None:
        return store.view()
    part = splits.part(training_part(splits.names))
    return View(store, part.index, part.start, part.stop)


def _appended_to(request: Request) -> Store | None:
    if not request.append:
        return None
    if request.transforms is not None:
        raise LowtideError(
            what=f"transforms= was given, and sequences are appended to {request.out}",
            why="transforms are fitted once: batches of one store go through the same numbers",
            fix="leave it out, or ingest everything anew",
        )
    before = Store(request.out)
    ingests = before.manifest.notes.get("ingests", [])
    horizon = ingests[0].get("horizon", 0) if ingests else request.horizon
    if horizon != request.horizon:
        raise LowtideError(
            what=f"horizon={request.horizon} was given, and the targets of {request.out} lie {horizon} steps ahead",
            why="a model would be taught two things under one name",
            fix=f"append with horizon={horizon}, or make a store of its own",
        )
    return before


def _means_before(request: Request, before: Store) -> dict[str, float]:
    """What a store's missing values were filled with; of other columns, the means of its training part."""
    noted: dict[str, float] = {}
    for ingest in before.manifest.notes.get("ingests", []):
        noted = {**ingest.get(MEANS, {}), **noted}
    made: dict[str, float] = {}
    for field in before.schema.fields:
        asked = [request.missing.of(field.name, column).kind == "mean" for column in field.columns]
        made |= {column: noted[column] for column in field.columns if column in noted and column not in made}
        wanted = [mean and column not in made for mean, column in zip(asked, field.columns, strict=True)]
        if any(wanted) and field.storage.kind != "i":
            found = column_means(_training_of(before), field, wanted)
            made |= {column: float(mean) for column, mean in zip(field.columns, found, strict=True) if mean == mean}  # noqa: PLR0124 - not NaN
    return made


def _training_of(store: Store) -> View:
    return store.split(training_part(store.splits)) if store.splits else store.view()


def _with_means(request: Request, before: Store, means: Mapping[str, float]) -> Request:
    """The request with these means, where it is asked for means."""
    told = request.missing
    filled = {
        column: Policy("value", means[column])
        for field in before.schema.fields
        for column in field.columns
        if column in means and told.of(field.name, column).kind == "mean"
    }
    return replace(request, missing=Missing({**told.by_name, **filled}, told.others))


def _told(sources: object) -> list[str]:
    """The sources as they are noted."""
    if isinstance(sources, str | Path):
        return [str(sources)]
    if isinstance(sources, list | tuple) and all(isinstance(source, str | Path) for source in sources):
        return [*map(str, sources[:20]), *([f"and {len(sources) - 20} more"] if len(sources) > 20 else [])]  # noqa: PLR2004 - enough
    return [f"a {type(sources).__name__}"]
