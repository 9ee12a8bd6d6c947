"""What else would help is offered where it would, with what it saves and costs, the greatest first."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import lowtide
from lowtide.planning import Component, Offer
from lowtide.planning.offers import WORK, offers_for
from tests.planning.cases import MIB

STOCK = nn.LSTM(3, 4)
PARTS = (
    Component("held before training", 100 * MIB),
    Component("optimizer state", 200 * MIB),
    Component(WORK, 600 * MIB),
)


def offers(
    model: nn.Module = STOCK,
    optimizer: type[torch.optim.Adam | torch.optim.SGD] = torch.optim.Adam,
    parts: tuple[Component, ...] = PARTS,
    **changed: Any,  # noqa: ANN401 - arguments of offers_for
) -> dict[str, Offer]:
    given: dict[str, Any] = {"precision": "float32", "longest": 1000, "typical": 250, "streams": False}
    found = offers_for(model, optimizer(model.parameters()), parts, **(given | changed))
    assert [one.saves for one in found] == sorted((one.saves for one in found), reverse=True)
    assert all(0 < one.saves <= sum(part.bytes for part in parts) for one in found)
    assert all(one.costs for one in found)
    return {one.what: one for one in found}


def test_everything_that_would_help_is_there() -> None:
    found = offers()
    assert "lowtide.lean(model)" in found
    assert 'precision="bfloat16"' in found
    assert found["torch.optim.SGD without momentum"].saves == 200 * MIB
    assert found["max_length=250"].saves == 450 * MIB
    assert "half the units" in found


def test_what_is_done_already_is_not_offered() -> None:
    assert 'precision="bfloat16"' not in offers(precision="bfloat16")
    assert "lowtide.lean(model)" not in offers(lowtide.lean(nn.LSTM(3, 4)))
    assert "lowtide.lean(model)" not in offers(streams=True)
    assert not any("SGD" in what for what in offers(optimizer=torch.optim.SGD))
    assert not any("max_length" in what for what in offers(typical=1000))


def test_what_saves_next_to_nothing_is_not_offered() -> None:
    small = (Component("held before training", 10_000 * MIB), Component(WORK, MIB), Component("optimizer state", MIB))
    assert offers(parts=small) == {}
