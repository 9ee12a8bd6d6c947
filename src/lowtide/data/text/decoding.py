"""Text files in blocks of bounded size, decoded; what cannot be decoded is found to the byte."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lowtide.data.text.tokenizing import REPLACEMENT
from lowtide.errors import LowtideError

Errors = Literal["strict", "replace", "surrogateescape"]

BLOCK = 1 << 20
"""Bytes read at once."""


@dataclass
class DecodingCounts:
    """What was read so far."""

    bytes: int = 0
    replaced: int = 0
    """Places that could not be decoded and became the replacement character."""


def decoded_blocks(path: Path, *, encoding: str, errors: Errors, counts: DecodingCounts) -> Iterator[str]:
    """Read a text file block by block; a byte order mark of UTF-8 is not part of the text.

    Args:
        path: The file.
        encoding: Any encoding that Python knows.
        errors: For bytes that are not of that encoding: "strict" for an error, "replace" for the replacement
            character, counted; "surrogateescape" keeps them hidden in the text.
        counts: Is kept up to date.

    Raises:
        LowtideError: There is no such encoding, the file cannot be read, or bytes are not of the encoding.
    """
    codec = checked_encoding(encoding)
    decoder = codecs.getincrementaldecoder(codec)(errors)
    blocks = _blocks(path)
    first = next(blocks, b"")
    counts.bytes += len(first)
    mark = len(codecs.BOM_UTF8) if codec == "utf-8" and first.startswith(codecs.BOM_UTF8) else 0
    read, block = mark, first[mark:]
    while True:
        state = decoder.getstate()
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            raise _undecodable(path, encoding, read - len(state[0]) + error.start, error) from error
        if errors == "replace" and REPLACEMENT in text:
            counts.replaced += text.count(REPLACEMENT) - _genuine(codec, state, block)
        if text:
            yield text
        if not block:
            return
        read += len(block)
        block = next(blocks, b"")
        counts.bytes += len(block)


def checked_encoding(encoding: str) -> str:
    """Python's own name of an encoding."""
    try:
        return codecs.lookup(encoding).name
    except LookupError as error:
        raise LowtideError(
            what=f"there is no encoding {encoding!r}",
            why="it says which bytes stand for which characters",
            fix='name one that Python knows, such as "utf-8", "latin-1" or "utf-16"',
        ) from error


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(BLOCK):
                yield block
    except OSError as error:
        raise LowtideError(
            what=f"{path} cannot be read: {error.strerror or error}",
            why="a text that is left out would be missing without a word",
            fix="check the path, its rights and the disk",
        ) from error


def _genuine(codec: str, state: tuple[bytes, int], block: bytes) -> int:
    """Replacement characters that the text itself has."""
    decoder = codecs.getincrementaldecoder(codec)("ignore")
    decoder.setstate(state)
    return decoder.decode(block, final=not block).count(REPLACEMENT)


def _undecodable(path: Path, encoding: str, offset: int, error: UnicodeDecodeError) -> LowtideError:
    found = error.object[error.start : error.end].hex(" ")
    return LowtideError(
        what=f"{path}, byte {offset}: {found} is not {encoding} ({error.reason})",
        why="a text read in another encoding than its own is full of wrong characters",
        fix='name the encoding of the file (encoding="latin-1"), take it byte for byte (text="bytes"), or let what '
        'cannot be read become a replacement character (text={"tokenizer": "characters", "errors": "replace"})',
    )
