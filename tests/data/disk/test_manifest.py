"""A manifest that was damaged or tampered with is refused before anything that it says is used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Store
from lowtide.data.disk.manifest import Manifest, folder_of, version_of
from lowtide.errors import LowtideError
from tests.data.store_cases import assert_holds, sequences, write

PATH = Path("manifest.json")
Change = Callable[[dict[str, Any]], object]


def made(tmp_path: Path) -> bytes:
    write(tmp_path / "a", sequences([40, 3]), shard_bytes=256)
    return (tmp_path / "a" / "manifest.json").read_bytes()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The manifest of a small store."""
    return made(tmp_path_factory.mktemp("store"))


def sealed(described: dict[str, Any]) -> bytes:
    """A manifest that says what it should not, with the checksum that makes it look right."""
    text = json.dumps({**described, "checksum": "0" * 64}, indent=1).encode() + b"\n"
    return text.replace(b"0" * 64, hashlib.sha256(text).hexdigest().encode())


def test_a_manifest_survives_its_file(written: bytes) -> None:
    manifest = Manifest.from_bytes(written, PATH)
    assert manifest.to_bytes() == written
    assert sealed(json.loads(written)) == written


@given(st.data())
def test_every_flipped_byte_is_found(written: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(written) - 1))
    changed = bytearray(written)
    changed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(LowtideError):
        Manifest.from_bytes(bytes(changed), PATH)


@pytest.mark.parametrize(("right", "wrong"), [(b'"steps": 43', b'"steps": 44'), (b'"float32"', b'"float16"')])
def test_a_change_that_makes_sense_is_found_by_the_checksum(written: bytes, right: bytes, wrong: bytes) -> None:
    assert right in written
    with pytest.raises(LowtideError, match="checksum"):
        Manifest.from_bytes(written.replace(right, wrong, 1), PATH)


@given(st.data())
def test_every_missing_end_is_found(written: bytes, data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, len(written) - 1))
    with pytest.raises(LowtideError):
        Manifest.from_bytes(written[:kept], PATH)


def put(*keys: str | int, value: object) -> Change:
    """Change one entry, however deep."""

    def change(described: dict[str, Any]) -> None:
        inner: Any = described
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("shards", 0, "path", value="../../etc/passwd"), "passwd"),
        (put("shards", 0, "path", value="v0001/../shard-00000.arrow"), "shard"),
        (put("shards", 0, "path", value="/v0001/shard-00000.arrow"), "shard"),
        (put("shards", 0, "path", value="v0001/.."), "plain file name"),
        (put("shards", 0, "path", value="v0001/"), "plain file name"),
        (put("shards", 0, "path", value="v0001/a\n"), "plain file name"),
        (put("shards", 0, "path", value="v0001/a\\b"), "plain file name"),
        (put("shards", 0, "path", value="data/shard-00000.arrow"), "version's folder"),
        (put("shards", 0, "path", value="v00001/shard-00000.arrow"), "version's folder"),
        (put("shards", 0, "path", value="v\u0660\u0660\u0660\u0661/shard-00000.arrow"), "version's folder"),
        (put("shards", 0, "path", value=7), "'7'"),
        (put("shards", 0, "path", value="v0002/shard-00000.arrow"), "names files of version 2"),
        (put("shards", 1, "path", value="v0001/shard-00000.arrow"), "named twice"),
        (put("shards", 0, "bytes", value=-1), "bytes"),
        (put("shards", 0, "bytes", value=True), "bytes"),
        (put("shards", 0, "bytes", value=1.5), "bytes"),
        (put("shards", 0, "bytes", value=1 << 70), "bytes"),
        (put("shards", 0, "sha256", value="00"), "checksum"),
        (put("shards", 0, "batches", value=[2]), "rows in the shards are not"),
        (put("shards", 0, "batches", value="1"), "not a list"),
        (put("shards", value={}), "not a list"),
        (put("sequences", value=3), "rows in the shards are not"),
        (put("sequences", value="2"), "sequences"),
        (put("steps", value=None), "steps"),
        (put("continued_rows", value=[0, 1]), "ascending"),
        (put("continued_rows", value=[2, 1]), "ascending"),
        (put("continued_rows", value=[1, 9]), "ascending"),
        (put("version", value=None), "version"),
        (put("lengths", value=None), "object"),
        (put("schema", value=None), "schema|NoneType|subscriptable"),
        (put("schema", "fields", 0, "width", value=-2), "width"),
        (put("schema", "fields", 0, "name", value=["x"]), "name|unhashable"),
        (put("schema", "fields", 0, "surprise", value=1), "surprise"),
        (put("schema", "fields", 1, "vocabulary", value="kinds"), "no vocabulary 'kinds'"),
        (put("transforms", value=[1]), "object"),
        (put("splits", value=[]), "object"),
        (put("splits", value={"names": ["train"]}), "file of the splits"),
        (put("notes", value={"mean": float("nan")}), "NaN is no number"),
        (lambda described: described.pop("notes"), "notes"),
        (put("lowtide_store", value=0), "layout 0"),
        (put("lowtide_store", value="1"), "layout '1'"),
    ],
)
def test_what_contradicts_itself_or_leads_elsewhere_is_refused(written: bytes, change: Change, said: str) -> None:
    described = json.loads(written)
    change(described)
    with pytest.raises(LowtideError, match=said) as caught:
        Manifest.from_bytes(sealed(described), PATH)
    assert "damaged" in caught.value.what


def test_a_newer_layout_asks_for_a_newer_lowtide(written: bytes) -> None:
    with pytest.raises(LowtideError, match="newer Lowtide") as caught:
        Manifest.from_bytes(b'{"lowtide_store": 2, "all": "else", "may": "differ"}', PATH)
    assert "upgrade" in caught.value.fix
    assert json.loads(written)["lowtide_store"] == 1


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"name": "package.json"}', b"\xff\xfe", b"[" * 100_000])
def test_something_else_is_no_manifest(data: bytes) -> None:
    with pytest.raises(LowtideError, match=r"not JSON|not the manifest"):
        Manifest.from_bytes(data, PATH)


@given(st.integers(1, 10**9))
def test_versions_have_one_folder_each(version: int) -> None:
    assert version_of(folder_of(version)) == version


@pytest.mark.parametrize(
    "name", ["v1", "v001", "v00001", "V0001", "v0001 ", "v\u0660\u0660\u0660\u0661", "0001", "v", ".building-1"]
)
def test_other_names_are_no_versions(name: str) -> None:
    assert version_of(name) is None


def test_the_fingerprint_is_of_the_content_wherever_it_lies(tmp_path: Path) -> None:
    sequence = sequences([4, 5])
    one = write(tmp_path / "a", sequence)
    two = write(tmp_path / "b", sequences([1]))
    two = write(tmp_path / "b", sequence, notes={"made": "later"})
    assert two.manifest.version == 2
    assert one.fingerprint == two.fingerprint
    assert_holds(Store(tmp_path / "b"), sequence)
