r"""Text files as sequences of codes: one a line, a document or a fixed span, in bounded memory whatever their size.

Texts come in batches of about a million characters. A text that is longer, a file without line ends for instance, goes
on in the next batch. \r\n ends a line as \n does; inside documents it is read as \n, unless the tokenizer takes bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.text.batch import TextBatch, TextCounts, numbered
from lowtide.data.text.decoding import DecodingCounts, Errors, checked_encoding, decoded_blocks
from lowtide.data.text.spans import spans_of
from lowtide.data.text.tokenizing import Tokenizer
from lowtide.errors import LowtideError

Unit: TypeAlias = "Literal['line', 'document'] | int"
Empty = Literal["drop", "keep", "error"]

_PIECE = 1 << 20
"""Characters after which a text is cut, and up to which texts are brought together."""
_LOOK_BACK = 1 << 12
"""Characters before the cut among which white space is looked for: words are best left whole."""


@dataclass(frozen=True)
class TextFile:
    """A file, and the name that its sequences go by."""

    path: Path
    name: str


@dataclass(frozen=True)
class TextReader:
    """Reads text files, any number of times."""

    files: Sequence[TextFile]
    unit: Unit
    """What a sequence is: "line"; "document", a file or what lies between separators; or this many codes."""
    separator: str | None = None
    """What lies between two documents of a file; None: a file is one document."""
    horizon: int = 0
    """For spans: how many codes ahead the targets lie. A span then has so many codes more, the first of the next span,
    so that each code is predicted once."""
    encoding: str = "utf-8"
    errors: Errors = "strict"
    empty: Empty = "drop"
    """What happens to texts of nothing but white space, or without a code; they are counted."""

    def __post_init__(self) -> None:
        """Refuse what cannot be read so."""
        spans = isinstance(self.unit, int) and not isinstance(self.unit, bool) and self.unit > 0
        for wrong, what, fix in [
            (not spans and self.unit not in {"line", "document"}, f"the unit {self.unit!r}", _UNITS),
            (self.separator == "", "an empty separator", "name the text between two documents, or leave it out"),
            (self.unit == "line" and self.separator is not None, "lines with a separator", 'take unit="document"'),
            (
                self.errors not in {"strict", "replace"},
                f"errors={self.errors!r}",
                'write {"errors": "strict"} or "replace"',
            ),
            (self.empty not in {"drop", "keep", "error"}, f"empty={self.empty!r}", 'write "drop", "keep" or "error"'),
        ]:
            if wrong:
                raise LowtideError(what=f"text cannot be read by {what}", why="it says what one sequence is", fix=fix)
        checked_encoding(self.encoding)

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.path.stat().st_size for file in self.files)

    def texts(self) -> Iterator[list[str]]:
        """One pass over the texts themselves, for a vocabulary or to train a tokenizer."""
        for file in self.files:
            for group in self._groups(file, DecodingCounts(), raw=False):
                yield group.texts

    def sequences(self, tokenizer: Tokenizer, counts: TextCounts) -> Iterator[TextBatch]:
        """One pass over the sequences.

        Args:
            tokenizer: Gives their codes.
            counts: Is kept up to date: what was read, and what became of it.

        Raises:
            LowtideError: A file cannot be read or decoded, or a text is blank where that is an error.
        """
        groups = (group for file in self.files for group in self._groups(file, counts, raw=tokenizer.raw))
        batches: Iterator[TextBatch] = (self._encoded(group, tokenizer, counts) for group in _gathered(groups))
        if isinstance(self.unit, int):
            batches = spans_of(batches, self.unit, self.horizon, counts)
        for batch in batches:
            counts.sequences += len(batch.ids) - batch.goes_on
            counts.codes += len(batch.codes)
            if len(batch.ids):
                yield batch

    def _groups(self, file: TextFile, counts: DecodingCounts, *, raw: bool) -> Iterator[_Group]:
        """The texts of a file in groups."""
        escaped = raw and checked_encoding(self.encoding) == "utf-8"
        errors: Errors = "surrogateescape" if escaped else self.errors
        blocks = decoded_blocks(file.path, encoding=self.encoding, errors=errors, counts=counts)
        lines = self.unit == "line"
        plain = blocks if raw and not lines else _plain_line_ends(blocks)
        return _split(plain, "\n" if lines else self.separator, file.name)

    def _encoded(self, group: _Group, tokenizer: Tokenizer, counts: TextCounts) -> TextBatch:
        tokens = tokenizer.encode(group.texts, first=not group.continues, last=not group.goes_on)
        counts.unknown += tokens.unknown
        batch = TextBatch(group.ids, tokens.codes, tokens.offsets, group.continues, group.goes_on)
        lengths = np.diff(tokens.offsets)
        # A tokenizer may put its special tokens around nothing at all.
        blank = np.array([not text or text.isspace() for text in group.texts]) | (lengths == 0)
        if group.continues:
            blank[0] = False
        if group.goes_on:
            blank[-1] = False
        counts.blank += int(blank.sum())
        return batch if not blank.any() else self._without(batch, blank)

    def _without(self, batch: TextBatch, blank: NDArray[np.bool_]) -> TextBatch:
        """Apply the policy for blank texts."""
        if self.empty == "error":
            raise LowtideError(
                what=f"{batch.ids[int(np.argmax(blank))].as_py()} is blank",
                why="a sequence of no steps teaches nothing",
                fix='remove it, or write text={"tokenizer": ..., "empty": "drop"}, or "keep"',
            )
        if self.empty == "keep":
            return batch
        lengths = np.diff(batch.offsets)
        kept = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths[~blank])])
        codes = batch.codes[np.repeat(~blank, lengths)]
        return TextBatch(batch.ids.filter(pa.array(~blank)), codes, kept, batch.continues, batch.goes_on)


def name_files(paths: Iterable[Path]) -> list[TextFile]:
    """Name files as shortly as tells them apart: by their paths below the folder that holds all of them."""
    absolute = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100 - links are left as they are
    shared = Path(os.path.commonpath([path.parent for path in absolute])) if absolute else Path()
    return [TextFile(path, path.relative_to(shared).as_posix()) for path in absolute]


_UNITS = 'write "line", "document", or a number of codes'


@dataclass(frozen=True)
class _Group:
    """Some texts of a file, or of several."""

    texts: list[str]
    ids: pa.Array
    continues: bool
    goes_on: bool


def _split(blocks: Iterator[str], separator: str | None, name: str) -> Iterator[_Group]:
    """Cut running text at a separator; a text that becomes long is given out in pieces."""
    kept = len(separator or " ")  # what may be the beginning of a separator stays with what follows
    number, rest, begun, any_text = 1, "", False, False

    def group(texts: list[str], *, goes_on: bool) -> _Group:
        ids = numbered(name, number, len(texts)) if separator else pa.array([name])
        return _Group(texts, ids, continues=begun, goes_on=goes_on)

    for block in blocks:
        any_text = True
        *texts, rest = (rest + block).split(separator) if separator else [rest + block]
        if texts:
            yield group(texts, goes_on=False)
            number, begun = number + len(texts), False
        while len(rest) > _PIECE + kept:
            cut = _place_to_cut(rest, _PIECE)
            yield group([rest[:cut]], goes_on=True)
            rest, begun = rest[cut:], True
    if rest or not any_text:
        yield group([rest], goes_on=False)


def _place_to_cut(text: str, most: int) -> int:
    """Before the last white space, so that words stay whole, or anywhere where there is none."""
    place = max(text.rfind(space, most - _LOOK_BACK, most) for space in " \n\t")
    return place if place > 0 else most


def _plain_line_ends(blocks: Iterator[str]) -> Iterator[str]:
    r"""Make \r\n to \n, also where a block ends between the two."""
    held = ""
    for block in blocks:
        text = held + block
        held = "\r" if text.endswith("\r") else ""
        if text := text[: len(text) - len(held)].replace("\r\n", "\n"):
            yield text
    if held:
        yield held


def _gathered(groups: Iterator[_Group]) -> Iterator[_Group]:
    """Bring small groups together: many small files have no cost a batch each."""
    waiting: list[_Group] = []
    size = 0
    for group in groups:
        if waiting and (group.continues or size + len(group.texts) > _PIECE):
            yield _together(waiting)
            waiting, size = [], 0
        waiting.append(group)
        size += len(group.texts) + sum(map(len, group.texts))
        if group.goes_on or size > _PIECE:
            yield _together(waiting)
            waiting, size = [], 0
    if waiting:
        yield _together(waiting)


def _together(groups: list[_Group]) -> _Group:
    texts = [text for group in groups for text in group.texts]
    ids = pa.concat_arrays([group.ids for group in groups])
    return _Group(texts, ids, groups[0].continues, groups[-1].goes_on)
