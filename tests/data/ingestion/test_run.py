"""What is appended follows the store; what is interrupted leaves none, and goes on when it is run again."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lowtide.data import Store
from lowtide.data.ingest import ingest
from lowtide.data.ingestion.mean_fill import Refill
from lowtide.data.ingestion.sink import Sink
from lowtide.data.ingestion.sources.chunk import Chunk
from tests.data.ingesting_cases import content, long_table, quietly, refused

ASKED: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": ["x"]}


def test_what_is_appended_follows_the_store(tmp_path: Path) -> None:
    out = tmp_path / "store"
    asked: dict[str, Any] = {**ASKED, "static": "shop", "missing": {"x": "mean"}}
    table = long_table(20, 3).assign(shop="north")
    table.loc[0, "x"] = np.nan
    first = quietly(table, out, **asked, split={"train": 0.5, "test": 0.5}, transforms={"x": "standard"})
    mean = first.manifest.notes["ingests"][0]["means"]["x"]
    before = content(first)
    more = long_table(20, 3, first=20).assign(shop="south")
    more.loc[0, "x"] = np.nan
    name, step = int(more.loc[0, "u"]), int(more.loc[0, "t"])
    store = quietly(more, out, **asked, append=True)
    after = content(store)
    assert {key: after[key] for key in before} == before
    assert len(after) == 40
    assert after[name]["x"][step] == [pytest.approx(mean)]
    assert store.vocabulary("static") == ["north", "south"]
    assert [made.to_json() for made in store.transforms] == [made.to_json() for made in first.transforms]
    assert len(store.split("train")) + len(store.split("test")) == 40
    assert set(first.split("test").ids) <= set(store.split("test").ids)
    assert len(store.manifest.notes["ingests"]) == 2


def test_appended_sequences_without_names_are_numbered_on(tmp_path: Path) -> None:
    out = tmp_path / "store"
    quietly([{"x": [1.0]}, {"x": [2.0]}], out)
    quietly(pd.DataFrame({"x": [3.0]}), out, inputs="x", append=True)
    assert content(quietly(np.array([4.0]), out, append=True)) == {n: {"x": [n + 1.0]} for n in range(4)}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, "2 sequences are called"),
        ({"transforms": "standard"}, "transforms are fitted once"),
        ({"split": {"train": 0.5, "test": 0.5}}, "is not split"),
        ({"dtypes": "float64"}, "same fields"),
    ],
)
def test_what_cannot_be_appended_is_refused_and_the_store_stays(
    tmp_path: Path, asked: dict[str, Any], told: str
) -> None:
    out = tmp_path / "store"
    quietly(long_table(5, 3), out, **ASKED)
    with refused(out, told):
        quietly(long_table(2, 3, first=3), out, **ASKED, append=True, **asked)
    assert len(Store(out)) == 5


def test_there_must_be_a_store_to_append_to(tmp_path: Path) -> None:
    with refused(tmp_path, "there is no folder"):
        quietly([{"x": [1.0]}], tmp_path / "store", append=True)


def test_a_second_ingest_takes_the_place_of_the_first_and_readers_keep_theirs(tmp_path: Path) -> None:
    out = tmp_path / "store"
    first = quietly([{"x": [1.0]}], out)
    second = quietly([{"x": [2.0, 3.0]}], out)
    assert content(first) == {0: {"x": [1.0]}}
    assert content(second) == {0: {"x": [2.0, 3.0]}} == content(Store(out))


def test_a_store_inside_the_folder_of_its_sources_is_no_source(tmp_path: Path) -> None:
    long_table(3, 3).to_parquet(tmp_path / "a.parquet")
    for _ in range(2):
        assert len(quietly(tmp_path, tmp_path / "store", **ASKED)) == 3


KILLED = """
import os, signal, sys
from lowtide.data.ingestion import sink
from lowtide.data.ingest import ingest
from lowtide.data.ingestion.sink import Sink
from lowtide.data.ingestion.sources import long_table
long_table._MOST_ROWS = long_table._LEAST_ROWS = 500
put, left = sink.Sink.put, [int(sys.argv[3])]
def put_or_die(self, chunk):
    put(self, chunk)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
sink.Sink.put = put_or_die
ingest(sys.argv[1], sys.argv[2], sequence="u", order="t", inputs=["x"], static="shop", shard_bytes=4096, progress=False,
       split={"train": 0.5, "test": 0.5})
"""


@pytest.mark.parametrize(("chunks", "resume"), [(1, True), (11, True), (5, False)])
def test_a_killed_ingest_leaves_no_store_and_can_be_run_again(tmp_path: Path, chunks: int, resume: bool) -> None:
    source, out = tmp_path / "a.parquet", tmp_path / "store"
    table = long_table(60, 100)
    table["shop"] = np.where(table["u"] < 40, "north", "south")
    table.to_parquet(source)
    asked: dict[str, Any] = {**ASKED, "static": "shop", "split": {"train": 0.5, "test": 0.5}}
    whole = quietly(source, tmp_path / "whole", **asked)
    child = subprocess.run([sys.executable, "-c", KILLED, source, out, str(chunks)], check=False)
    assert child.returncode == -signal.SIGKILL
    assert not (out / "manifest.json").exists()
    with refused(out, "an ingest that did not end"):
        Store(out)
    store = quietly(source, out, **asked, shard_bytes=4096, resume=resume)
    assert content(store) == content(whole)
    assert list(store.split("train").ids) == list(whole.split("train").ids)
    assert store.vocabulary("static") == whole.vocabulary("static")
    store.verify()
    assert sorted(path.name for path in out.iterdir()) == [".writer", "manifest.json", "v0001"]


def test_a_killed_ingest_goes_on_behind_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = tmp_path / "a.parquet", tmp_path / "store"
    long_table(60, 100).assign(shop="north").to_parquet(source)
    subprocess.run([sys.executable, "-c", KILLED, source, out, "9"], check=False)
    skipped: list[int] = []

    def watched(writer: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as Sink
        skipped.append(writer.sequences)
        return Sink(writer, *given, **named)

    monkeypatch.setattr("lowtide.data.ingestion.run.Sink", watched)
    quietly(source, out, **ASKED, static="shop", shard_bytes=4096, split={"train": 0.5, "test": 0.5})
    assert 0 < skipped[0] < 60


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
import numpy as np
from lowtide.data.ingest import ingest
from lowtide.data.ingestion.sink import Sink
from lowtide.errors import LowtideError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    ingest(({"x": np.ones(1000)} for _ in range(1000)), sys.argv[1], progress=False)
except LowtideError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit on the size of files")
def test_a_disk_that_fills_up_meanwhile_leaves_no_store(tmp_path: Path) -> None:
    child = subprocess.run([sys.executable, "-c", FULL, tmp_path / "store"], check=True, capture_output=True, text=True)
    assert "File too large" in child.stdout
    assert "free some disk" in child.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_sort_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 400_000
    pq.write_table(
        pa.table({"t": np.random.default_rng(0).permutation(count), "x": np.ones(count)}), tmp_path / "a.parquet"
    )

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path / "a.parquet", tmp_path / "store", order="t", inputs="x", progress=interrupt)
    assert not (tmp_path / "store" / "manifest.json").exists()
    monkeypatch.undo()
    assert quietly(tmp_path / "a.parquet", tmp_path / "store", order="t", inputs="x").lengths.tolist() == [count]


def test_what_was_filled_with_the_means_of_another_split_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "a.parquet", tmp_path / "store"
    table = long_table(60, 2000)
    table.loc[table["t"] == 3, "x"] = np.nan
    table.to_parquet(source)
    asked: dict[str, Any] = {**ASKED, "missing": "mean", "shard_bytes": 4096}
    first, second = ({"train": list(trained), "test": sorted({*range(60)} - {*trained})} for trained in ([0], [59]))
    whole = Refill.chunks

    def cut_short(refill: Refill) -> Iterator[Chunk]:
        yield next(whole(refill))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Refill, "chunks", cut_short)
        with pytest.raises(KeyboardInterrupt):
            quietly(source, out, **asked, split=first)
    store = quietly(source, out, **asked, split=second)
    assert content(store) == content(quietly(source, tmp_path / "other", **asked, split=second))


@pytest.mark.parametrize(("first", "second"), [(0, 1), (2, 1), (1, 0)])
def test_targets_of_another_horizon_are_not_appended(tmp_path: Path, first: int, second: int) -> None:
    out = tmp_path / "store"
    asked = {**ASKED, "target": "x"}
    quietly(long_table(5, 4), out, **asked, horizon=first)
    with refused(out, f"horizon={second} was given", f"lie {first} steps ahead"):
        quietly(long_table(5, 4, first=5), out, **asked, horizon=second, append=True)
    assert len(quietly(long_table(5, 4, first=5), out, **asked, horizon=first, append=True)) == 10
