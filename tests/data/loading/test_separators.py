"""Windows at separators hold whole pieces, and cut none that fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.data.loading import separators
from lowtide.data.loading.passes import pieces_of
from lowtide.data.loading.separators import SeparatedItems, window_ends
from lowtide.data.loading.windows import Windows
from lowtide.errors import LowtideError

TEXT = Schema(
    (
        Field("code", "inputs", "step", "int16", 0, ("text",), vocabulary="marks"),
        Field("shop", "inputs", "step", "int8", 0, ("shop",)),
        Field("x", "inputs", "step", "float32", 0, ("x",)),
    ),
    "int64",
)
SENTENCES = ["ab. cde. f. ghijklmnopqrstu. v.", "", "w. x. y. z. w. x. y. z.", "abcdefghij", "......"]


def write(path: Path, texts: list[str]) -> Store:
    with StoreWriter(path, TEXT, shard_bytes=256) as writer:
        for number, text in enumerate(texts):
            codes = np.frombuffer(text.encode(), np.uint8).astype(np.int16)
            writer.add(number, {"code": codes, "shop": codes.astype(np.int8), "x": codes.astype(np.float32)})
        writer.commit(vocabularies={"marks": [chr(code) for code in range(128)]})
    return Store(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write(tmp_path_factory.mktemp("text") / "store", SENTENCES)


def greedy(text: str, size: int) -> list[str]:
    """By hand: as much as fits, up to the last full stop where there is one."""
    windows = []
    while len(text) > size:
        end = text.rfind(".", 0, size) + 1 or size
        windows.append(text[:end])
        text = text[end:]
    return windows + ([text] if text else [])


@given(st.text(alphabet="a.", max_size=60), st.integers(1, 12), st.integers(1, 7))
def test_windows_are_those_found_by_hand_however_separators_arrive(text: str, size: int, block: int) -> None:
    places = np.asarray([place for place, mark in enumerate(text) if mark == "."], np.int64)
    ends = window_ends((places[first : first + block] for first in range(0, len(places), block)), len(text), size)
    assert [text[start:stop] for start, stop in zip([0, *ends], ends, strict=False)] == greedy(text, size)


@pytest.mark.parametrize("steps", [3, 1 << 20])
@pytest.mark.parametrize("separator", [".", ord("."), [".", 46]])
def test_windows_of_a_store_end_at_its_separators(
    store: Store,
    separator: Any,  # noqa: ANN401 - several forms
    steps: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(separators, "pieces_of", lambda lengths: pieces_of(lengths, steps))
    items = SeparatedItems(store, Windows(9, separator=separator, field="code"))
    spans = items.spans(np.arange(items.count), 0)
    found = [
        SENTENCES[sequence][start:stop]
        for sequence, start, stop in zip(
            *(part.tolist() for part in (spans.sequence, spans.start, spans.stop)), strict=True
        )
    ]
    assert found == [window for text in SENTENCES for window in greedy(text, 9)]
    assert items.parts(np.arange(5)).tolist() == [len(greedy(text, 9)) for text in SENTENCES]
    assert items.lengths(np.asarray([items.longest()]))[0] == 9
    assert items.report.empty == 1


def test_windows_begin_anew_in_a_part_of_a_store(store: Store) -> None:
    view = store[np.asarray([2, 0])]
    items = SeparatedItems(view, Windows(7, separator=".", field="code"))
    assert items.parts(np.arange(2)).tolist() == [len(greedy(SENTENCES[2], 7)), len(greedy(SENTENCES[0], 7))]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"separator": "."}, "no field was named"),
        ({"separator": ".", "field": "x"}, "'x' was named"),
        ({"separator": ".", "field": "nothing"}, "'nothing' was named"),
        ({"separator": ".", "field": "shop"}, "not in the field's vocabulary"),
        ({"separator": "?!", "field": "code"}, "not in the field's vocabulary"),
        ({"separator": [], "field": "code"}, "none"),
    ],
)
def test_separators_that_there_are_not_are_refused(store: Store, options: dict[str, Any], said: str) -> None:
    with pytest.raises(LowtideError, match=said):
        SeparatedItems(store, Windows(9, **options))
