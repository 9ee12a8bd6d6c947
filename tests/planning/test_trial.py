"""Trials and readings go through JSON unchanged."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from lowtide.planning.trial import Reading, Trial
from lowtide.step import Choice


def test_what_is_asked_and_answered_goes_through_json() -> None:
    trial = Trial(Choice(100, 8, None, 32, 2), 16, repeats=5, foreach=False)
    told = json.loads(json.dumps(asdict(trial)))
    assert Trial(**{**told, "choice": Choice(**told["choice"])}) == trial
    values: dict[str, Any] = {field.name: 0.25 + place for place, field in enumerate(fields(Reading))}
    reading = Reading(**values)
    assert Reading(**json.loads(json.dumps(asdict(reading)))) == reading


def test_a_trial_runs_at_least_four_steps_unless_told() -> None:
    assert Trial(Choice(1, 1, None), 1).repeats >= 4
