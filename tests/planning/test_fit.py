"""The answer of `fits` is true or false, and says why."""

from __future__ import annotations

from lowtide.planning import Fit


def test_it_stands_for_yes_or_no_and_tells_why() -> None:
    yes, no = Fit(fits=True, why="plenty", floor=5), Fit(fits=False, why="too little", floor=5)
    assert yes
    assert not no
    assert str(yes) == "yes: plenty"
    assert str(no) == "no: too little"
