"""What a way of running makes of sizes: choices, chunks, and steps whose graph exists at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.planning.manner import Manner, chunks_of, live_steps
from lowtide.step import Choice

MANNERS = st.one_of(
    st.sampled_from([Manner(None), Manner("gates"), Manner("outputs"), Manner("boundaries")]),
    st.builds(Manner, st.none(), st.integers(1, 600)),
)


@given(MANNERS, st.integers(1, 5000), st.integers(1, 99), st.integers(0, 9))
def test_a_choice_says_how_it_runs(manner: Manner, steps: int, rows: int, kept: int) -> None:
    choice = manner.choice(steps, rows, kept)
    assert (choice.steps, choice.rows, choice.keep_chunks) == (steps, rows, kept)
    assert Manner.of(choice) == manner


@given(st.integers(1, 5000), st.integers(1, 600), st.integers(0, 9))
def test_chunks_cover_the_steps_and_the_live_ones_are_among_them(steps: int, chunk: int, kept: int) -> None:
    choice = Choice(steps, 1, None, chunk, kept)
    spans = range(0, steps, chunk)
    assert chunks_of(choice) == len(spans)
    # The graphs that exist at once are those of the chunk at work, or of all that are kept.
    live = sum(min(chunk, steps - start) for start in list(spans)[: max(1, kept)])
    assert live_steps(choice) == live


def test_whole_sequences_are_one_chunk_and_all_live() -> None:
    assert chunks_of(Choice(77, 3, "gates")) == 1
    assert live_steps(Choice(77, 3, "gates")) == 77


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        (Manner(None), "whole"),
        (Manner("outputs"), "whole, keeping outputs"),
        (Manner(None, 128), "streamed by 128 steps"),
    ],
)
def test_it_is_told_in_words(manner: Manner, words: str) -> None:
    assert str(manner) == words
