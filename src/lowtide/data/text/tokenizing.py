"""From text to codes and back: bytes, characters, or a tokenizer of the package `tokenizers`.

A tokenizer takes texts by the list and gives their codes in one array with offsets, so that it has no cost a text. It
is stored in the store as text (`to_text`, `read_tokenizer`), never as a pickle.
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide.data.fields import StoredType
from lowtide.data.text.vocabulary import code_type
from lowtide.errors import LowtideError

REPLACEMENT = "\ufffd"
"""What stands for a character that is not known."""
VERSION = 1
_BYTES = 256
_UTF_32 = "utf-32-le" if sys.byteorder == "little" else "utf-32-be"


@dataclass(frozen=True)
class Tokens:
    """The codes of some texts, one text after the other."""

    codes: NDArray[Any]
    offsets: NDArray[np.int64]
    """Where each text's codes begin, and the end: one more than there are texts."""
    unknown: int = 0
    """Characters or words that the vocabulary does not have."""


class Tokenizer(ABC):
    """Turns texts into codes, and codes into text."""

    kind: str
    """Its name where it is asked for and stored."""
    raw = False
    """Whether it takes documents byte for byte: with the \\r of their line ends, and with what is no UTF-8."""

    @property
    @abstractmethod
    def vocabulary(self) -> list[str]:
        """What each code stands for, in order; for the codes' number, and to be looked at."""

    @property
    def dtype(self) -> StoredType:
        """The type that its codes are stored in."""
        return code_type(len(self.vocabulary))

    @abstractmethod
    def encode(self, texts: Sequence[str], *, first: bool = True, last: bool = True) -> Tokens:
        """The codes of texts.

        Args:
            texts: Any number of them.
            first: Whether the first of them begins here; otherwise it continues what came before.
            last: Whether the last of them ends here; otherwise it goes on.
        """

    @abstractmethod
    def decode(self, codes: NDArray[Any]) -> str:
        """The text of some codes."""

    @abstractmethod
    def to_text(self) -> str:
        """All there is to know about it, as JSON; `read_tokenizer` reads it."""


class Bytes(Tokenizer):
    """The bytes of a text in UTF-8; code = byte."""

    kind = "bytes"
    raw = True

    @property
    def vocabulary(self) -> list[str]:
        """Printable bytes as they are, others by their number in base 16."""
        return [chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in range(_BYTES)]  # noqa: PLR2004 - ASCII

    def encode(self, texts: Sequence[str], *, first: bool = True, last: bool = True) -> Tokens:  # noqa: ARG002
        """Their bytes; bytes of a file that are no UTF-8 come through as they were."""
        joined = "".join(texts)
        if joined.isascii():
            return Tokens(np.frombuffer(joined.encode("ascii"), dtype=np.uint8).astype(np.int16), offsets_of(texts))
        encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
        codes = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int16)
        return Tokens(codes, offsets_of(encoded))

    def decode(self, codes: NDArray[Any]) -> str:
        """The text; bytes that are no UTF-8 as the replacement character."""
        return _checked(codes, _BYTES).astype(np.uint8).tobytes().decode("utf-8", "replace")

    def to_text(self) -> str:
        """Its kind."""
        return json.dumps({"kind": self.kind, "version": VERSION})


class Characters(Tokenizer):
    """Characters by a vocabulary; code 0 is every character that it does not have."""

    kind = "characters"

    def __init__(self, characters: Iterable[str]) -> None:
        """Know these characters; sorted, they get the codes from 1 on.

        Raises:
            LowtideError: Something is not one character.
        """
        self._characters = sorted(set(characters))
        wrong = [character for character in self._characters if len(character) != 1]
        if wrong:
            raise LowtideError(
                what=f"{wrong[0]!r} is not one character",
                why="a vocabulary of characters gives every character a code",
                fix="give single characters, or ask for a tokenizer",
            )
        points = np.array([ord(character) for character in self._characters], dtype=np.int64)
        self._code_of = np.zeros(int(points.max(initial=0)) + 2, dtype=code_type(len(points) + 1))
        self._code_of[points] = np.arange(1, len(points) + 1)
        self._points = np.array([ord(REPLACEMENT), *points], dtype=np.uint32)

    @property
    def vocabulary(self) -> list[str]:
        """The empty text for what is unknown, then the characters."""
        return ["", *self._characters]

    def encode(self, texts: Sequence[str], *, first: bool = True, last: bool = True) -> Tokens:  # noqa: ARG002
        """The codes of their characters."""
        points = code_points("".join(texts))
        # What lies behind the last known character falls on the entry behind it, which is 0 for unknown.
        codes = self._code_of[np.minimum(points, np.uint32(len(self._code_of) - 1))]
        return Tokens(codes, offsets_of(texts), int(len(codes) - np.count_nonzero(codes)))

    def decode(self, codes: NDArray[Any]) -> str:
        """The text; what was unknown as the replacement character."""
        points = self._points[_checked(codes, len(self._points))]
        return str(points.tobytes(), _UTF_32, "replace")

    def to_text(self) -> str:
        """The characters."""
        return json.dumps({"kind": self.kind, "version": VERSION, "characters": self._characters})


def make_tokenizer(request: object, texts: Callable[[], Iterable[Sequence[str]]], *, total_bytes: int) -> Tokenizer:
    """The tokenizer that a user asked for.

    Args:
        request: "bytes"; "characters", with a vocabulary of all that the data have; a tokenizer of `tokenizers`, or the
            path of its JSON file; `{"train": "bpe", "size": 8000}` to train one from the data (see
            `hugging_face.train`); or a `Tokenizer` of this module.
        texts: Begins a pass over the data: texts by the list, of bounded size. Called once, and only where the data
            are needed.
        total_bytes: About how much text such a pass gives.

    Raises:
        LowtideError: It is none of these, or `tokenizers` is needed and not installed.
    """
    if isinstance(request, Tokenizer):
        return request
    if request == Bytes.kind:
        return Bytes()
    if request == Characters.kind:
        return Characters(_characters_of(texts()))
    from lowtide.data.text import hugging_face  # noqa: PLC0415 - an extra, loaded where it is asked for

    if isinstance(request, Mapping) and "train" in request:
        return hugging_face.train(request, texts(), total_bytes=total_bytes)
    if isinstance(request, str | os.PathLike):
        return hugging_face.load(Path(request))
    # A tokenizer of `transformers` holds one of `tokenizers`.
    inner = getattr(request, "backend_tokenizer", request)
    if hasattr(inner, "encode_batch_fast") and hasattr(inner, "to_str"):
        return hugging_face.HuggingFace(inner)
    raise LowtideError(
        what=f"text={request!r} names no way to turn text into codes",
        why="a network takes numbers: bytes, characters, or the tokens of a tokenizer",
        fix='write "bytes", "characters", a tokenizer or its JSON file, or {"train": "bpe", "size": 8000}',
    )


def read_tokenizer(text: str) -> Tokenizer:
    """The tokenizer that `to_text` wrote.

    Raises:
        LowtideError: It is damaged or newer, or `tokenizers` is needed and not installed.
    """
    try:
        described = json.loads(text)
        kind, version = described["kind"], described["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise unreadable(f"it is not what Lowtide writes ({error!r})") from error
    if version != VERSION:
        raise unreadable(f"it was written in version {version!r}, and this Lowtide reads version {VERSION}")
    if kind == Bytes.kind:
        return Bytes()
    characters = described.get("characters")
    if kind == Characters.kind and isinstance(characters, list) and all(isinstance(one, str) for one in characters):
        return Characters(characters)
    if kind == "huggingface" and isinstance(described.get("tokenizer"), dict):
        from lowtide.data.text import hugging_face  # noqa: PLC0415 - an extra, loaded where it is needed

        return hugging_face.read(described["tokenizer"])
    raise unreadable(f"there is no kind {kind!r} with what is written there")


def offsets_of(texts: Sequence[Sized]) -> NDArray[np.int64]:
    """Where each of them begins, and the end, when they lie one after the other."""
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)), out=offsets[1:])
    return offsets


def code_points(text: str) -> NDArray[np.uint32]:
    """The number of every character."""
    return np.frombuffer(text.encode(_UTF_32, "surrogatepass"), dtype=np.uint32)


def unreadable(what: str) -> LowtideError:
    """The error for a stored tokenizer that cannot be used."""
    return LowtideError(
        what=f"the stored tokenizer cannot be read: {what}",
        why="codes mean nothing without the tokenizer that made them",
        fix="run store.verify(); use the Lowtide that wrote the store, or make the store again from its sources",
    )


def _characters_of(texts: Iterable[Sequence[str]]) -> list[str]:
    seen = np.zeros(sys.maxunicode + 1, dtype=np.bool_)
    for some in texts:
        seen[code_points("".join(some))] = True
    return [chr(point) for point in np.flatnonzero(seen).tolist()]


def _checked(codes: NDArray[Any], size: int) -> NDArray[Any]:
    flat = np.asarray(codes).reshape(-1)
    if len(flat) and (flat.dtype.kind not in "iu" or not 0 <= int(flat.min()) <= int(flat.max()) < size):
        raise LowtideError(
            what=f"codes from {flat.min()} to {flat.max()} ({flat.dtype}) are not all from 0 to {size - 1}",
            why="only codes of this tokenizer stand for text",
            fix="decode codes that the store holds, or classes that a model chose (an argmax, not its scores)",
        )
    return flat
