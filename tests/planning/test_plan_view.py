"""A plan shows its figures, as text and in notebooks."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from lowtide.memory.sizes import in_words
from lowtide.planning import Plan
from lowtide.planning.plan_view import as_html, as_text
from tests.planning.cases import made_plan


def figures(plan: Plan) -> list[str]:
    """What a reader must find."""
    sizes = [plan.peak_bytes, plan.budget, plan.before_proof, plan.faster_with]
    sizes += [one.bytes for one in plan.components] + [one.bytes for one in plan.buckets]
    sizes += [one.saves for one in plan.offers]
    words = [one.name for one in plan.components] + [text for one in plan.offers for text in (one.what, one.costs)]
    return [in_words(size) for size in sizes if size is not None] + words


class Words(HTMLParser):
    """The text of a page, and whether its tags close."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open."""
        assert not attrs
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep."""
        self.words.append(data)


def test_text_holds_the_figures() -> None:
    plan = made_plan()
    text = as_text(plan)
    assert text == str(plan)
    for figure in figures(plan):
        assert figure in text
    for told in ("as <asked>", "batches of 64", "float32 on cpu", "Proved.", "prefetch_bytes=12345", "foreach=False"):
        assert told in text
    for told in ("5,000", "8 of 64", "streamed by 512 steps, 3 chunks kept", "whole, keeping gates", "1,234"):
        assert told in text
    assert "does not fit" in text


def test_notebooks_show_the_same_and_escape_it() -> None:
    plan = made_plan()
    page = Words()
    page.feed(as_html(plan))
    assert page.open == []
    shown = " ".join(page.words)
    for figure in figures(plan):
        assert figure in shown
    assert "as <asked>" in shown
    assert plan._repr_html_() == as_html(plan)


def test_what_is_not_there_is_not_shown() -> None:
    bare = made_plan(prefetch_bytes=None, foreach=None, faster_with=None, sizes_tried=(), offers=())
    for told in ("Loader", "Optimizer:", "twentieth", "tried", "else would help"):
        assert told in str(made_plan())
        assert told not in str(bare)


def test_columns_are_aligned() -> None:
    for table in str(made_plan()).split("\n\n"):
        lines = table.splitlines()
        if len(lines) > 1 and set(lines[1]) <= {"-", " "}:
            starts = [match.start() for match in re.finditer("-+", lines[1])]
            for line in (lines[0], *lines[2:]):
                assert all(start == 0 or line[start - 1 : start].strip() == "" for start in starts)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0123, "12 ms"), (1.0, "1.0 s"), (119.0, "119.0 s"), (600.0, "10 min"), (7200.0, "2.0 h")]
)
def test_times_are_told_in_units_that_fit(seconds: float, words: str) -> None:
    assert f"{words} an epoch" in str(made_plan(seconds_per_epoch=seconds))
