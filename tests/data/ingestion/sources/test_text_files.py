"""Text becomes sequences of codes, from files and from columns, and back into text."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from lowtide.data import Store
from tests.data.ingesting_cases import content, dropped, filled, quietly, refused

TEXT = "low tide\n\nhigh tide\nlow\n"


def decoded(store: Store) -> dict[str, str]:
    return {str(name): store.decode(fields["x"]) for name, fields in content(store).items()}


@pytest.mark.parametrize("text", [None, "characters", "bytes"])
def test_lines_are_sequences_and_blank_ones_are_counted(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    store = quietly(tmp_path / "a.txt", tmp_path / "store", text=text)
    assert decoded(store) == {"a.txt:1": "low tide", "a.txt:3": "high tide", "a.txt:4": "low"}
    assert dropped(store) == {"texts of nothing but white space": 1}


def test_documents_and_spans(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.log").write_text("ebb")
    files = [tmp_path / "a.txt", tmp_path / "b.log"]
    assert decoded(quietly(files, tmp_path / "files", text="bytes", unit="document")) == {"a.txt": TEXT, "b.log": "ebb"}
    parts = quietly(tmp_path / "a.txt", tmp_path / "parts", text="bytes", unit="document", separator="tide")
    assert list(decoded(parts).values()) == ["low ", "\n\nhigh ", "\nlow\n"]
    spans = quietly(tmp_path / "b.log", tmp_path / "spans", text="bytes", unit=2)
    assert decoded(spans) == {"b.log:1": "eb", "b.log:2": "b"}


def test_the_next_code_is_the_target_over_the_border_of_spans(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcdefg")
    store = quietly(tmp_path / "a.txt", tmp_path / "store", text="bytes", unit=3, horizon=1)
    assert [store.decode(fields["x"]) for fields in content(store).values()] == ["abc", "def"]
    assert [store.decode(fields["y"]) for fields in content(store).values()] == ["bcd", "efg"]
    assert store.schema.field("y").vocabulary == "x"


def test_a_tokenizer_is_trained_stored_and_used_again_for_what_is_appended(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT * 20)
    (tmp_path / "b.txt").write_text("tide tide\n")
    out = tmp_path / "store"
    first = quietly(tmp_path / "a.txt", out, text={"train": "bpe", "size": 300})
    assert decoded(first)["a.txt:1"] == "low tide"
    both = quietly(tmp_path / "b.txt", out, text={"train": "bpe", "size": 300}, append=True)
    assert decoded(both)["b.txt:1"] == "tide tide"
    assert both.document("tokenizer") == first.document("tokenizer")


def test_texts_of_a_column_with_labels(tmp_path: Path) -> None:
    table = pd.DataFrame({"name": ["p", "q"], "review": ["good", "bad"], "stars": [5, 1]})
    store = quietly(table, tmp_path / "store", sequence="name", inputs="review", label="stars", text="characters")
    assert decoded(store) == {"p": "good", "q": "bad"}
    assert [fields["y"] for fields in content(store).values()] == [5.0, 1.0]
    table.to_csv(tmp_path / "a.csv", index=False)
    store = quietly(tmp_path / "a.csv", tmp_path / "store", inputs=["review"], text="bytes", horizon=1)
    assert [store.decode(fields["y"]) for fields in content(store).values()] == ["ood", "ad"]


def test_what_text_does_not_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    with refused(tmp_path, "columns were asked for"):
        quietly(tmp_path / "a.txt", tmp_path / "store", text="bytes", order="t")
    table = pd.DataFrame({"a": ["x"], "b": ["y"], "n": [1]})
    with refused(tmp_path, "one column of text"):
        quietly(table, tmp_path / "store", text="bytes", inputs=["a", "b"])
    with refused(tmp_path, "'n' is of type BIGINT"):
        quietly(table, tmp_path / "store", text="bytes", inputs="n")
    with refused(tmp_path, "row 1", "'a' is missing"):
        quietly(pd.DataFrame({"a": ["x", None]}), tmp_path / "store", text="bytes", inputs="a")


def test_bytes_that_are_not_of_the_encoding_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("né".encode("cp1252"))
    with refused(tmp_path, str(tmp_path / "a.txt"), "byte 1"):
        quietly(tmp_path / "a.txt", tmp_path / "store")
    assert decoded(quietly(tmp_path / "a.txt", tmp_path / "store", encoding="cp1252")) == {"a.txt:1": "né"}


def test_bytes_of_another_encoding_are_replaced_where_asked_for_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"l\xffw\nt\xe9de\xff\n")
    with refused(tmp_path, 'text={"tokenizer": "characters", "errors": "replace"}'):
        quietly(tmp_path / "a.txt", tmp_path / "store", text="characters")
    how = {"tokenizer": "characters", "errors": "replace"}
    store = quietly(tmp_path / "a.txt", tmp_path / "store", text=how)
    assert list(decoded(store).values()) == ["l\ufffdw", "t\ufffdde\ufffd"]
    assert filled(store) == {"places that are not utf-8, by the replacement character": 3}


def test_a_tokenizer_can_be_trained_on_text_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"low\xff tide\n" * 20)
    store = quietly(tmp_path / "a.txt", tmp_path / "store", text={"train": "bpe", "size": 300, "errors": "replace"})
    assert decoded(store)["a.txt:1"] == "low\ufffd tide"
    assert filled(store) == {"places that are not utf-8, by the replacement character": 20}


def test_blank_texts_are_kept_or_refused_where_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("low\n  \n\ntide\n")
    kept = quietly(tmp_path / "a.txt", tmp_path / "kept", text={"tokenizer": "bytes", "empty": "keep"})
    assert list(decoded(kept).values()) == ["low", "  ", "tide"]
    assert dropped(kept) == {"sequences without a step": 1}
    with refused(tmp_path, "a.txt:2 is blank"):
        quietly(tmp_path / "a.txt", tmp_path / "store", text={"tokenizer": "bytes", "empty": "error"})


@pytest.mark.parametrize("policy", [{"errors": "ignore"}, {"empty": "skip"}, {"size": 5}])
def test_options_of_text_that_there_are_not_are_refused(tmp_path: Path, policy: dict[str, object]) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    with refused(tmp_path, str(next(iter(policy)))):
        quietly(tmp_path / "a.txt", tmp_path / "store", text={"tokenizer": "bytes", **policy})


def test_options_of_text_files_are_refused_for_tables(tmp_path: Path) -> None:
    with refused(tmp_path, "for a table"):
        quietly(
            pd.DataFrame({"a": ["x"]}), tmp_path / "store", inputs="a", text={"tokenizer": "bytes", "empty": "keep"}
        )


@pytest.mark.parametrize("text", ["bytes", "characters"])
def test_a_column_of_text_in_another_encoding_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("u,s\n1,h\xe9\n2,b\n", encoding="latin-1")
    store = quietly(path, tmp_path / "store", sequence="u", inputs="s", text=text, encoding="latin-1")
    assert list(decoded(store).values()) == ["h\xe9", "b"]
    assert sorted(found.name for found in tmp_path.iterdir()) == ["a.csv", "store"]
