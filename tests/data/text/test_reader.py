"""Lines, documents and spans of text files become the sequences that they are, whatever the sizes of blocks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import lowtide
from lowtide.data.text import decoding
from lowtide.data.text import reader as text
from lowtide.data.text.batch import TextBatch, TextCounts
from lowtide.data.text.reader import TextFile, TextReader, Unit, name_files
from lowtide.data.text.tokenizing import Bytes, Characters, Tokenizer

ALPHABET = st.text(st.sampled_from("ab \n\r|ü"), max_size=60)
CHARACTERS = Characters("ab \n\r|ü")


@pytest.fixture(params=[3, 5, 1 << 20])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The size of blocks and pieces."""
    size: int = request.param
    monkeypatch.setattr(decoding, "BLOCK", size)
    monkeypatch.setattr(text, "_PIECE", size)
    return size


def save(folder: Path, *contents: str | bytes) -> list[TextFile]:
    paths = []
    for number, content in enumerate(contents):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_bytes(content if isinstance(content, bytes) else content.encode())
    return name_files(paths)


def whole(batches: Iterator[TextBatch]) -> list[tuple[str, list[int]]]:
    """Sequences with their names, the pieces of each put together."""
    found: list[tuple[str, list[int]]] = []
    goes_on = False
    for batch in batches:
        assert batch.continues == goes_on
        assert len(batch.offsets) == len(batch.ids) + 1
        assert batch.offsets[0] == 0
        assert batch.offsets[-1] == len(batch.codes)
        for place, name in enumerate(batch.ids.to_pylist()):
            codes = batch.codes[batch.offsets[place] : batch.offsets[place + 1]].tolist()
            if place == 0 and batch.continues:
                assert found[-1][0] == name
                found[-1][1].extend(codes)
            else:
                found.append((name, codes))
        goes_on = batch.goes_on
    assert not goes_on
    return found


def texts_of(reader: TextReader, tokenizer: Tokenizer = CHARACTERS) -> tuple[dict[str, str], TextCounts]:
    counts = TextCounts()
    found = whole(reader.sequences(tokenizer, counts))
    assert counts.sequences == len(found)
    assert counts.codes == sum(len(codes) for _, codes in found)
    return {name: tokenizer.decode(np.array(codes, dtype=np.int64)) for name, codes in found}, counts


def expected(
    contents: list[str], separator: str | None, piece: int, *, plain: bool = True
) -> tuple[dict[str, str], int]:
    """The texts that there are, by name, and how many are blank.

    Of a text in pieces, it is not known that it is blank before it has been given out: such are assumed away.
    """
    found, blank = {}, 0
    for number, content in enumerate(contents):
        running = content.replace("\r\n", "\n") if plain else content
        parts = running.split(separator) if separator else [running]
        if separator and len(parts) > 1 and not parts[-1]:
            parts.pop()
        for place, part in enumerate(parts, start=1):
            name = f"{number}.txt:{place}" if separator else f"{number}.txt"
            if part.strip():
                found[name] = part
            else:
                assume(len(part) <= piece)
                blank += 1
    return found, blank


FIXTURES = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
    max_examples=40,
    deadline=None,
)


@given(contents=st.lists(ALPHABET, min_size=1, max_size=4))
@FIXTURES
def test_every_line_is_a_sequence(tmp_path: Path, piece: int, contents: list[str]) -> None:
    found, counts = texts_of(TextReader(save(tmp_path, *contents), "line"))
    wanted, blank = expected(contents, "\n", piece)
    assert found == wanted
    assert counts.blank == blank
    assert counts.unknown == 0
    assert counts.bytes == sum(len(content.encode()) for content in contents)


@given(contents=st.lists(ALPHABET, min_size=1, max_size=4), separator=st.sampled_from([None, "|", "\n\n", "a|b"]))
@FIXTURES
def test_every_document_is_a_sequence(tmp_path: Path, piece: int, contents: list[str], separator: str | None) -> None:
    reader = TextReader(save(tmp_path, *contents), "document", separator=separator)
    for tokenizer, plain in ((CHARACTERS, True), (Bytes(), False)):
        found, counts = texts_of(reader, tokenizer)
        wanted, blank = expected(contents, separator, piece, plain=plain)
        assert found == wanted
        assert counts.blank == blank


@given(
    contents=st.lists(ALPHABET, min_size=1, max_size=3),
    size=st.integers(1, 7),
    horizon=st.integers(0, 2),
    separator=st.sampled_from([None, "|"]),
)
@FIXTURES
def test_spans_predict_each_code_once(
    tmp_path: Path, piece: int, contents: list[str], size: int, horizon: int, separator: str | None
) -> None:
    reader = TextReader(save(tmp_path, *contents), size, separator=separator, horizon=horizon)
    counts = TextCounts()
    spans = dict(whole(reader.sequences(CHARACTERS, counts)))
    documents, _ = expected(contents, separator, piece)
    short = 0
    for name, document in documents.items():
        codes = CHARACTERS.encode([document]).codes.tolist()
        starts = range(0, max(0, len(codes) - horizon), size)
        for number, start in enumerate(starts, start=1):
            assert spans.pop(f"{name}:{number}") == codes[start : start + size + horizon]
        short += not starts
    assert spans == {}
    assert counts.short == short


@pytest.mark.parametrize("separator", ["\n\n", "a|b"])
def test_a_separator_is_found_wherever_blocks_and_pieces_end(tmp_path: Path, piece: int, separator: str) -> None:
    del piece
    for before in range(1, 12):
        reader = TextReader(save(tmp_path, "ü" * before + separator + "b"), "document", separator=separator)
        assert texts_of(reader)[0] == {"0.txt:1": "ü" * before, "0.txt:2": "b"}


def test_blank_texts_follow_the_policy(tmp_path: Path) -> None:
    files = save(tmp_path, "a\n\n  \nb\n", "")
    found, counts = texts_of(TextReader(files, "line", empty="drop"))
    assert found == {"0.txt:1": "a", "0.txt:4": "b"}
    assert counts.blank == 3
    found, counts = texts_of(TextReader(files, "line", empty="keep"))
    assert found == {"0.txt:1": "a", "0.txt:2": "", "0.txt:3": "  ", "0.txt:4": "b", "1.txt:1": ""}
    assert counts.blank == 3
    with pytest.raises(lowtide.LowtideError, match=r"0\.txt:2 is blank"):
        texts_of(TextReader(files, "line", empty="error"))


def test_what_is_no_utf_8_is_refused_replaced_or_taken_byte_for_byte(tmp_path: Path) -> None:
    files = save(tmp_path, b"ab\nb\xffa\r\n")
    with pytest.raises(lowtide.LowtideError, match=r"0\.txt, byte 4: ff is not utf-8"):
        texts_of(TextReader(files, "line"))
    with pytest.raises(lowtide.LowtideError, match=r"byte 4"):
        list(TextReader(files, "line").texts())
    found, counts = texts_of(TextReader(files, "line", errors="replace"), Characters("ab\ufffd"))
    assert found == {"0.txt:1": "ab", "0.txt:2": "b\ufffda"}
    assert counts.replaced == 1
    codes = whole(TextReader(files, "document").sequences(Bytes(), TextCounts()))
    assert codes == [("0.txt", list(b"ab\nb\xffa\r\n"))]
    codes = whole(TextReader(files, "line").sequences(Bytes(), TextCounts()))
    assert codes == [("0.txt:1", list(b"ab")), ("0.txt:2", list(b"b\xffa"))]


def test_bytes_of_another_encoding_are_those_of_the_text_in_utf_8(tmp_path: Path) -> None:
    files = save(tmp_path, "aü\nb\n".encode("utf-16"))
    codes = whole(TextReader(files, "line", encoding="utf-16").sequences(Bytes(), TextCounts()))
    assert codes == [("0.txt:1", list("aü".encode())), ("0.txt:2", list(b"b"))]


def test_unknown_characters_are_counted(tmp_path: Path) -> None:
    found, counts = texts_of(TextReader(save(tmp_path, "abc\ncc\n"), "line"), Characters("ab"))
    assert found == {"0.txt:1": "ab\ufffd", "0.txt:2": "\ufffd\ufffd"}
    assert counts.unknown == 3


def test_texts_for_a_vocabulary_are_all_there_is(tmp_path: Path, piece: int) -> None:
    del piece
    contents = ["ab a\r\nüü\n", "b|a"]
    files = save(tmp_path, *contents)
    units: list[Unit] = ["line", "document", 3]
    for unit in units:
        seen = "".join("".join(some) for some in TextReader(files, unit).texts())
        assert set(seen) == set("abü |") | (set() if unit == "line" else {"\n"})
    assert TextReader(files, "line").bytes == sum(len(content.encode()) for content in contents)


def test_words_stay_whole_where_a_long_text_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "BLOCK", 50)
    monkeypatch.setattr(text, "_PIECE", 100)
    line = " ".join(f"word{number}" for number in range(200))
    pieces = [some[0] for some in TextReader(save(tmp_path, line), "line").texts()]
    assert "".join(pieces) == line
    assert len(pieces) > 10
    assert all(one.startswith(" word") for one in pieces[1:])


def test_many_small_files_come_together(tmp_path: Path) -> None:
    files = save(tmp_path, *("ab" for _ in range(50)))
    batches = list(TextReader(files, "document").sequences(CHARACTERS, TextCounts()))
    assert [len(batch.ids) for batch in batches] == [50]
    assert batches[0].ids[7].as_py() == "7.txt"


def test_files_are_named_as_shortly_as_tells_them_apart(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "x.txt", tmp_path / "b" / "x.txt"]
    assert [file.name for file in name_files(paths)] == ["a/x.txt", "b/x.txt"]
    assert [file.name for file in name_files(paths[:1])] == ["x.txt"]
    assert name_files([]) == []


@pytest.mark.parametrize("unit", ["line", "document", 4_000])
def test_a_file_of_one_line_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: Any) -> None:  # noqa: ANN401
    monkeypatch.setattr(decoding, "BLOCK", 1 << 14)
    monkeypatch.setattr(text, "_PIECE", 1 << 14)
    files = save(tmp_path, b"ab" * (1 << 21))
    tracemalloc.start()
    steps = 0
    for batch in TextReader(files, unit).sequences(CHARACTERS, TextCounts()):
        steps += len(batch.codes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert steps == 1 << 22
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"unit": "word"}, "the unit 'word'"),
        ({"unit": 0}, "the unit 0"),
        ({"unit": True}, "the unit True"),
        ({"unit": "document", "separator": ""}, "an empty separator"),
        ({"unit": "line", "separator": "|"}, "lines with a separator"),
        ({"unit": "line", "errors": "ignore"}, "errors='ignore'"),
        ({"unit": "line", "empty": "skip"}, "empty='skip'"),
        ({"unit": "line", "encoding": "utf-9"}, "no encoding 'utf-9'"),
    ],
)
def test_what_cannot_be_read_so_is_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(lowtide.LowtideError, match=said):
        TextReader([], **told)
