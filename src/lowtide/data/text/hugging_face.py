"""Tokenizers of the package `tokenizers`, given or trained from the data; the package is the extra `text`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide.data.fields import StoredType
from lowtide.data.text.tokenizing import VERSION, Tokenizer, Tokens, offsets_of, unreadable
from lowtide.data.text.vocabulary import code_type
from lowtide.errors import LowtideError, MissingExtraError

MOST_TRAINED_ON = 128 << 20
"""Bytes of text that training sees unless told: more of the same takes time and teaches little."""
LONGEST = 1 << 10
"""Characters that training sees as one text: longer ones, a file without line ends, are cut."""
MOST_OF_WORDS = 4 << 20
"""Characters of different words that training sees: it takes about 80 bytes for each."""


_WORD = re.compile(r"\w+|[^\w\s]+")


class HuggingFace(Tokenizer):
    """A tokenizer as it is, but for truncation and padding, which would change the data.

    A text that is cut in pieces for its size is tokenized piece by piece; special tokens that the tokenizer puts at
    the ends of a text are put at its ends alone.
    """

    kind = "huggingface"

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 - of a package that need not be there
        """Use a copy of a `tokenizers.Tokenizer`."""
        self._inner = type(tokenizer).from_str(tokenizer.to_str())
        self._inner.no_truncation()
        self._inner.no_padding()
        model = json.loads(self._inner.to_str())["model"]
        named = model.get("unk_token")
        self._unknown = model.get("unk_id") if named is None else self._inner.token_to_id(named)
        self._tokens = {code: token for token, code in self._inner.get_vocab(with_added_tokens=True).items()}

    @property
    def vocabulary(self) -> list[str]:
        """Its tokens, in the order of their codes; empty text for a code without one."""
        return [self._tokens.get(code, "") for code in range(self._size)]

    @property
    def dtype(self) -> StoredType:
        """The type that its codes are stored in."""
        return code_type(self._size)

    @property
    def _size(self) -> int:
        return 1 + max(self._tokens, default=-1)

    def encode(self, texts: Sequence[str], *, first: bool = True, last: bool = True) -> Tokens:
        """The codes of their tokens."""
        encoded = self._inner.encode_batch_fast(list(texts))
        codes = [encoding.ids for encoding in encoded]
        if codes and not first:
            codes[0] = codes[0][_run(encoded[0].special_tokens_mask) :]
        if codes and not last:
            codes[-1] = codes[-1][: len(codes[-1]) - _run(encoded[-1].special_tokens_mask[::-1])]
        offsets = offsets_of(codes)
        flat = np.fromiter((code for ids in codes for code in ids), dtype=self.dtype, count=int(offsets[-1]))
        unknown = 0 if self._unknown is None else int(np.count_nonzero(flat == self._unknown))
        return Tokens(flat, offsets, unknown)

    def decode(self, codes: NDArray[Any]) -> str:
        """The text, without special tokens."""
        text: str = self._inner.decode(np.asarray(codes).reshape(-1).tolist())
        return text

    def to_text(self) -> str:
        """The tokenizer's own JSON."""
        return json.dumps({"kind": self.kind, "version": VERSION, "tokenizer": json.loads(self._inner.to_str())})


def load(path: Path) -> HuggingFace:
    """A tokenizer from its JSON file.

    Raises:
        LowtideError: There is none, or `tokenizers` is not installed.
    """
    package = _package()
    if not path.is_file():
        raise LowtideError(
            what=f"text={str(path)!r} is neither a way to turn text into codes nor the file of a tokenizer",
            why="a network takes numbers: bytes, characters, or the tokens of a tokenizer",
            fix='write "bytes", "characters", or the path of a tokenizer\'s JSON file',
        )
    try:
        return HuggingFace(package.Tokenizer.from_file(str(path)))
    except Exception as error:  # the package raises nothing more precise
        raise LowtideError(
            what=f"{path} holds no tokenizer: {error}",
            why="its JSON is read by the package `tokenizers`",
            fix="save the tokenizer with its own `save(path)`",
        ) from error


def read(inner: Mapping[str, Any]) -> HuggingFace:
    """A tokenizer from its JSON, taken out of a store.

    Raises:
        LowtideError: It is damaged, or `tokenizers` is not installed.
    """
    package = _package()
    try:
        return HuggingFace(package.Tokenizer.from_str(json.dumps(inner)))
    except Exception as error:  # the package raises nothing more precise
        raise unreadable(str(error)) from error


def train(request: Mapping[str, Any], texts: Iterable[Sequence[str]], *, total_bytes: int) -> HuggingFace:
    """Train a tokenizer on the data, which stream through.

    Args:
        request: "train": "bpe" (on bytes: nothing is unknown), "unigram", "wordpiece" or "wordlevel"; "size": most
            tokens; "special_tokens": more tokens that text is never merged into; "most_bytes": text to train on, taken
            evenly from all there is, 128 MB unless told.
        texts: The data, by the list.
        total_bytes: About how many bytes they have.

    Raises:
        LowtideError: The request is none of these, or `tokenizers` is not installed.
    """
    kind, size, special, most = _checked(request)
    package = _package()
    tokenizer, trainer = _untrained(package, kind, size, special)
    every = max(1, math.ceil(total_bytes / most))
    tokenizer.train_from_iterator(bounded(thinned(texts, every)), trainer)
    return HuggingFace(tokenizer)


def _checked(request: Mapping[str, Any]) -> tuple[str, int, list[str], int]:
    kind, size = request["train"], request.get("size", 0)
    special, most = request.get("special_tokens", []), request.get("most_bytes", MOST_TRAINED_ON)
    known = set(request) <= {"train", "size", "special_tokens", "most_bytes"} and kind in _UNKNOWN
    counted = all(type(number) is int and number > 0 for number in (size, most))
    named = isinstance(special, list | tuple) and all(isinstance(token, str) for token in special)
    if not (known and counted and named):
        raise LowtideError(
            what=f"text={dict(request)!r} does not say which tokenizer to train",
            why=f"it is one of {', '.join(_UNKNOWN)}, of a size in tokens",
            fix='write {"train": "bpe", "size": 8000}; "special_tokens": [...] and "most_bytes": ... are allowed',
        )
    return kind, size, list(special), most


_UNKNOWN = {"bpe": None, "unigram": "<unk>", "wordpiece": "[UNK]", "wordlevel": "<unk>"}
"""The models that can be trained, and the token of each for what it does not know."""


def _untrained(package: Any, kind: str, size: int, special: list[str]) -> tuple[Any, Any]:  # noqa: ANN401
    models, trainers, before, after = package.models, package.trainers, package.pre_tokenizers, package.decoders
    unknown = _UNKNOWN[kind]
    told: dict[str, Any] = {
        "vocab_size": size,
        "show_progress": False,
        "special_tokens": special if unknown is None else [unknown, *special],
    }
    if kind == "bpe":
        tokenizer = package.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer, tokenizer.decoder = before.ByteLevel(add_prefix_space=False), after.ByteLevel()
        # Every byte has a token of its own, seen or not: nothing is unknown.
        return tokenizer, trainers.BpeTrainer(**told, initial_alphabet=before.ByteLevel.alphabet())
    if kind == "unigram":
        tokenizer = package.Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer, tokenizer.decoder = before.Metaspace(), after.Metaspace()
        return tokenizer, trainers.UnigramTrainer(**told, unk_token=unknown)
    if kind == "wordpiece":
        tokenizer = package.Tokenizer(models.WordPiece(unk_token=unknown))
        tokenizer.pre_tokenizer, tokenizer.decoder = before.BertPreTokenizer(), after.WordPiece()
        return tokenizer, trainers.WordPieceTrainer(**told)
    tokenizer = package.Tokenizer(models.WordLevel(unk_token=unknown))
    tokenizer.pre_tokenizer = before.Whitespace()
    return tokenizer, trainers.WordLevelTrainer(**told)


def thinned(texts: Iterable[Sequence[str]], every: int) -> Iterator[list[str]]:
    """Every so manieth list, its long texts cut."""
    for number, some in enumerate(texts):
        if number % every == 0:
            yield [text[at : at + LONGEST] for text in some for at in range(0, len(text), LONGEST)]


def bounded(texts: Iterable[list[str]]) -> Iterator[list[str]]:
    """The same texts, until there are many different words; of later ones, those words that are known already.

    The counts of the words that matter go on to be right, and numbers, names and codes that never end take no memory.
    """
    known: set[str] = set()
    size = 0
    for some in texts:
        words = [_WORD.findall(text) for text in some]
        if size < MOST_OF_WORDS:
            new = {word for found in words for word in found} - known
            known |= new
            size += sum(map(len, new))
            yield some
        else:
            yield [" ".join(word for word in found if word in known) for found in words]


def _run(mask: Sequence[int]) -> int:
    """How many special tokens a text begins with."""
    return next((place for place, special in enumerate(mask) if not special), len(mask))


def _package() -> Any:  # noqa: ANN401 - a module that need not be there
    try:
        import tokenizers  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            what="a tokenizer needs the package 'tokenizers', which is not installed",
            why="it is needed for text cut into tokens; bytes and characters do without it",
            fix='pip install "lowtide[text]"',
        ) from error
    return tokenizers
