"""No two sequences have one name; the check holds a hash a sequence, and looks the names up where hashes agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lowtide.data.ingestion import unique_names
from lowtide.data.ingestion.unique_names import UniqueNames
from lowtide.errors import LowtideError
from tests.data.ingesting_cases import quietly


@pytest.mark.parametrize("names", [[1, 2, 3], ["a", "b", "c"]])
def test_different_names_pass_also_where_their_hashes_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[object]
) -> None:
    store = quietly([{"id": name, "x": [1.0]} for name in names], tmp_path / "store")
    monkeypatch.setattr(unique_names, "hash_ids", lambda ids, _: np.zeros(len(ids), dtype=np.uint64))
    watch = UniqueNames()
    watch.add(pa.array(names))
    watch.check(store)


def test_the_name_that_comes_twice_is_told_also_over_what_was_there(tmp_path: Path) -> None:
    store = quietly([{"id": name, "x": [1.0]} for name in ("a", "b", "c")], tmp_path / "store")
    watch = UniqueNames([pa.array(["a", "b"])])
    watch.add(pa.array(["c"]))
    watch.check(store)
    monkey = UniqueNames([pa.array(["b", "a"])])
    monkey.add(pa.array(["b"]))
    with pytest.raises(AttributeError):  # names are looked up where hashes agree, and nowhere else
        monkey.check(None)  # type: ignore[arg-type]


def test_two_of_one_name_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(LowtideError, match=r"2 sequences are called 'a'.*\[0, 2\]"):
        quietly([{"id": name, "x": [1.0]} for name in ("a", "b", "a")], tmp_path / "store")
