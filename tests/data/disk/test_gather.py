"""Steps of many sequences are copied from wherever they lie: out of pieces, shards and record batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Field, Store
from lowtide.data.disk.gather import Counts, Gather
from lowtide.data.disk.pieces import Pieces
from lowtide.data.disk.shards import Rows
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA, sequences, write

LENGTHS = [5, 200, 0, 70, 3, 90]
MADE = sequences(LENGTHS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Sequences in several pieces among such in one, in many shards."""
    return write(tmp_path_factory.mktemp("gather") / "store", MADE, shard_bytes=512)


def gather_of(store: Store) -> Gather:
    """One that has read nothing yet."""
    manifest = store.manifest
    return Gather(Rows(store.path, manifest.shards, manifest.schema), Pieces(manifest.continued_rows))


@st.composite
def spans(draw: st.DrawFn) -> tuple[Counts, Counts, Counts]:
    """Steps of some sequences, in any order, also repeated."""
    found = []
    for sequence in draw(st.lists(st.integers(0, len(LENGTHS) - 1), max_size=9)):
        start = draw(st.integers(0, LENGTHS[sequence]))
        found.append((sequence, start, draw(st.integers(start, LENGTHS[sequence]))))
    table = np.array(found, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


@given(spans(), st.sampled_from(SCHEMA.per_step))
def test_steps_lie_one_behind_the_other(store: Store, spans: tuple[Counts, Counts, Counts], field: Field) -> None:
    values, offsets = gather_of(store).steps(field, *spans)
    parts = [MADE[sequence][1][field.name][start:stop] for sequence, start, stop in zip(*spans, strict=True)]
    assert values.dtype == field.storage
    np.testing.assert_array_equal(offsets, np.cumsum([0, *map(len, parts)]))
    np.testing.assert_array_equal(values, np.concatenate([np.empty((0, *field.step_shape), field.storage), *parts]))


@given(spans(), st.sampled_from(SCHEMA.per_step), st.booleans(), st.integers(0, 3))
def test_a_padded_array_is_filled_and_cleared(
    store: Store, spans: tuple[Counts, Counts, Counts], field: Field, batch_first: bool, more: int
) -> None:
    sequences, starts, stops = spans
    shape = (len(sequences), int((stops - starts).max(initial=0)) + more)
    out = np.full((*(shape if batch_first else shape[::-1]), *field.step_shape), 77, field.storage)
    gather_of(store).fill(field, *spans, out, batch_first=batch_first)
    rows = out if batch_first else out.swapaxes(0, 1)
    for row, sequence, start, stop in zip(rows, *spans, strict=True):
        np.testing.assert_array_equal(row[: stop - start], MADE[sequence][1][field.name][start:stop])
        assert not row[stop - start :].any()


@given(st.lists(st.integers(0, len(LENGTHS) - 1), max_size=9), st.sampled_from(SCHEMA.per_sequence))
def test_values_per_sequence_are_those_of_its_last_piece(store: Store, chosen: list[int], field: Field) -> None:
    values = gather_of(store).values(field, np.array(chosen, np.int64))
    assert values.shape == (len(chosen), *field.step_shape)
    np.testing.assert_array_equal(values, [MADE[number][1][field.name] for number in chosen] or values)


@pytest.mark.parametrize(("sequence", "start", "stop"), [(0, 0, 6), (0, -1, 2), (0, 3, 2), (1, 0, 201), (1, -1, 5)])
def test_steps_that_a_sequence_has_not_are_refused(store: Store, sequence: int, start: int, stop: int) -> None:
    one, first, last = (np.array([number]) for number in (sequence, start, stop))
    with pytest.raises(LowtideError, match=f"steps {start} to {stop} of a sequence of {LENGTHS[sequence]} steps"):
        gather_of(store).steps(SCHEMA.field("x"), one, first, last)
    out = np.zeros((1, 300, 3), np.float32)
    with pytest.raises(LowtideError, match="were asked for"):
        gather_of(store).fill(SCHEMA.field("x"), one, first, last, out, batch_first=True)
    assert not out.any()


@pytest.mark.parametrize("shape", [(2, 9, 3), (1, 9, 2)])
def test_an_array_that_does_not_fit_is_refused(store: Store, shape: tuple[int, ...]) -> None:
    one, zero, five = (np.array([number]) for number in (0, 0, 5))
    with pytest.raises(LowtideError, match="an array of shape"):
        gather_of(store).fill(SCHEMA.field("x"), one, zero, five, np.zeros(shape, np.float32), batch_first=True)
