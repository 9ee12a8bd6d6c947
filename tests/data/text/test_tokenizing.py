"""Texts become codes and come back, by bytes and by characters, and what is unknown is counted."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import lowtide
from lowtide.data.text.tokenizing import Bytes, Characters, Tokenizer, make_tokenizer, read_tokenizer

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=8)


def no_data() -> list[list[str]]:
    raise AssertionError("the data were looked at")


@given(TEXTS)
def test_bytes_are_those_of_each_text(texts: list[str]) -> None:
    tokens = Bytes().encode(texts)
    for number, text in enumerate(texts):
        codes = tokens.codes[tokens.offsets[number] : tokens.offsets[number + 1]]
        assert codes.tolist() == list(text.encode())
        assert Bytes().decode(codes) == text
    assert tokens.codes.dtype == Bytes().dtype
    assert len(tokens.codes) == tokens.offsets[-1]


@given(TEXTS)
def test_characters_come_back(texts: list[str]) -> None:
    tokenizer = make_tokenizer("characters", lambda: [texts, texts[:1]], total_bytes=0)
    tokens = tokenizer.encode(texts)
    assert tokens.unknown == 0
    assert tokens.codes.dtype == tokenizer.dtype
    assert tokens.codes.min(initial=1) == 1
    for number, text in enumerate(texts):
        assert tokenizer.decode(tokens.codes[tokens.offsets[number] : tokens.offsets[number + 1]]) == text
    assert tokenizer.vocabulary == ["", *sorted(set("".join(texts)))]


def test_unknown_characters_are_code_0_and_counted() -> None:
    tokenizer = Characters("abz")
    tokens = tokenizer.encode(["abc", "\U0010ffff{z"])
    assert tokens.codes.tolist() == [1, 2, 0, 0, 0, 3]
    assert tokens.unknown == 3
    assert tokenizer.decode(tokens.codes) == "ab\ufffd\ufffd\ufffdz"
    assert Characters("").encode(["a"]).codes.tolist() == [0]


def test_bytes_that_are_no_utf_8_go_through() -> None:
    hidden = b"\xff\xfea\xc3".decode("utf-8", "surrogateescape")
    assert Bytes().encode(["ü", hidden]).codes.tolist() == [0xC3, 0xBC, 0xFF, 0xFE, 0x61, 0xC3]
    assert Bytes().decode(np.array([0x61, 0xFF])) == "a\ufffd"


def test_many_characters_take_a_wider_type() -> None:
    assert Characters(map(chr, range(0x4E00, 0x4E00 + 126))).dtype == "int8"
    wide = Characters(map(chr, range(0x4E00, 0x4E00 + 300)))
    assert wide.dtype == "int16"
    assert wide.encode([chr(0x4E00 + 299)]).codes.tolist() == [300]


@pytest.mark.parametrize("tokenizer", [Bytes(), Characters("abc\n")])
def test_a_stored_tokenizer_is_the_same(tokenizer: Tokenizer) -> None:
    read = read_tokenizer(tokenizer.to_text())
    assert type(read) is type(tokenizer)
    assert read.vocabulary == tokenizer.vocabulary
    assert len(tokenizer.vocabulary) == {"bytes": 256, "characters": 5}[tokenizer.kind]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({"kind": "bytes", "version": 2}),
        json.dumps({"kind": "codex", "version": 1}),
        json.dumps({"kind": "characters", "version": 1, "characters": [1]}),
        json.dumps({"kind": "characters", "version": 1}),
        json.dumps({"kind": "huggingface", "version": 1, "tokenizer": "code"}),
    ],
)
def test_what_is_no_stored_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(lowtide.LowtideError, match="stored tokenizer cannot be read"):
        read_tokenizer(text)


def test_what_needs_no_data_does_not_look_at_them() -> None:
    own = Characters("xyz")
    assert make_tokenizer(own, no_data, total_bytes=0) is own
    assert isinstance(make_tokenizer("bytes", no_data, total_bytes=0), Bytes)


def test_other_requests_are_refused() -> None:
    with pytest.raises(lowtide.LowtideError, match="names no way"):
        make_tokenizer(17, no_data, total_bytes=0)
    with pytest.raises(lowtide.LowtideError, match="is not one character"):
        Characters(["ab"])


@pytest.mark.parametrize("codes", [np.array([0, 256]), np.array([-1]), np.array([0.5, 1.0])])
def test_codes_that_stand_for_nothing_are_refused(codes: NDArray[Any]) -> None:
    with pytest.raises(lowtide.LowtideError, match="are not all from 0 to"):
        Bytes().decode(codes)
    with pytest.raises(lowtide.LowtideError, match="are not all from 0 to 1"):
        Characters("a").decode(codes)
