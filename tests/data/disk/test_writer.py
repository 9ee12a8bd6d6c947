"""What a writer was given comes back, whichever way it was given; and nothing half-made is ever a store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.data.fields import Array
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA, STEP_BYTES, Sequences, assert_holds, sequences, write

LENGTHS = st.lists(st.integers(0, 60), min_size=1, max_size=25)
SHARDS = st.sampled_from([256, 700, 4096, 1 << 20])
WAYS = st.lists(st.sampled_from(["add", "rows", "bits"]), min_size=1, max_size=4)


def rows_of(made: Sequences, schema: Schema = SCHEMA) -> pa.RecordBatch:
    """The same sequences as Arrow's own Python makes them."""
    columns = [pa.array([name for name, _ in made], type=schema.arrow.field(0).type)]
    columns += [
        pa.array([arrays[field.name].tolist() for _, arrays in made], type=field.arrow.type) for field in schema.fields
    ]
    return pa.record_batch(columns, schema=schema.arrow)


def add(writer: StoreWriter, made: Sequences, way: str, pieces: int) -> None:
    if way == "rows":
        writer.add_rows(rows_of(made))
        return
    for name, arrays in made:
        if way == "add":
            writer.add(name, arrays)
            continue
        writer.begin(name)
        steps = {field.name: np.array_split(arrays[field.name], pieces) for field in SCHEMA.per_step}
        for piece in range(pieces):
            writer.extend({field: parts[piece] for field, parts in steps.items()})
        writer.end({field.name: arrays[field.name] for field in SCHEMA.per_sequence})


@given(lengths=LENGTHS, shard_bytes=SHARDS, ways=WAYS, pieces=st.integers(1, 5))
def test_sequences_come_back_however_they_were_given(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], shard_bytes: int, ways: list[str], pieces: int
) -> None:
    path = tmp_path_factory.mktemp("store") / "store"
    made = sequences(lengths)
    groups = [made[start : start + 3] for start in range(0, len(made), 3)]
    with StoreWriter(path, SCHEMA, shard_bytes=shard_bytes) as writer:
        for number, group in enumerate(groups):
            add(writer, group, ways[number % len(ways)], pieces)
        assert writer.sequences == len(made)
        writer.commit()
    store = Store(path)
    assert_holds(store, made)
    store.verify()
    shutil.rmtree(path)


def test_only_a_sequence_larger_than_a_shard_lies_in_pieces(tmp_path: Path) -> None:
    made = sequences([5, 1000, 100, 3])
    store = write(tmp_path / "a", made, shard_bytes=100 * STEP_BYTES)
    assert store.manifest.continued_rows.tolist() == list(range(2, 11))
    assert store.manifest.rows == len(made) + 9
    sizes = [entry.file.bytes for entry in store.manifest.shards]
    assert len(sizes) == 13
    assert max(sizes) < 100 * STEP_BYTES + 2500  # what Arrow writes around it
    assert len(write(tmp_path / "b", made).manifest.shards) == 1


def test_many_short_sequences_share_a_record_batch(tmp_path: Path) -> None:
    store = write(tmp_path / "a", sequences([2] * 500))
    assert [entry.batches for entry in store.manifest.shards] == [(500,)]


def test_what_is_added_bit_by_bit_takes_the_memory_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.data.disk.row_stream._BATCH_BYTES", 50 * STEP_BYTES)
    (name, arrays) = sequences([1000])[0]
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        add(writer, [(name, arrays)], "bits", 77)
        writer.commit()
    store = Store(tmp_path / "a")
    assert [entry.batches for entry in store.manifest.shards] == [(1,) * 20]
    assert_holds(store, [(name, arrays)])


def test_wide_values_per_sequence_take_the_memory_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.data.disk.row_stream._BATCH_BYTES", 50_000)
    schema = Schema((SCHEMA.field("code"), Field("image", "static", "sequence", "float32", 1000)), "int64")
    made: list[dict[str, Array]] = [
        {"code": np.arange(2, dtype=np.int16), "image": np.full(1000, k, np.float32)} for k in range(30)
    ]
    with StoreWriter(tmp_path / "a", schema) as writer:
        for number, arrays in enumerate(made):
            writer.add(number, arrays)
        writer.commit()
    store = Store(tmp_path / "a")
    assert [entry.batches for entry in store.manifest.shards] == [(12, 12, 6)]
    np.testing.assert_array_equal(store.read_static("image", np.arange(30))[:, 7], np.arange(30))


def test_the_writer_does_not_keep_what_it_was_given(tmp_path: Path) -> None:
    (name, arrays) = sequences([50])[0]
    reused = {key: array.copy() for key, array in arrays.items()}
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        writer.add(name, reused)
        for array in reused.values():
            array[...] = 0
        writer.commit()
    assert_holds(Store(tmp_path / "a"), [(name, arrays)])


def test_the_same_sequences_make_the_same_bytes(tmp_path: Path) -> None:
    made = sequences([5, 0, 700, 3])
    one, two = write(tmp_path / "a", made, shard_bytes=4096), write(tmp_path / "b", made, shard_bytes=4096)
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != write(tmp_path / "c", made[::-1], shard_bytes=4096).fingerprint


def test_any_arrow_tool_reads_the_shards(tmp_path: Path) -> None:
    made = sequences([4, 2])
    write(tmp_path / "a", made)
    with pa.ipc.open_file(tmp_path / "a" / "v0001" / "shard-00000.arrow") as file:
        table = file.read_all()
    assert table.schema.names == ["id", "x", "code", "y", "label", "place"]
    assert table.schema.field("y").metadata == {b"lowtide.dtype": b"bfloat16"}
    assert table.to_pylist() == rows_of(made).to_pylist()
    table.validate(full=True)


@pytest.mark.parametrize("way", ["add", "rows", "bits"])
def test_pieces_of_a_long_sequence_say_whose_they_are_to_any_arrow_tool(tmp_path: Path, way: str) -> None:
    made = sequences([3, 40, 2], first=1)
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=20 * STEP_BYTES) as writer:
        add(writer, made, way, 7)
        writer.commit()
    tables = [pa.ipc.open_file(path).read_all() for path in sorted((tmp_path / "a" / "v0001").glob("*.arrow"))]
    rows = pa.concat_tables(tables).select(["id", "label", "place"]).to_pylist()
    assert [(row["id"], row["label"]) for row in rows] == [("s1", 7), ("s2", None), ("s2", 14), ("s3", 21)]
    assert [row["place"] is None for row in rows] == [False, True, False, False]


@pytest.mark.skipif(sys.platform != "linux", reason="what a descriptor is open on is told by /proc")
def test_all_that_a_manifest_names_is_synced_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    synced: list[str] = []
    before: set[str] = set()

    def sync(descriptor: int) -> None:
        if (path / "manifest.json").exists() and not before:
            before.update(synced)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", sync)
    write(path, sequences([50, 3, 50]), shard_bytes=512, documents={"a": "text"}, vocabularies={"b": ["c"]})
    named = {Path(str(entry["path"])).name for entry in entries(json.loads((path / "manifest.json").read_bytes()))}
    assert named | {"a", next(name for name in before if name.startswith(".building"))} <= before
    assert synced[-2:] == ["a", tmp_path.name]


# --- What does not fit the schema


def changed(field: str, array: Array | None) -> dict[str, Array]:
    arrays = dict(sequences([4])[0][1])
    if array is None:
        del arrays[field]
    else:
        arrays[field] = array
    return arrays


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (changed("x", np.zeros((4, 3))), r"'s0'.*'x'.*float64"),
        (changed("x", np.zeros((4, 2), np.float32)), r"'s0'.*'x'.*\(4, 2\)"),
        (changed("code", np.zeros((4, 1), np.int16)), r"'s0'.*'code'.*\(4, 1\)"),
        (changed("code", np.zeros(5, np.int16)), r"'s0'.*'code': 5"),
        (changed("y", np.zeros(4, np.float32)), r"'s0'.*'y'.*float32"),
        (changed("label", None), r"'s0' has no field 'label'"),
        (changed("place", np.zeros(3)), r"'s0'.*'place'.*\(3,\)"),
        (changed("other", np.zeros(3)), r"'s0'.*'other' is not one of the fields"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(tmp_path: Path, arrays: dict[str, Array], said: str) -> None:
    with StoreWriter(tmp_path / "a", SCHEMA) as writer, pytest.raises(LowtideError, match=said):
        writer.add("s0", arrays)


def replaced(column: int, array: pa.Array) -> pa.RecordBatch:
    rows = rows_of(sequences([2, 1]))
    fields = [rows.schema.field(place).with_type(rows.column(place).type) for place in range(6)]
    fields[column] = fields[column].with_type(array.type)
    columns = [*rows.columns[:column], array, *rows.columns[column + 1 :]]
    return pa.record_batch(columns, schema=pa.schema(fields))


LIST = pa.large_list(pa.int16())


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (rows_of(sequences([2])).select(["id", "x"]), "the columns are"),
        (replaced(2, pa.array([[1, 2], [3]], pa.large_list(pa.int32()))), "'code' is of type"),
        (replaced(2, pa.array([[1, 2], None], LIST)), "'code' has 1 missing"),
        (replaced(2, pa.array([[1, None], [3]], LIST)), "'code' has 1 missing"),
        (replaced(2, pa.array([[1, 2], [3, 4]], LIST)), "'s1'.*'code' has 2 steps.*'x' has 1"),
        (replaced(0, pa.array(["a", None])), "'id' has 1 missing"),
        (replaced(4, pa.array([1, None], pa.int64())), "'label' has 1 missing"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_column(tmp_path: Path, rows: pa.RecordBatch, said: str) -> None:
    with StoreWriter(tmp_path / "a", SCHEMA) as writer, pytest.raises(LowtideError, match=said):
        writer.add_rows(rows)


def test_rows_that_are_a_slice_of_others_are_read_from_where_they_begin(tmp_path: Path) -> None:
    made = sequences([3, 5, 0, 2])
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        writer.add_rows(rows_of(made)[1:3])
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made[1:3])


@pytest.mark.parametrize(
    ("kind", "name"), [("string", 5), ("int64", "5"), ("int64", 1 << 63), ("string", None), ("string", "\ud800")]
)
def test_names_of_another_type_are_refused(tmp_path: Path, kind: str, name: object) -> None:
    schema = Schema(SCHEMA.fields, kind)  # type: ignore[arg-type]  # one of its two
    with StoreWriter(tmp_path / "a", schema) as writer, pytest.raises(LowtideError, match="is called"):
        writer.add(name, sequences([1])[0][1])  # type: ignore[arg-type]  # on purpose


def test_calls_in_a_wrong_order_are_refused(tmp_path: Path) -> None:
    (name, arrays) = sequences([1])[0]
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        with pytest.raises(LowtideError, match="none was begun"):
            writer.end()
        writer.begin(name)
        with pytest.raises(LowtideError, match="begun and not ended"):
            writer.add(name, arrays)
        with pytest.raises(LowtideError, match="begun and not ended"):
            writer.commit()


def test_a_shard_of_a_few_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LowtideError, match="shard_bytes is 1"):
        StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1)


# --- Never a half-made store


def test_leaving_without_commit_leaves_nothing(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "deep" / "a", SCHEMA) as writer:
        writer.add(*sequences([3])[0])
    assert not (tmp_path / "deep" / "a").exists()


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, SCHEMA) as writer:
        writer.add(*sequences([3])[0])
    assert list(tmp_path.iterdir()) == []


def test_an_error_inside_leaves_the_earlier_version(tmp_path: Path) -> None:
    before = sequences([3, 4])
    fingerprint = write(tmp_path / "a", before).fingerprint
    with pytest.raises(LowtideError), StoreWriter(tmp_path / "a", SCHEMA, request={}) as writer:
        writer.add("t", changed("label", None))
    assert_holds(Store(tmp_path / "a"), before)
    assert Store(tmp_path / "a").fingerprint == fingerprint
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".writer", "manifest.json", "v0001"]


def test_a_store_without_sequences_is_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a", SCHEMA) as writer, pytest.raises(LowtideError, match="no sequence was written"):
        writer.commit()
    assert not (tmp_path / "a").exists()


def test_a_folder_with_other_things_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(LowtideError, match=r"holds 'thesis\.tex', and is not a store"), StoreWriter(tmp_path, SCHEMA):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_second_writer_is_refused_while_the_first_writes(tmp_path: Path) -> None:
    made = sequences([3])
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        with pytest.raises(LowtideError, match="another process writes"), StoreWriter(tmp_path / "a", SCHEMA):
            pass
        writer.add(*made[0])
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made)


FULL = """
import resource, sys
from pathlib import Path
from lowtide.errors import LowtideError
from tests.data.store_cases import sequences, write
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    write(Path(sys.argv[1]), sequences([500] * 20, seed=1), shard_bytes=1 << 16)
except LowtideError as error:
    print(error.what, error.fix)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
@pytest.mark.parametrize("limit", [0, 100, 5000, 60_000])
def test_a_file_that_cannot_grow_is_an_error_and_leaves_the_earlier_version(tmp_path: Path, limit: int) -> None:
    before = sequences([3, 4])
    write(tmp_path / "a", before)
    command = [sys.executable, "-c", FULL, str(tmp_path / "a"), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert "free some disk" in done.stdout
    assert_holds(Store(tmp_path / "a"), before)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".writer", "manifest.json", "v0001"]


# --- Going on


def begin_and_die(
    path: Path, made: Sequences, *, shard_bytes: int, request: dict[str, object], append: bool = False
) -> None:
    """Write, and be interrupted before the end."""
    with (
        suppress(KeyboardInterrupt),
        StoreWriter(path, SCHEMA, shard_bytes=shard_bytes, request=request, append=append) as writer,
    ):
        for name, arrays in made:
            writer.add(name, arrays)
        raise KeyboardInterrupt


@given(lengths=LENGTHS, died=st.integers(0, 25), shard_bytes=st.sampled_from([256, 700, 2048]))
def test_an_interrupted_writer_is_gone_on_with(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], died: int, shard_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("store") / "store"
    made = sequences(lengths)
    begin_and_die(path, made[:died], shard_bytes=shard_bytes, request={"source": "a.csv"})
    with pytest.raises(LowtideError, match="only an ingest that did not end"):
        Store(path)
    with StoreWriter(path, SCHEMA, shard_bytes=shard_bytes, request={"source": "a.csv"}) as writer:
        done = writer.sequences
        assert done <= died
        for name, arrays in made[done:]:
            writer.add(name, arrays)
        writer.commit()
    assert_holds(Store(path), made)
    Store(path).verify()
    shutil.rmtree(path)


def test_whole_shards_are_not_written_again(tmp_path: Path) -> None:
    made = sequences([20] * 50)
    begin_and_die(tmp_path / "a", made, shard_bytes=1024, request={"n": 1})
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request={"n": 1}) as writer:
        assert writer.sequences >= 45


@pytest.mark.parametrize("request_", [None, {"n": 2}])
def test_another_request_begins_anew_and_cleans_up(tmp_path: Path, request_: dict[str, object] | None) -> None:
    begin_and_die(tmp_path / "a", sequences([20] * 50), shard_bytes=1024, request={"n": 1})
    made = sequences([4, 5])
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request=request_) as writer:
        assert writer.sequences == 0
        for name, arrays in made:
            writer.add(name, arrays)
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".writer", "manifest.json", "v0001"]


def test_what_an_interrupted_writer_left_besides_is_not_taken_over(tmp_path: Path) -> None:
    made = sequences([20] * 50)
    begin_and_die(tmp_path / "a", made, shard_bytes=1024, request={"n": 1})
    (building,) = (tmp_path / "a").glob(".building-*")
    (building / "splits.npy").write_bytes(b"of another run")
    (building / "scratch").mkdir()
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request={"n": 1}) as writer:
        for name, arrays in made[writer.sequences :]:
            writer.add(name, arrays)
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made)
    assert {path.name for path in (tmp_path / "a" / "v0001").iterdir()} == {
        *(entry.name for entry in Store(tmp_path / "a").manifest.files),
        "manifest.json",
    }


def test_progress_whose_files_were_lost_is_not_gone_on_with(tmp_path: Path) -> None:
    begin_and_die(tmp_path / "a", sequences([20] * 50), shard_bytes=1024, request={"n": 1})
    (building,) = (tmp_path / "a").glob(".building-*")
    (building / "shard-00001.arrow").write_bytes(b"torn")
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request={"n": 1}) as writer:
        assert writer.sequences == 0


KILLED = """
import os, signal, sys
from pathlib import Path
from lowtide.data import StoreWriter
from tests.data.store_cases import SCHEMA, sequences
with StoreWriter(Path(sys.argv[1]), SCHEMA, shard_bytes=1024, request={"n": 1}) as writer:
    for name, arrays in sequences([20] * 50):
        writer.add(name, arrays)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_no_lock_and_no_store(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a")], check=False)
    assert done.returncode != 0
    with pytest.raises(LowtideError, match="only an ingest that did not end"):
        Store(tmp_path / "a")
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request={"n": 1}) as writer:
        assert writer.sequences >= 45


def test_scratch_goes_with_the_writer(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        (writer.scratch / "sorted.tmp").write_bytes(b"x")
        writer.add(*sequences([1])[0])
        writer.commit()
    assert not list((tmp_path / "a").rglob("*.tmp"))


# --- Appending


@given(lengths=LENGTHS, more=LENGTHS, shard_bytes=SHARDS)
def test_appended_sequences_come_after_those_that_were_there(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], more: list[int], shard_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("store") / "store"
    made, appended = sequences(lengths), sequences(more, first=len(lengths))
    write(path, made, shard_bytes=shard_bytes)
    with StoreWriter(path, SCHEMA, shard_bytes=shard_bytes, append=True) as writer:
        for name, arrays in appended:
            writer.add(name, arrays)
        assert_holds(Store(path), made)
        writer.commit()
    assert_holds(Store(path), made + appended)
    Store(path).verify()
    shutil.rmtree(path)


def test_an_interrupted_append_is_gone_on_with(tmp_path: Path) -> None:
    made = sequences([20] * 60)
    write(tmp_path / "a", made[:10])
    request: dict[str, object] = {"n": 1}
    begin_and_die(tmp_path / "a", made[10:50], shard_bytes=1024, request=request, append=True)
    assert_holds(Store(tmp_path / "a"), made[:10])
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request=request, append=True) as writer:
        assert writer.sequences > 30
        for name, arrays in made[10 + writer.sequences :]:
            writer.add(name, arrays)
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made)


def test_appending_other_fields_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", sequences([3]))
    other = Schema((Field("x", "inputs", "step", "float32", 2),), "string")
    with pytest.raises(LowtideError, match="to append"), StoreWriter(tmp_path / "a", other, append=True):
        pass


def test_appending_to_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LowtideError, match="not a store"), StoreWriter(tmp_path / "a", SCHEMA, append=True):
        pass
    assert not (tmp_path / "a").exists()


# --- What belongs to the data


CODES = Schema((Field("x", "inputs", "step", "int16", 0, (), "word"),), "int64")


def write_codes(path: Path, words: list[str], *, append: bool = False) -> None:
    with StoreWriter(path, CODES, append=append) as writer:
        writer.add(1, {"x": np.arange(len(words), dtype=np.int16)})
        writer.commit(vocabularies={"word": words}, documents={"tokenizer": "{ünïcode}"}, notes={"dropped": 3})


def test_vocabularies_documents_and_notes_are_kept(tmp_path: Path) -> None:
    write_codes(tmp_path / "a", ["ebb", "flood", "naïve"])
    store = Store(tmp_path / "a")
    assert store.vocabulary("word") == ["ebb", "flood", "naïve"]
    assert store.document("tokenizer") == "{ünïcode}"
    assert store.manifest.notes == {"dropped": 3}
    with pytest.raises(LowtideError, match="no vocabulary 'other'"):
        store.vocabulary("other")


def test_a_field_of_codes_needs_its_vocabulary(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a", CODES) as writer:
        writer.add(1, {"x": np.zeros(3, np.int16)})
        with pytest.raises(LowtideError, match="the vocabulary 'word' was not given"):
            writer.commit()


def test_an_appended_vocabulary_only_grows(tmp_path: Path) -> None:
    write_codes(tmp_path / "a", ["ebb", "flood"])
    with pytest.raises(LowtideError, match="does not begin with the 2 entries"):
        write_codes(tmp_path / "a", ["flood", "ebb", "tide"], append=True)
    write_codes(tmp_path / "a", ["ebb", "flood", "tide"], append=True)
    assert Store(tmp_path / "a").vocabulary("word") == ["ebb", "flood", "tide"]
    assert len(Store(tmp_path / "a")) == 2


def test_what_was_written_can_be_read_before_it_is_committed(tmp_path: Path) -> None:
    made = sequences([3, 200, 5])
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024) as writer:
        for name, arrays in made:
            writer.add(name, arrays)
        assert_holds(writer.written(), made)
        with pytest.raises(LowtideError, match="after the files were ended"):
            writer.add(*made[0])
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made)


def test_what_is_written_is_all_in_the_manifest(tmp_path: Path) -> None:
    write_codes(tmp_path / "a", ["ebb"])
    named = {entry["path"] for entry in entries(json.loads((tmp_path / "a" / "manifest.json").read_bytes()))}
    there = {str(path.relative_to(tmp_path / "a")) for path in (tmp_path / "a").rglob("*") if path.is_file()}
    assert there - named == {"manifest.json", "v0001/manifest.json", ".writer"}
    assert named <= there


def entries(value: object) -> list[dict[str, object]]:
    """Every file that a manifest names."""
    if isinstance(value, dict):
        return [value] if "sha256" in value else [entry for part in value.values() for entry in entries(part)]
    return [entry for part in value for entry in entries(part)] if isinstance(value, list) else []
