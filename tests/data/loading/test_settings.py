"""Settings that contradict each other are refused before anything is read."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

import numpy as np
import pytest

from lowtide.data.loading.lanes import Lanes
from lowtide.data.loading.settings import LoaderOptions, LoaderSettings
from lowtide.data.loading.windows import Windows
from lowtide.errors import LowtideError


def test_functions_that_pass_settings_on_take_the_same_names_and_types() -> None:
    names = {field.name for field in fields(LoaderSettings)}
    settings, options = get_type_hints(LoaderSettings), get_type_hints(LoaderOptions)
    assert {name: settings[name] for name in names} == options


def test_a_batch_is_full_at_64_sequences_unless_something_else_is_said() -> None:
    assert LoaderSettings().size.count == 64
    assert LoaderSettings(batch_size=3).size.count == 3
    assert LoaderSettings(max_padded_steps=500).size.count is None
    assert LoaderSettings(max_padded_steps=500).size.padded_steps == 500


def test_what_decides_is_plain_and_knows_no_ranks() -> None:
    told = LoaderSettings(windows=Windows(5), rank=1, ranks=2, round_lengths=[8, 4], framework="numpy").deciding()
    assert all(isinstance(value, int | str | None) for value in told.values())
    assert told == LoaderSettings(windows=Windows(5), round_lengths=(4, 8), prefetch_bytes=0, batch_size=64).deciding()
    assert told != LoaderSettings(windows=Windows(6), round_lengths=(4, 8)).deciding()


@pytest.mark.parametrize("whole", [np.int64, np.uint8])
def test_whole_numbers_of_numpy_are_whole_numbers(whole: Any) -> None:  # noqa: ANN401 - which a user gives for an int
    asked = LoaderSettings(batch_size=whole(3), seed=whole(4), rank=whole(1), ranks=whole(2))
    assert asked == LoaderSettings(batch_size=3, seed=4, rank=1, ranks=2)
    windows = LoaderSettings(windows=Windows(whole(5), whole(2)), round_lengths=[whole(4), whole(8)])
    assert windows.deciding() == LoaderSettings(windows=Windows(5, 2), round_lengths=[4, 8]).deciding()
    lanes = LoaderSettings(lanes=Lanes(whole(2), whole(5)))
    assert lanes.deciding() == LoaderSettings(lanes=Lanes(2, 5)).deciding()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 2.0}, "batch_size=2.0"),
        ({"batch_size": True}, "batch_size=True"),
        ({"max_padded_steps": -1}, "max_padded_steps=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"prefetch_bytes": -1}, "prefetch_bytes=-1"),
        ({"max_length": 5, "cut": "middle"}, "cut='middle'"),
        ({"framework": "jax"}, "framework='jax'"),
        ({"rank": 1}, "rank=1"),
        ({"round_lengths": 0}, "round_lengths=0"),
        ({"batch_size": 4, "max_padded_steps": 100}, "batch_size= and max_padded_steps= together"),
        ({"lanes": Lanes(2, 5), "batch_size": 4}, "batch_size= and lanes= together"),
        ({"lanes": Lanes(2, 5), "windows": Windows(4)}, "windows= and lanes= together"),
        ({"lanes": Lanes(2, 5), "packed": True}, "packed= and lanes= together"),
        ({"windows": Windows(4), "max_length": 4}, "windows= and max_length= together"),
        ({"cut": "tail"}, "cut='tail'"),
        ({"over_length": "drop"}, "over_length='drop'"),
        ({"max_length": 5, "cut": "tail", "over_length": "drop"}, "cut= and over_length= together"),
        ({"packed": True, "framework": "numpy"}, "packed=True"),
    ],
)
def test_a_contradiction_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(LowtideError, match=said):
        LoaderSettings(**options)
