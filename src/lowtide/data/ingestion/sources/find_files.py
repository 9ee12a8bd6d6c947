"""From paths, globs and folders to a list of files of one format."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lowtide.data.ingestion.tally import Tally
from lowtide.errors import LowtideError

Format = Literal["csv", "json", "parquet", "arrow", "text", "numpy"]

_ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".npy": "numpy",
    ".npz": "numpy",
}
_PACKED = {".gz", ".zst"}
_UNPACKABLE = {"csv", "json"}
_MAGIC = "*?["


@dataclass(frozen=True)
class Found:
    """Files of one format, in the order in which they are read."""

    paths: tuple[Path, ...]
    format: Format


def find_files(
    sources: str | Path | Sequence[str | Path], *, as_format: Format | None, tally: Tally, without: Path
) -> Found:
    """Find the files that a user names.

    Args:
        sources: A path, a glob, a folder, or several of them; files that several of them name count once.
        as_format: What the files are, whatever their endings say; None: as these say.
        tally: Counts the files of folders that hold no data.
        without: A folder inside these folders that does not count: the store's own.

    Raises:
        LowtideError: There is no such file, one is empty, or formats mix.
    """
    named = [sources] if isinstance(sources, str | Path) else list(sources)
    store = without.resolve()
    paths = list(dict.fromkeys(path for source in named for path in _expanded(source, as_format, tally, store)))
    if not paths:
        raise LowtideError(
            what=f"no files were found in {', '.join(map(str, named)) or 'an empty list of sources'}",
            why="a store needs at least one sequence",
            fix=f"name files that end in {', '.join(_ENDINGS)}",
        )
    formats = {path: as_format or _format(path) for path in paths}
    if len(set(formats.values())) > 1:
        first = {kind: path for path, kind in reversed(formats.items())}
        told = ", ".join(f"{path} is {kind}" for kind, path in first.items())
        raise LowtideError(
            what=f"the sources are of several formats: {told}",
            why="all files of an ingest are read in one way",
            fix='name the files of one format, with a glob such as "data/*.parquet", and append the others',
        )
    for path in paths:
        if path.stat().st_size == 0:
            raise LowtideError(
                what=f"{path} is empty: it has 0 bytes",
                why="a file that was not written to its end would be missing without a word",
                fix="write it again, or leave it out of the sources",
            )
    return Found(tuple(paths), formats[paths[0]])


def _expanded(source: str | Path, as_format: Format | None, tally: Tally, without: Path) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        return _in_folder(path, as_format, tally, without)
    if path.exists():
        return [path]
    if any(mark in str(source) for mark in _MAGIC):
        found = [Path(name) for name in sorted(glob.glob(str(source), recursive=True))]  # noqa: PTH207 - absolute globs
        files = [path for path in found if path.is_file()]
        if files:
            return files
    raise LowtideError(
        what=f"there is no file {source}",
        why="data that are left out would be missing without a word",
        fix=f"check the path; it is looked up from {Path.cwd()}",
    )


def _in_folder(folder: Path, as_format: Format | None, tally: Tally, without: Path) -> list[Path]:
    """All data files below a folder, without hidden ones."""
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or any(part.startswith((".", "_")) for part in parts):
            continue
        if path.resolve().is_relative_to(without):
            continue
        if as_format is None and _ending(path) is None:
            tally.left_aside[f"files of the folder that end in {path.suffix or 'nothing'!r}"] += 1
            continue
        found.append(path)
    return found


def _format(path: Path) -> Format:
    kind = _ending(path)
    if kind is not None:
        return kind
    raise LowtideError(
        what=f"{path} ends in {path.suffix!r}, which tells no format",
        why=f"formats are known by endings: {', '.join(_ENDINGS)}, and .gz or .zst behind those of CSV and JSON",
        fix='rename the file; for a text file, say how it becomes codes, as in text="characters"',
    )


def _ending(path: Path) -> Format | None:
    suffix = path.suffix.lower()
    if suffix not in _PACKED:
        return _ENDINGS.get(suffix)
    inner = _ENDINGS.get(Path(path.stem).suffix.lower())
    return inner if inner in _UNPACKABLE else None
