"""What is seen of a store is what it holds."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.data.describe import Description, FieldLine, Histogram, PartLine, bytes_text, describe, histogram, to_text
from lowtide.data.splitting.splits import make_splits
from tests.data.store_cases import SCHEMA, sequences, write


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=50))
def test_the_histogram_counts_each_sequence_once(lengths: list[int]) -> None:
    found = histogram(np.array(lengths), min(lengths), max(lengths))
    assert sum(found.counts) == len(lengths)
    assert len(found.counts) <= 14
    for low, high, count in zip(found.edges[:-1], found.edges[1:], found.counts, strict=True):
        assert low < high
        assert count == sum(low <= length < high for length in lengths)


def test_few_lengths_have_a_bin_each() -> None:
    assert histogram(np.array([3, 5, 5]), 3, 5) == Histogram((3, 4, 5, 6), (1, 0, 2))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with two parts."""
    path = tmp_path_factory.mktemp("store") / "store"
    made = sequences([4] * 9 + [3])
    splits = make_splits({"train": 0.8, "valid": 0.2}, ids=[name for name, _ in made], lengths=np.array([4] * 9 + [3]))
    return write(path, made, splits=splits)


def test_a_description_holds_the_facts(store: Store) -> None:
    found = describe(store)
    assert (found.sequences, found.steps, found.shortest, found.longest) == (10, 39, 3, 4)
    assert found.bytes == sum(file.stat().st_size for file in store.path.rglob("v0001/[!m]*"))
    assert found.files == len(store.manifest.files)
    assert found.histogram == Histogram((3, 4, 5), (1, 9))
    assert found.fields[0] == FieldLine("inputs", "x", "float32 (T, 3)", "a, b, c", ())
    assert [part.name for part in found.parts] == ["train", "valid"]
    assert sum(part.steps for part in found.parts) == 39


def test_a_part_is_described_as_a_part(store: Store) -> None:
    found = describe(store.split("valid"))
    assert found.title.startswith("Part of the store")
    assert found.sequences == len(store.split("valid"))
    assert found.parts == ()


DESCRIPTION = Description(
    title="Store a, version 2",
    sequences=1200,
    steps=34000,
    shortest=1,
    longest=2,
    bytes=3 << 20,
    files=5,
    fields=(
        FieldLine("inputs", "x", "float32 (T, 2)", "a, b", ("standard", "pca")),
        FieldLine("targets", "label", "int64 ()", "", ()),
    ),
    parts=(PartLine("train", 1, 20),),
    histogram=Histogram((1, 2, 3), (400, 800)),
)


def test_the_text_shows_all_of_it() -> None:
    assert to_text(DESCRIPTION).splitlines() == [
        "Store a, version 2",
        "  1,200 sequences, 34,000 steps; 3.0 MiB in 5 files",
        "    inputs   x      float32 (T, 2)  a, b -> standard -> pca",
        "    targets  label  int64 ()",
        "    part  train  1 sequence  20 steps",
        "  lengths from 1 to 2, 28.3 on average",
        "    1  ####################                      400",
        "    2  ########################################  800",
    ]


def test_printing_a_store_shows_it(store: Store) -> None:
    assert str(store) == to_text(describe(store))
    assert repr(store) == f"Store({str(store.path)!r}: 10 sequences, 39 steps)"


class Seen(HTMLParser):
    """The tags that are open, and the text."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Note a tag that stays open."""
        del attrs
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """See that tags end in order."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text += data


def test_the_notebook_view_is_well_formed_and_safe(tmp_path: Path) -> None:
    schema = Schema((Field("<script>", "inputs", "step", "int8", 1, ("a & b",)),), "int64")
    with StoreWriter(tmp_path / "a", schema) as writer:
        writer.add(1, {"<script>": np.zeros((3, 1), np.int8)})
        writer.commit()
    seen = Seen()
    seen.feed(Store(tmp_path / "a")._repr_html_())
    assert seen.open == []
    assert "<script>" in seen.text
    assert "a & b" in seen.text
    assert "lengths from 3 to 3" in seen.text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 50, "3072.0 TiB")],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_every_kind_of_field_is_shown(store: Store) -> None:
    kinds = [line.kind for line in describe(store).fields]
    assert kinds == ["float32 (T, 3)", "int16 (T)", "bfloat16 (T)", "int64 ()", "float64 (2)"]
    assert len(kinds) == len(SCHEMA.fields)
