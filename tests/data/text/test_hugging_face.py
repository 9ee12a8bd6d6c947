"""Tokenizers of the package `tokenizers`, given or trained, give its codes whatever the batches are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowtide
from lowtide.data.text import hugging_face
from lowtide.data.text.tokenizing import make_tokenizer, read_tokenizer

tokenizers = pytest.importorskip("tokenizers")

LINES = [f"the {number} quick brown foxes jump over {number * 7} lazy dogs" for number in range(200)]
KINDS = ["bpe", "unigram", "wordpiece", "wordlevel"]


def trained(kind: str = "bpe", **told: Any) -> hugging_face.HuggingFace:  # noqa: ANN401 - options of any kind
    return hugging_face.train({"train": kind, "size": 400, **told}, [LINES[:100], LINES[100:]], total_bytes=10_000)


def framed() -> Any:  # noqa: ANN401 - of an untyped package
    """A tokenizer with special tokens around each text, and with truncation and padding switched on."""
    inner = json.loads(trained(special_tokens=["<s>", "</s>"]).to_text())["tokenizer"]
    made = tokenizers.Tokenizer.from_str(json.dumps(inner))
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    made.enable_truncation(4)
    made.enable_padding(length=50)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_tokenizer_knows_its_text_and_comes_back(kind: str) -> None:
    made = trained(kind)
    read = read_tokenizer(made.to_text())
    tokens = read.encode(LINES)
    assert tokens.unknown == 0
    assert tokens.codes.tolist() == made.encode(LINES).codes.tolist()
    assert tokens.codes.dtype == made.dtype == "int16"
    assert len(made.vocabulary) <= 400
    first = tokens.codes[: tokens.offsets[1]]
    if kind in {"bpe", "unigram"}:
        assert made.decode(first) == LINES[0]
    else:
        assert made.decode(first).split() == LINES[0].split()


def test_bytes_pairs_know_every_text() -> None:
    made = trained()
    text = "Ünknøwn \x00 字 words"
    tokens = made.encode([text])
    assert tokens.unknown == 0
    assert made.decode(tokens.codes) == text


@pytest.mark.parametrize("kind", KINDS[1:])
def test_what_is_unknown_is_counted(kind: str) -> None:
    assert trained(kind).encode(["字"]).unknown == 1


def test_a_given_tokenizer_neither_truncates_nor_pads() -> None:
    given = framed()
    made = hugging_face.HuggingFace(given)
    tokens = made.encode([LINES[0], ""])
    plain = tokenizers.Tokenizer.from_str(given.to_str())
    plain.no_truncation()
    plain.no_padding()
    assert tokens.codes.tolist() == plain.encode(LINES[0]).ids + plain.encode("").ids
    assert tokens.offsets.tolist() == [0, len(tokens.codes) - 2, len(tokens.codes)]
    assert given.truncation is not None  # the user's own stays as it is


def test_pieces_of_a_text_have_special_tokens_at_its_ends_alone() -> None:
    made = hugging_face.HuggingFace(framed())
    whole = made.encode(["the quick brown foxes jump over lazy dogs"]).codes.tolist()
    begins = made.encode(["", "the quick brown"], last=False)
    goes_on = made.encode([" foxes jump"], first=False, last=False)
    ends = made.encode([" over lazy dogs", ""], first=False)
    assert begins.codes[:2].tolist() == ends.codes[-2:].tolist() == [0, 1]
    together = [*begins.codes[2:].tolist(), *goes_on.codes.tolist(), *ends.codes[:-2].tolist()]
    assert together == whole


def test_a_file_of_a_tokenizer_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    framed().save(str(path))
    made = make_tokenizer(str(path), list, total_bytes=0)
    assert make_tokenizer(framed(), list, total_bytes=0).to_text() == made.to_text()
    path.write_text("{}")
    with pytest.raises(lowtide.LowtideError, match="holds no tokenizer"):
        make_tokenizer(path, list, total_bytes=0)
    with pytest.raises(lowtide.LowtideError, match="neither a way to turn text into codes nor the file"):
        make_tokenizer("words", list, total_bytes=0)


@pytest.mark.parametrize(
    "request_",
    [
        {"train": "bpe"},
        {"train": "magic", "size": 100},
        {"train": "bpe", "size": "many"},
        {"train": "bpe", "size": 100, "speed": 1},
        {"train": "bpe", "size": 100, "special_tokens": "<s>"},
    ],
)
def test_training_of_nothing_known_is_refused(request_: dict[str, object]) -> None:
    with pytest.raises(lowtide.LowtideError, match="which tokenizer to train"):
        make_tokenizer(request_, list, total_bytes=0)


def test_training_looks_evenly_at_more_text_than_it_may() -> None:
    seen: list[str] = []

    class Listening(list[list[str]]):
        def __iter__(self) -> Any:  # noqa: ANN401
            for some in list.__iter__(self):
                seen.append(some[0])
                yield some

    lists = Listening([[f"{number} {'x' * 40_000}"] for number in range(10)])
    fed = list(hugging_face.thinned(lists, 3))
    assert [texts[0][0] for texts in fed] == ["0", "3", "6", "9"]
    assert len(seen) == 10
    assert max(len(text) for texts in fed for text in texts) <= hugging_face.LONGEST
    assert "".join(fed[1]) == lists[3][0]


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(lowtide.MissingExtraError, match=r'pip install "lowtide\[text\]"'):
        make_tokenizer({"train": "bpe", "size": 10}, list, total_bytes=0)


def test_a_large_vocabulary_takes_a_wider_type() -> None:
    model = tokenizers.models.WordLevel({"low": 0, "high": 40_000}, unk_token="low")  # noqa: S106 - a word
    given = tokenizers.Tokenizer(model)
    given.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made = hugging_face.HuggingFace(given)
    assert made.encode(["high low"]).codes.tolist() == [40_000, 0]
    assert made.dtype == "int32"
    assert made.vocabulary[40_000] == "high"
    assert made.decode(np.array([40_000])) == "high"


def test_words_that_never_end_are_bounded_and_known_ones_still_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hugging_face, "MOST_OF_WORDS", 100)
    lists = [[f"often {number}", f"more,{number}"] for number in range(10_000, 10_100)]
    fed = list(hugging_face.bounded(iter(lists)))
    assert fed[:5] == lists[:5]
    assert fed[-1] == ["often", "more ,"]
    different = {word for some in fed for text in some for word in text.replace(",", " ").split()}
    assert sum(map(len, different)) < 120
