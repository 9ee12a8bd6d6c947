"""Files are decoded block by block as they would be at once, and what cannot be decoded is found to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lowtide
from lowtide.data.text import decoding
from lowtide.data.text.decoding import DecodingCounts, decoded_blocks

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def read(
    path: Path, encoding: str = "utf-8", errors: Literal["strict", "replace", "surrogateescape"] = "strict"
) -> tuple[str, DecodingCounts]:
    counts = DecodingCounts()
    return "".join(decoded_blocks(path, encoding=encoding, errors=errors, counts=counts)), counts


@given(
    text=TEXT, block=st.integers(3, 9), encoding=st.sampled_from(["utf-8", "UTF8", "utf-16", "utf-32-le", "gb18030"])
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_blocks_are_the_text_in_every_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, block: int, encoding: str
) -> None:
    monkeypatch.setattr(decoding, "BLOCK", block)
    path = tmp_path / "text"
    path.write_bytes(text.encode(encoding))
    found, counts = read(path, encoding)
    assert found == text.removeprefix("\ufeff")
    assert counts.bytes == path.stat().st_size


@given(data=st.binary(max_size=30), block=st.integers(3, 9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
def test_any_bytes_are_replaced_kept_or_refused_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, block: int
) -> None:
    monkeypatch.setattr(decoding, "BLOCK", block)
    path = tmp_path / "text"
    path.write_bytes(data)
    text = data.removeprefix(b"\xef\xbb\xbf")
    found, counts = read(path, errors="replace")
    assert found == text.decode("utf-8", "replace")
    assert counts.replaced == found.count("\ufffd") - text.decode("utf-8", "ignore").count("\ufffd")
    hidden, _ = read(path, errors="surrogateescape")
    assert hidden.encode("utf-8", "surrogateescape") == text
    try:
        text.decode()
    except UnicodeDecodeError as error:
        with pytest.raises(lowtide.LowtideError, match=f"byte {error.start + len(data) - len(text)}: "):
            read(path)
    else:
        assert read(path)[0] == text.decode()


def test_a_replacement_character_of_the_text_itself_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("a\ufffdb".encode() + b"\xff" + "\ufffd".encode())
    found, counts = read(path, errors="replace")
    assert found == "a\ufffdb\ufffd\ufffd"
    assert counts.replaced == 1


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(lowtide.LowtideError, match=r"missing\.txt cannot be read"):
        read(tmp_path / "missing.txt")
    with pytest.raises(lowtide.LowtideError, match="no encoding 'utf-9'"):
        read(tmp_path / "missing.txt", "utf-9")
