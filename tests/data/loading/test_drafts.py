"""Drafts tell the sizes of batches, and no place is taken for one."""

from __future__ import annotations

import numpy as np

from lowtide.data.loading.assembly import drafts_of, items_of_lengths
from lowtide.data.loading.drafts import no_position, sizes_of
from lowtide.data.loading.settings import LoaderSettings


def test_sizes_are_those_of_the_batches_in_their_order() -> None:
    settings = LoaderSettings(batch_size=2, shuffle=False, round_lengths=4)
    drafts = drafts_of(items_of_lengths(np.array([3, 5, 8, 9, 1]), settings), settings)
    assert list(sizes_of(drafts, 0)) == [(2, 8), (2, 12), (1, 4)]


def test_what_is_no_place_is_shown_in_part() -> None:
    assert no_position({"epoch": -1}).what == "{'epoch': -1} is no place between batches"
    assert len(no_position("a" * 1000).what) < 120
