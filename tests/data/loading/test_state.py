"""A state is plain, and says what a place means; of anything else the same batches would not come."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lowtide.data.loading.lanes import Lanes
from lowtide.data.loading.settings import LoaderSettings
from lowtide.data.loading.state import check_epoch, check_running, place_in, state_of
from lowtide.data.loading.windows import Windows
from lowtide.errors import LowtideError

PLACE = {"epoch": 3}
SETTINGS = LoaderSettings(batch_size=4, seed=1)


@pytest.mark.parametrize(
    "settings",
    [SETTINGS, LoaderSettings(windows=Windows(5, 2), round_lengths=[8, 16]), LoaderSettings(lanes=Lanes(4, 8))],
)
def test_a_place_comes_back_through_json(settings: LoaderSettings) -> None:
    state = json.loads(json.dumps(state_of("data", settings, PLACE)))
    assert place_in(state, "data", settings) == PLACE


@pytest.mark.parametrize(
    "other",
    [
        {"rank": 1, "ranks": 2},
        {"framework": "numpy", "prefetch_bytes": 0},
        {"batch_first": False, "weights": "w", "dtypes": {"x": "float64"}},
    ],
)
def test_what_decides_on_no_batch_may_be_another(other: dict[str, Any]) -> None:
    state = state_of("data", LoaderSettings(batch_size=4, seed=1, **other), PLACE)
    assert place_in(state, "data", SETTINGS) == PLACE


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"batch_size": 5}, r"batch_size=5 \(here 4\)"),
        ({"batch_size": 4, "drop_last": True}, "drop_last=True"),
        ({"batch_size": 4, "shuffle": False}, "shuffle=False"),
        ({"batch_size": 4, "round_lengths": 8}, "round_lengths="),
        ({"batch_size": 4, "max_length": 9, "cut": "tail"}, "max_length=9 .*, cut='tail'"),
        ({"batch_size": 4, "windows": Windows(5)}, "windows="),
        ({"lanes": Lanes(4, 8)}, "lanes="),
        ({"max_padded_steps": 99}, "max_padded_steps=99"),
    ],
)
def test_other_settings_are_refused_by_name(other: dict[str, Any], said: str) -> None:
    with pytest.raises(LowtideError, match=said):
        place_in(state_of("data", LoaderSettings(**{"seed": 1, **other}), PLACE), "data", SETTINGS)


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lambda _: [1],
        lambda state: state | {"version": 99},
        lambda state: state | {"settings": None},
        lambda state: {"position": state["position"]},
    ],
)
def test_what_is_no_state_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(LowtideError, match="no state of this version"):
        place_in(change(state_of("data", SETTINGS, PLACE)), "data", SETTINGS)


def test_other_data_are_refused() -> None:
    with pytest.raises(LowtideError, match="other data"):
        place_in(state_of("data", SETTINGS, PLACE), "more data", SETTINGS)


@pytest.mark.parametrize("epoch", [-1, 1.0, "1", None, True])
def test_what_is_no_epoch_is_refused(epoch: object) -> None:
    check_epoch(0)
    with pytest.raises(LowtideError, match="set_epoch"):
        check_epoch(epoch)


def test_the_last_loop_alone_goes_on() -> None:
    first, second = object(), object()
    check_running(second, second)
    with pytest.raises(LowtideError, match="a loader is at one place"):
        check_running(first, second)
