"""The search finds the fastest of all that fit, for buckets that cover every batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.manner import Manner
from lowtide.planning.models import ByteModel, TimeModel
from lowtide.planning.search import Bucket, Found, Models, buckets_of, candidates, row_counts, search
from lowtide.step import Choice

SIZES = st.lists(st.tuples(st.integers(1, 600), st.integers(0, 60_000)), min_size=1, max_size=60)
SAME = 0.01
"""Relative difference in time that bytes decide."""


def batch_bytes(rows: int, steps: int) -> int:
    return 40 * rows * steps


def models() -> dict[Manner, Models]:
    """Keeping less takes longer, streaming takes least and longest."""
    known = {}
    for manner, cell, seconds in [
        (Manner("gates"), 900, 1.0),
        (Manner("outputs"), 300, 1.33),
        (Manner("boundaries"), 120, 1.4),
    ]:
        known[manner] = Models(ByteModel(), TimeModel())
        for rows, steps in [(16, 32), (4, 32), (16, 96), (1, 256), (32, 64)]:
            choice = manner.choice(steps, rows)
            known[manner].bytes.add(choice, 10**6 + cell * rows * steps)
            known[manner].seconds.add(choice, seconds * (1e-3 + 2e-5 * steps + 1e-6 * rows * steps))
    for chunk in (512, 128):
        manner = Manner(None, chunk)
        known[manner] = Models(ByteModel(), TimeModel())
        for rows, chunks, kept in [(16, 3, 0), (4, 3, 0), (16, 3, 3), (16, 8, 0)]:
            choice = manner.choice(chunks * chunk, rows, kept)
            known[manner].bytes.add(choice, 10**6 + 900 * rows * chunk * max(1, kept) + 2000 * rows * chunks)
            known[manner].seconds.add(choice, 1e-3 + 4e-5 * choice.steps + 2e-6 * rows * choice.steps)
    return known


MODELS = models()


@settings(max_examples=50)
@given(SIZES, st.floats(1, 50), st.floats(5.5, 11))
def test_it_equals_brute_force_and_never_exceeds_what_is_allowed(
    sizes: list[tuple[int, int]], repeats: float, digits: float
) -> None:
    allowed = 10**digits
    rows, steps = np.array(sizes).T
    buckets = buckets_of(rows, steps, repeats)
    for bucket, found in zip(buckets, search(buckets, MODELS, batch_bytes, allowed), strict=True):
        every = [one for one in candidates(bucket, MODELS, batch_bytes) if one.bytes <= allowed]
        assert (found is None) == (not every)
        if found is not None:
            fastest = min(one.seconds for one in every)
            assert found in every
            assert found.seconds <= fastest * (1 + SAME)
            assert all(one.bytes >= found.bytes for one in every if one.seconds <= fastest * (1 + SAME))


@settings(max_examples=30)
@given(SIZES)
def test_more_room_is_never_slower(sizes: list[tuple[int, int]]) -> None:
    rows, steps = np.array(sizes).T
    buckets = buckets_of(rows, steps, 1.0)
    before: list[Found | None] = [None] * len(buckets)
    for digits in range(6, 12):
        now = search(buckets, MODELS, batch_bytes, 10.0**digits)
        for one, other in zip(before, now, strict=True):
            assert one is None or (other is not None and other.seconds <= one.seconds * (1 + SAME))
        before = now


@given(SIZES, st.floats(1, 50))
def test_buckets_cover_every_batch_and_none_is_longer_than_its_bucket(
    sizes: list[tuple[int, int]], repeats: float
) -> None:
    rows, steps = np.array(sizes).T
    buckets = buckets_of(rows, steps, repeats)
    edges = [bucket.steps for bucket in buckets]
    assert edges == sorted(set(edges))
    assert edges[0] >= 1
    assert edges[-1] == max(1, steps.max())
    # A step takes the first choice that is for as many steps as the batch has.
    counts = dict.fromkeys(edges, 0)
    for row, step in sizes:
        bucket = next(one for one in buckets if step <= one.steps)
        assert row <= bucket.rows
        counts[bucket.steps] += 1
    for bucket in buckets:
        assert bucket.batches == pytest.approx(counts[bucket.steps] * repeats)
        assert bucket.mean_steps <= bucket.steps


def test_batches_of_about_one_length_share_a_bucket_and_others_do_not() -> None:
    assert len(buckets_of(np.array([8, 8, 8]), np.array([100, 99, 98]), 1.0)) == 1
    assert len(buckets_of(np.array([8, 8, 8]), np.array([100, 10, 1000]), 1.0)) == 3
    lengths = np.unique(np.geomspace(1, 50_000, 4000).astype(np.int64))
    assert 8 <= len(buckets_of(np.full(len(lengths), 8), lengths, 1.0)) <= 12


@given(st.integers(1, 5000))
def test_row_counts_are_even_cuts_from_all_to_one(rows: int) -> None:
    counts = row_counts(rows)
    assert counts == sorted(set(counts), reverse=True)
    assert (counts[0], counts[-1]) == (rows, 1)
    for count in counts:
        parts = -(-rows // count)
        assert count == -(-rows // parts), "no smaller micro-batch would do with as many of them"


def test_every_way_of_running_is_a_candidate_where_it_means_something() -> None:
    found = list(candidates(Bucket(300, 12, 5.0, 280.0), MODELS, batch_bytes))
    assert {Manner.of(one.choice) for one in found} == {manner for manner in MODELS if manner.chunk_steps != 512}
    assert {one.choice.rows for one in found} == set(row_counts(12))
    assert {one.choice.keep_chunks for one in found if one.choice.chunk_steps} == {0, 1, 2}
    assert all(one.choice.steps == 300 for one in found)


def test_a_candidate_takes_the_batch_and_beside_it_a_micro_batch_or_the_next_batch() -> None:
    bucket = Bucket(300, 12, 5.0, 300.0)
    whole = batch_bytes(12, 300)
    for one in candidates(bucket, MODELS, batch_bytes):
        known = MODELS[Manner.of(one.choice)]
        assert one.bytes == whole + max(known.bytes.predict(one.choice), whole)
        micro_batches = -(-12 // one.choice.rows)
        assert one.seconds == pytest.approx(5 * micro_batches * known.seconds.predict(one.choice))


def test_what_fits_is_chosen_by_time_and_then_by_bytes() -> None:
    bucket = Bucket(300, 16, 1.0, 300.0)
    (plenty,) = search((bucket,), MODELS, batch_bytes, 1e12)
    assert plenty is not None
    assert plenty.choice == Choice(300, 16, "gates")
    (tight,) = search((bucket,), MODELS, batch_bytes, plenty.bytes - 1)
    assert tight is not None
    assert tight.bytes < plenty.bytes
    assert search((bucket,), MODELS, batch_bytes, 1e3) == [None]
