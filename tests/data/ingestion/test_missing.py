"""Policies for missing values are read as they are meant; what is none is refused."""

from __future__ import annotations

import pytest

from lowtide.data.ingestion.missing import Policy, read_missing
from lowtide.errors import LowtideError


@pytest.mark.parametrize(
    ("told", "policy"),
    [
        ("error", Policy()),
        ("drop", Policy("drop")),
        ("forward", Policy("forward")),
        ("mean", Policy("mean")),
        (0, Policy("value", 0)),
        (-1.5, Policy("value", -1.5)),
        (["forward", 0.0], Policy("forward", 0.0)),
        (("forward", "none"), Policy("forward", "none")),
        ({"value": "none"}, Policy("value", "none")),
        ({"value": 3}, Policy("value", 3)),
    ],
)
def test_a_policy_for_all_or_for_some(told: object, policy: Policy) -> None:
    assert read_missing(told).of("x", "a") == policy
    some = read_missing({"a": told})
    assert some.of("x", "a") == policy
    assert some.of("a", "b") == policy
    assert some.of("x", "b") == Policy()


def test_a_column_goes_before_its_field_and_the_rest_can_be_said() -> None:
    told = read_missing({"x": "drop", "a": 1.0, "": "forward"})
    assert told.of("x", "a") == Policy("value", 1.0)
    assert told.of("x", "b") == Policy("drop")
    assert told.of("z", "c") == Policy("forward")


@pytest.mark.parametrize(
    "told",
    ["dorp", None, float("nan"), True, ["forward"], ["drop", 1], ["forward", "forward", 1], {"x": "dorp"}, object()],
)
def test_what_is_no_policy_is_refused(told: object) -> None:
    with pytest.raises(LowtideError, match="is no policy") as caught:
        read_missing(told)
    assert '"forward"' in caught.value.fix
