"""The shards and the lengths of a version while it is written, and how far they are safe.

A shard that ends behind a whole sequence is synced and noted in progress.json: that is where an interrupted ingest goes
on. Lengths go to their file as they come, since those of very many sequences would be much to hold.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.disk.files import (
    Digest,
    HashedFile,
    digest,
    disk_errors,
    plain_size,
    read_whole,
    sync,
    write_all,
    write_beside,
)
from lowtide.data.disk.lengths import LENGTHS, lengths_bytes, npy_header

_PROGRESS = "progress.json"
_COPIED = 1 << 17


@dataclass
class Written:
    """What lies in whole shards, without what an earlier version brought."""

    shards: list[dict[str, Any]] = field(default_factory=list)
    """Of each: name, bytes, sha256, batches."""
    continued_rows: list[int] = field(default_factory=list)
    rows: int = 0
    sequences: int = 0
    steps: int = 0


class ShardFiles:
    """Takes record batches, and makes shards of them."""

    def __init__(self, folder: Path, schema: pa.Schema, *, shard_bytes: int, before: NDArray[np.int64]) -> None:
        """Go on behind what is noted in the folder, or begin.

        Args:
            folder: The version's folder, made already.
            schema: The shards' columns.
            shard_bytes: Size at which the next shard begins.
            before: Lengths of the sequences that come before these, in an earlier version.
        """
        self._folder = folder
        self._schema = schema
        self._shard_bytes = shard_bytes
        self._before = before
        self._sink: HashedFile | None = None
        self._writer: pa.RecordBatchFileWriter | None = None
        self._batches: list[int] = []
        self._open_steps = -1
        """Steps of a sequence whose last piece is still to come; -1: there is none."""
        self.written = self._noted()
        self._lengths = self._open_lengths()

    def write(self, batch: pa.RecordBatch, lengths: NDArray[np.int64], *, incomplete: bool) -> None:
        """Write some rows.

        Args:
            batch: The rows.
            lengths: The steps of each row.
            incomplete: Whether the last row's sequence goes on in the next batch.
        """
        if self._sink is not None and self._sink.bytes + batch.nbytes > self._shard_bytes:
            self._end_shard()
        self._begin_shard().write_batch(batch)
        self._batches.append(batch.num_rows)
        self._count(lengths, incomplete=incomplete)

    def finish(self) -> Digest:
        """End the last shard and the lengths; gives the digest of the lengths."""
        assert self._open_steps < 0
        self._end_shard()
        path = self._folder / LENGTHS
        with disk_errors(path):
            self._lengths.seek(0)
            write_all(self._lengths, npy_header(len(self._before) + self.written.sequences))
            self._lengths.close()
        sync(path)
        return digest(path)

    def forget_progress(self) -> None:
        """Remove what only an interrupted ingest needs."""
        (self._folder / _PROGRESS).unlink(missing_ok=True)

    def close(self) -> None:
        """Leave everything as it is."""
        self._lengths.close()
        if self._sink is not None:
            self._sink.close()

    def _begin_shard(self) -> pa.RecordBatchFileWriter:
        if self._writer is None:
            name = f"shard-{len(self.written.shards):05d}.arrow"
            self._sink = HashedFile(self._folder / name)
            self._writer = pa.ipc.new_file(pa.PythonFile(self._sink, mode="w"), self._schema)
        return self._writer

    def _end_shard(self) -> None:
        if self._sink is None or self._writer is None:
            return
        self._writer.close()
        made = self._sink.finish()
        name = f"shard-{len(self.written.shards):05d}.arrow"
        entry = {"name": name, "bytes": made.bytes, "sha256": made.sha256, "batches": self._batches}
        self.written.shards.append(entry)
        self._sink, self._writer, self._batches = None, None, []
        if self._open_steps < 0:
            sync(self._folder / LENGTHS)
            noted = json.dumps(vars(self.written)).encode()
            write_beside(self._folder / _PROGRESS, _sealed(noted))

    def _count(self, lengths: NDArray[np.int64], *, incomplete: bool) -> None:
        counts = lengths.astype("<i8")
        written = self.written
        written.steps += int(counts.sum())
        if self._open_steps >= 0:
            written.continued_rows.append(written.rows)
            counts[0] += self._open_steps
        written.rows += len(counts)
        self._open_steps = int(counts[-1]) if incomplete else -1
        whole = counts[:-1] if incomplete else counts
        written.sequences += len(whole)
        with disk_errors(self._folder / LENGTHS):
            write_all(self._lengths, whole.tobytes())

    def _noted(self) -> Written:
        """What an interrupted ingest left that is whole; the rest is removed."""
        noted = self._read_progress()
        kept = {shard["name"] for shard in noted.shards} | {LENGTHS, _PROGRESS}
        for path in self._folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in kept:
                path.unlink()
        return noted

    def _read_progress(self) -> Written:
        path = self._folder / _PROGRESS
        sealed = b"" if plain_size(path) is None else read_whole(path)
        _, _, described = sealed.partition(b"\n")
        if sealed != _sealed(described):
            return Written()
        noted = Written(**json.loads(described))
        sizes = {shard["name"]: shard["bytes"] for shard in noted.shards}
        there = all(plain_size(self._folder / name) == size for name, size in sizes.items())
        counted = (plain_size(self._folder / LENGTHS) or 0) >= self._lengths_bytes(noted)
        return noted if there and counted else Written()

    def _open_lengths(self) -> FileIO:
        path = self._folder / LENGTHS
        with disk_errors(path):
            if self.written.shards:
                file = path.open("r+b", buffering=0)
                file.truncate(self._lengths_bytes(self.written))
                file.seek(0, os.SEEK_END)
                return file
            file = path.open("w+b", buffering=0)
            write_all(file, npy_header(0))
            for start in range(0, len(self._before), _COPIED):
                write_all(file, self._before[start : start + _COPIED].astype("<i8").tobytes())
            return file

    def _lengths_bytes(self, written: Written) -> int:
        return lengths_bytes(len(self._before) + written.sequences)


def _sealed(described: bytes) -> bytes:
    """What is noted, below its checksum: numbers that a disk has changed would make a store of them."""
    return hashlib.sha256(described).hexdigest().encode() + b"\n" + described
