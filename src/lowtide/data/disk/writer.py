"""Writing a store, sequence by sequence, in bounded memory.

Everything goes into a folder beside the store's versions, and becomes a version of the store by `commit` alone. Shards
are synced and noted as they end, so that an ingest that was interrupted can go on behind them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.disk import versions
from lowtide.data.disk.files import disk_errors
from lowtide.data.disk.lengths import LENGTHS, map_lengths
from lowtide.data.disk.manifest import FORMAT, FileEntry, Manifest, ShardEntry
from lowtide.data.disk.row_buffer import Name
from lowtide.data.disk.row_stream import RowStream
from lowtide.data.disk.shard_files import ShardFiles
from lowtide.data.disk.supplements import Supplements
from lowtide.data.fields import Array, Schema
from lowtide.data.store import Store
from lowtide.errors import LowtideError

if TYPE_CHECKING:
    from lowtide.data.splitting.splits import Splits
    from lowtide.data.transforms import Transform

SHARD_BYTES = 256 << 20
_LEAST_SHARD_BYTES = 256
_SCRATCH = "scratch"


class StoreWriter:
    """Makes a store, or a new version of one; to be used in a `with` block that ends with `commit`.

    Sequences come whole (`add`), many at once (`add_rows`), or bit by bit (`begin`, `extend`, `end`). Leaving the block
    without `commit` leaves what was there before. With `request`, an interrupted process leaves what it has written,
    and the next writer with the same request goes on: it has `sequences` already, which shall not be added again.
    """

    def __init__(
        self,
        path: str | Path,
        schema: Schema,
        *,
        shard_bytes: int = SHARD_BYTES,
        request: Mapping[str, object] | None = None,
        append: bool = False,
    ) -> None:
        """Describe what is to be written; nothing is touched before the `with` block begins.

        Args:
            path: The store's folder: a store, empty, or not there yet.
            schema: The fields of every sequence.
            shard_bytes: Size at which the next file begins. A sequence that is larger lies in several pieces.
            request: What the content follows from, as plain values; None: it cannot be gone on with.
            append: Keep the sequences that the store has, and add to them.
        """
        if shard_bytes < _LEAST_SHARD_BYTES:
            raise LowtideError(
                what=f"shard_bytes is {shard_bytes}",
                why=f"a file holds at least {_LEAST_SHARD_BYTES} bytes of steps, and is read best with many millions",
                fix="leave it out, or name a size such as 256 << 20",
            )
        self._path = Path(path)
        self._schema = schema
        self._shard_bytes = shard_bytes
        self._request = request
        self._append = append
        self._before: Manifest | None = None
        self._sealed: Manifest | None = None
        self._committed = False

    @property
    def sequences(self) -> int:
        """Sequences that are whole: those gone on with and those added, not those that an append found."""
        return self._stream.sequences

    @property
    def scratch(self) -> Path:
        """A folder for temporary files beside the data, which goes when the writer does."""
        folder = self._building / _SCRATCH
        with disk_errors(folder):
            folder.mkdir(exist_ok=True)
        return folder

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(versions.writing(self._path))
            self._before = self._find_before()
            self._building = self._path / f"{versions.BUILDING}{self._digest()}"
            versions.clean(self._path, spare=None if self._request is None else self._building)
            with disk_errors(self._building):
                self._building.mkdir(exist_ok=True)
            stack.push(self._leave)
            self._files = ShardFiles(
                self._building, self._schema.arrow, shard_bytes=self._shard_bytes, before=self._lengths_before()
            )
            stack.callback(self._files.close)
            self._stream = RowStream(self._schema, self._files, shard_bytes=self._shard_bytes)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.__exit__(kind, error, trace)

    def add(self, name: Name, arrays: Mapping[str, Array]) -> None:
        """Add one whole sequence.

        Args:
            name: What it is called.
            arrays: Every field's array, of the field's type: (T, width) or (T,) per step, (width,) or () per sequence.

        Raises:
            LowtideError: The arrays do not fit the schema, or the disk is full.
        """
        self._refuse_sealed()
        self._stream.add(name, arrays)

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Add many whole sequences: columns as in `schema.arrow`, nothing missing.

        Raises:
            LowtideError: The columns do not fit the schema, or the disk is full.
        """
        self._refuse_sealed()
        self._stream.add_rows(rows)

    def begin(self, name: Name) -> None:
        """Begin a sequence whose steps come bit by bit."""
        self._refuse_sealed()
        self._stream.begin(name)

    def extend(self, arrays: Mapping[str, Array]) -> None:
        """Add steps to the sequence that was begun: arrays of all fields per step, equally long.

        Raises:
            LowtideError: The arrays do not fit the schema, or the disk is full.
        """
        self._stream.extend(arrays)

    def end(self, values: Mapping[str, Array] | None = None) -> None:
        """End the sequence that was begun, with its values per sequence.

        Raises:
            LowtideError: The values do not fit the schema.
        """
        self._stream.end(values or {})

    def written(self) -> Store:
        """End the files, and open what is there, before it is committed; nothing can be added any more.

        For what is learnt from the data themselves: `View(writer.written(), part.index, part.start, part.stop)` is the
        training part. The store that comes back is of use until it is committed.
        """
        return Store.of_manifest(self._path, self._seal())

    def commit(
        self,
        *,
        vocabularies: Mapping[str, Sequence[str]] | None = None,
        documents: Mapping[str, str] | None = None,
        splits: Splits | None = None,
        transforms: Sequence[Transform] | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        """Make it the store's current version, at once and whole.

        Args:
            vocabularies: Entries in the order of their codes, by name; an append keeps those it is not given.
            documents: Texts that belong to the data, by name; the same.
            splits: Which sequences belong to which part: of all sequences, also those that an append found.
            transforms: Fitted, in the order in which they are applied; an append keeps those of the store.
            notes: How the data came in, as plain values, for whoever wonders.

        Raises:
            LowtideError: Nothing was added, something is missing, or the disk is full.
        """
        if splits is None and self._before is not None and self._before.splits is not None:
            raise LowtideError(
                what="sequences were appended to a store that is split, and the splits of all were not given",
                why="the new sequences would belong to no part",
                fix="commit(splits=...) with splits that go on from store.splits",
            )
        supplements = Supplements(vocabularies, documents, splits, transforms, notes)
        made = supplements.save(self._path, self._building, self._seal())
        self._files.forget_progress()
        shutil.rmtree(self._building / _SCRATCH, ignore_errors=True)
        versions.publish(self._path, self._building, made)
        self._committed = True
        versions.clean(self._path)

    def _leave(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        interrupted = kind is not None and not isinstance(error, Exception)
        if not self._committed and not (interrupted and self._request is not None):
            shutil.rmtree(self._building, ignore_errors=True)

    def _find_before(self) -> Manifest | None:
        if not self._append:
            return None
        before = versions.read_current(self._path)
        if before.schema != self._schema:
            raise LowtideError(
                what=f"the sequences to append have {self._schema}, and the store has {before.schema}",
                why="all sequences of a store have the same fields",
                fix="convert them, or make a store of their own",
            )
        return before

    def _lengths_before(self) -> NDArray[np.int64]:
        if self._before is None:
            return np.zeros(0, dtype=np.int64)
        return map_lengths(self._path / self._before.lengths.path, self._before.sequences)

    def _digest(self) -> str:
        """A name for what is being written: the same for the same request alone."""
        described = {
            "request": self._request,
            "schema": self._schema.to_json(),
            "shard_bytes": self._shard_bytes,
            "append": None if self._before is None else self._before.fingerprint,
            "format": FORMAT,
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def _refuse_sealed(self) -> None:
        if self._sealed is not None:
            raise LowtideError(
                what="a sequence was added after the files were ended",
                why="written() and commit() end them",
                fix="add everything first, or open another writer with append=True",
            )

    def _seal(self) -> Manifest:
        """End the files; the manifest of what they hold, in the folder where they are now."""
        if self._sealed is None:
            self._stream.finish()
            lengths = self._files.finish()
            self._sealed = self._describe(FileEntry(self._building.name, LENGTHS, lengths.bytes, lengths.sha256))
        return self._sealed

    def _describe(self, lengths: FileEntry) -> Manifest:
        written, before = self._files.written, self._before
        if not written.sequences:
            raise LowtideError(
                what=f"no sequence was written to {self._path}",
                why="an empty store would fail where it is used, far from what made it empty",
                fix="check the sources, and what was dropped from them",
            )
        shards = tuple(
            ShardEntry(
                FileEntry(self._building.name, shard["name"], shard["bytes"], shard["sha256"]), tuple(shard["batches"])
            )
            for shard in written.shards
        )
        continued = np.array(written.continued_rows, dtype=np.int64)
        current = versions.current_version(self._path)
        plain = Manifest(
            version=versions.next_version(self._path),
            previous=current,
            schema=self._schema,
            sequences=written.sequences,
            steps=written.steps,
            continued_rows=continued,
            shards=shards,
            lengths=lengths,
        )
        return plain if before is None else plain.after(before)
