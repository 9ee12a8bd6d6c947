"""Any store opens at once and reads as it was written; what is no store, or a damaged one, says so."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lowtide.data import Field, Schema, Store, StoreWriter, View
from lowtide.data.splitting.splits import make_splits
from lowtide.data.transforms import fit_transforms
from lowtide.errors import LowtideError
from lowtide.memory import growth
from tests.data.store_cases import SCHEMA, STEP_BYTES, Sequences, assert_holds, flat, sequences, write

LENGTHS = [5, 0, 300, 1, 80, 12]
MADE = sequences(LENGTHS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Some sequences of which two lie in pieces."""
    return write(tmp_path_factory.mktemp("store") / "store", MADE, shard_bytes=50 * STEP_BYTES)


def test_sequences_have_numbers_from_both_ends(store: Store) -> None:
    assert store[-1].id == store[5].id == "s5"
    for number in (6, -7):
        with pytest.raises(IndexError):
            _ = store[number]


def test_a_sequence_in_one_piece_is_not_copied(store: Store) -> None:
    x = flat(store[0].inputs)["x"]
    assert isinstance(x, np.ndarray)
    assert not x.flags.owndata
    assert not x.flags.writeable
    assert np.shares_memory(x, flat(store[0].inputs)["x"])


def test_lengths_are_not_copied(store: Store) -> None:
    assert not store.lengths.flags.owndata
    assert not store.lengths.flags.writeable
    assert store.lengths.dtype == np.int64
    np.testing.assert_array_equal(np.load(store.path / store.manifest.lengths.path), LENGTHS)


def test_a_role_with_one_field_is_the_array_itself(tmp_path: Path) -> None:
    schema = Schema((Field("x", "inputs", "step", "float64", 0),), "int64")
    with StoreWriter(tmp_path / "a", schema) as writer:
        writer.add(7, {"x": np.arange(3.0)})
        writer.commit()
    sequence = Store(tmp_path / "a")[0]
    np.testing.assert_array_equal(np.asarray(sequence.inputs), [0, 1, 2])
    assert (sequence.id, sequence.length, sequence.targets, sequence.static) == (7, 3, None, None)
    assert repr(sequence) == "Sequence(id=7, length=3, inputs=float64[3], targets=None, static=None)"


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Some steps of some sequences, in any order and repeated."""
    rows = draw(st.lists(st.integers(0, len(LENGTHS) - 1), max_size=20))
    starts = [draw(st.integers(0, LENGTHS[row])) for row in rows]
    stops = [draw(st.integers(start, LENGTHS[row])) for row, start in zip(rows, starts, strict=True)]
    return rows, starts, stops


@given(requests())
def test_any_steps_of_any_sequences_are_read_at_once(
    store: Store, request_: tuple[list[int], list[int], list[int]]
) -> None:
    rows, starts, stops = request_
    for field in SCHEMA.per_step:
        values, offsets = store.read(field.name, *(np.array(part, dtype=np.int64) for part in request_))
        assert values.dtype == field.storage
        assert values.shape == (sum(stops) - sum(starts), *field.step_shape)
        for place, (row, start, stop) in enumerate(zip(rows, starts, stops, strict=True)):
            found = values[offsets[place] : offsets[place + 1]]
            np.testing.assert_array_equal(found, MADE[row][1][field.name][start:stop])
    for field in SCHEMA.per_sequence:
        static = store.read_static(field.name, np.array(rows, dtype=np.int64))
        assert static.dtype == field.storage
        np.testing.assert_array_equal(
            static, np.array([MADE[row][1][field.name] for row in rows]).reshape(static.shape)
        )


@pytest.mark.parametrize(
    ("row", "start", "stop", "said"),
    [
        (6, 0, 1, "sequence 6 was asked for, of 6"),
        (-1, 0, 1, "sequence -1 was asked for"),
        (0, 0, 6, "steps 0 to 6 of a sequence of 5"),
        (0, -1, 2, "steps -1 to 2"),
        (0, 3, 2, "steps 3 to 2"),
        (2, 0, 301, "steps 0 to 301 of a sequence of 300"),
        (2, -1, 301, "steps -1 to 301"),
    ],
)
def test_what_is_not_there_is_not_read(store: Store, row: int, start: int, stop: int, said: str) -> None:
    with pytest.raises(LowtideError, match=said):
        store.read("x", np.array([row]), np.array([start]), np.array([stop]))


def test_fields_are_read_by_their_kind(store: Store) -> None:
    one = np.array([0])
    with pytest.raises(LowtideError, match="'label' has one value a sequence"):
        store.read("label", one, one, one)
    with pytest.raises(LowtideError, match="'x' has one value a step"):
        store.read_static("x", one)
    with pytest.raises(LowtideError, match="no field is called 'z'"):
        store.read("z", one, one, one)


def test_names_are_read_one_by_one_some_or_all(store: Store) -> None:
    names = [name for name, _ in MADE]
    assert len(store.ids) == 6
    assert store.ids[2] == store.ids[-4] == "s2"
    assert list(store.ids) == names
    assert [name for chunk in store.ids.chunks() for name in chunk.to_pylist()] == names
    assert store.ids.take(np.array([5, 0, 5, 2])).to_pylist() == ["s5", "s0", "s5", "s2"]
    assert store.ids.take(np.array([], dtype=np.int64)).to_pylist() == []
    assert store.ids[1:5:2] == ["s1", "s3"]
    assert store.ids[4:] == names[4:]
    with pytest.raises(IndexError):
        _ = store.ids[6]


def test_opening_a_store_loads_no_framework_and_no_tool_of_ingestion(store: Store) -> None:
    program = (
        "import sys; from lowtide.data import Store; store = Store(sys.argv[1]); store[2]; list(store.ids)\n"
        "print(sorted({'torch', 'tensorflow', 'duckdb', 'sklearn', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, store.path], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a high-water mark that can be set back")
def test_opening_a_store_takes_no_memory_for_its_sequences(tmp_path: Path) -> None:
    count = 1 << 20
    schema = Schema((Field("x", "inputs", "step", "int8", 0),), "int64")
    offsets = np.arange(count + 1)
    x = pa.LargeListArray.from_arrays(offsets, np.zeros(count, np.int8))
    rows = pa.record_batch([pa.array(offsets[:-1]), x], schema=schema.arrow)
    with StoreWriter(tmp_path / "a", schema) as writer:
        for _ in range(2):
            writer.add_rows(rows)
        writer.commit()
    with growth() as measured:
        store = Store(tmp_path / "a")
    assert len(store) == 2 * count
    assert store[-1].id == count - 1
    assert measured.bytes < 6 << 20  # the lengths alone would be 16 MiB


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
def test_shards_take_no_descriptors(tmp_path: Path) -> None:
    opened = write(tmp_path / "a", sequences([50] * 100), shard_bytes=1024)
    assert len(opened.manifest.shards) > 60
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert_holds(opened, sequences([50] * 100))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
def test_an_open_store_takes_one_descriptor(store: Store) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    opened = [Store(store.path) for _ in range(5)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before + len(opened)


def test_a_store_that_the_system_does_not_let_open_is_said(tmp_path: Path) -> None:
    with pytest.raises(LowtideError, match=r"cannot be read: .*too long"):
        Store(tmp_path / ("a" * 300))


def test_a_store_pickles(store: Store) -> None:
    assert_holds(pickle.loads(pickle.dumps(store)), MADE)  # noqa: S301 - made here


# --- Parts and transforms


def split_store(path: Path) -> tuple[Store, Sequences]:
    made = sequences([10] * 20)
    with StoreWriter(path, SCHEMA) as writer:
        for name, arrays in made:
            writer.add(name, arrays)
        written = writer.written()
        splits = make_splits(
            {"train": 0.7, "valid": 0.3}, ids=written.ids.chunks(), lengths=np.asarray(written.lengths)
        )
        part = splits.part("train")
        transforms = fit_transforms(View(written, part.index, part.start, part.stop), {"x": "standard"})
        writer.commit(splits=splits, transforms=transforms)
    return Store(path), made


def test_parts_are_stored_and_hold_every_sequence_once(tmp_path: Path) -> None:
    store, made = split_store(tmp_path / "a")
    assert store.splits == ("train", "valid")
    names = [list(store.split(name).ids) for name in store.splits]
    assert sorted(name for ids in names for name in ids) == sorted(name for name, _ in made)
    for part, ids in zip(map(store.split, store.splits), names, strict=True):
        assert_holds(part, [(name, arrays) for name, arrays in made if name in ids])
    with pytest.raises(LowtideError, match="no part 'test'"):
        store.split("test")


def test_a_store_without_parts_says_how_to_have_them(store: Store) -> None:
    assert store.splits == ()
    with pytest.raises(LowtideError, match="not split") as caught:
        store.split("train")
    assert "split=" in caught.value.fix


def test_splits_of_other_sequences_are_refused(tmp_path: Path) -> None:
    splits = make_splits({"a": 0.5, "b": 0.5}, ids=pa.array(["p", "q"]), lengths=np.array([1, 1]))
    with pytest.raises(LowtideError, match="the splits are of 2 sequences, and the store has 3"):
        write(tmp_path / "a", sequences([1, 1, 1]), splits=splits)


def test_appending_to_a_split_store_needs_the_splits_of_all(tmp_path: Path) -> None:
    store, made = split_store(tmp_path / "a")
    more = sequences([5, 6], first=len(made))
    with StoreWriter(tmp_path / "a", SCHEMA, append=True) as writer:
        for name, arrays in more:
            writer.add(name, arrays)
        with pytest.raises(LowtideError, match="splits of all were not given"):
            writer.commit()
    assert len(Store(tmp_path / "a")) == len(made) == len(store)


def test_transforms_are_stored_and_inverted(tmp_path: Path) -> None:
    store, made = split_store(tmp_path / "a")
    train = [arrays["x"] for name, arrays in made if name in set(store.split("train").ids)]
    (transform,) = store.transforms_of("x")
    assert store.transforms_of("y") == ()
    applied = transform.apply(np.concatenate(train))
    np.testing.assert_allclose(applied.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(applied.std(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(store.invert("x", applied), np.concatenate(train), atol=1e-6)
    second = store.invert("x", applied[:, 1:2], columns=["b"])
    np.testing.assert_allclose(second, np.concatenate(train)[:, 1:2], atol=1e-6)


# --- What cannot be opened


def test_no_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(LowtideError, match="there is no folder"):
        Store(tmp_path / "none")


def test_another_folder_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n", encoding="utf-8")
    with pytest.raises(LowtideError, match="is not a store"):
        Store(tmp_path)
    with pytest.raises(LowtideError):
        Store(tmp_path / "a.csv")


def copied(store: Store, path: Path) -> Path:
    shutil.copytree(store.path, path)
    return path


def test_a_copied_store_is_a_store(store: Store, tmp_path: Path) -> None:
    assert_holds(Store(copied(store, tmp_path / "b")), MADE)


def test_a_missing_or_cut_file_is_said_by_name(store: Store, tmp_path: Path) -> None:
    path = copied(store, tmp_path / "b")
    shard = path / "v0001" / "shard-00003.arrow"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(LowtideError, match=r"shard-00003.arrow is damaged: it has \d+ bytes"):
        Store(path)
    shard.unlink()
    with pytest.raises(LowtideError, match=r"shard-00003.arrow is damaged: there is no such plain file"):
        Store(path)


def test_links_are_refused(store: Store, tmp_path: Path) -> None:
    path = copied(store, tmp_path / "b")
    shard = path / "v0001" / "shard-00003.arrow"
    shard.rename(tmp_path / "elsewhere.arrow")
    shard.symlink_to(tmp_path / "elsewhere.arrow")
    with pytest.raises(LowtideError, match="no such plain file"):
        Store(path)
    path = copied(store, tmp_path / "c")
    (path / "v0001").rename(tmp_path / "elsewhere")
    (path / "v0001").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LowtideError, match="is a link"):
        Store(path)


@given(data=st.data())
def test_a_flipped_byte_in_a_shard_never_reads_past_its_end(
    store: Store, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = copied(store, tmp_path_factory.mktemp("copy") / "b")
    entry = data.draw(st.sampled_from([*store.manifest.shards[:3], store.manifest.shards[-1]]))
    shard = path / entry.file.path
    content = bytearray(shard.read_bytes())
    for place in data.draw(st.sets(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] ^= data.draw(st.integers(1, 255))
    shard.write_bytes(content)
    opened = Store(path)
    rows = np.arange(len(opened))
    for read in (
        lambda: [opened.read(field.name, rows, 0 * rows, np.array(LENGTHS)) for field in SCHEMA.per_step],
        lambda: [opened.read_static(field.name, rows) for field in SCHEMA.per_sequence],
        lambda: [np.asarray(flat(sequence.inputs)["x"]).tobytes() for sequence in opened],
        lambda: [list(opened.ids)],
    ):
        try:
            read()
        except LowtideError:
            continue
    with pytest.raises(LowtideError, match=entry.file.name):
        opened.verify()
    shutil.rmtree(path)


def overwrite(store: Store, old: bytes, new: bytes) -> Store:
    """Change the first such bytes of the first shard, and open the store again."""
    shard = store.path / store.manifest.shards[0].file.path
    content = shard.read_bytes()
    assert old in content
    assert len(old) == len(new)
    shard.write_bytes(content.replace(old, new, 1))
    return Store(store.path)


@pytest.mark.parametrize(
    ("offset", "said"), [(-1, "claims steps 0 to -1"), (1 << 40, "claims steps 0 to 1099"), (6, "fewer|were asked for")]
)
def test_an_offset_that_leads_elsewhere_is_found_before_it_is_used(tmp_path: Path, offset: int, said: str) -> None:
    right, wrong = np.array([0, 5, 9]), np.array([0, offset, 9])
    store = overwrite(write(tmp_path / "a", sequences([5, 4])), right.tobytes(), wrong.tobytes())
    with pytest.raises(LowtideError, match=said):
        store.read("x", np.array([0, 1]), np.array([0, 0]), np.array([5, 4]))
    with pytest.raises(LowtideError, match=said):
        list(store)


@pytest.mark.parametrize(
    ("right", "wrong"), [(b"s0s1", b"s0s\xff"), (np.array([0, 2, 4], np.int32), np.array([0, 1 << 30, 4], np.int32))]
)
def test_names_that_are_no_text_are_found_before_they_are_used(
    tmp_path: Path, right: bytes | NDArray[np.int32], wrong: bytes | NDArray[np.int32]
) -> None:
    store = overwrite(write(tmp_path / "a", sequences([5, 4])), bytes(right), bytes(wrong))
    for read in (lambda: store.ids[0], lambda: store[1], lambda: list(store.ids)):
        with pytest.raises(LowtideError, match=r"shard-00000.arrow is damaged"):
            read()


def test_lengths_of_another_kind_are_refused(store: Store, tmp_path: Path) -> None:
    path = copied(store, tmp_path / "b")
    lengths = path / store.manifest.lengths.path
    lengths.write_bytes(lengths.read_bytes().replace(b"<i8", b"|O8"))
    with pytest.raises(LowtideError, match="does not begin like an array"):
        Store(path)
