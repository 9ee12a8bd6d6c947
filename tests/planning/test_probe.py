"""A probe measures in a child that may do whatever it likes: nothing of it stays, and nothing here is touched."""
# ruff: noqa: D102 - a small model

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor, nn

from lowtide.errors import LowtideError
from lowtide.memory import held
from lowtide.nn.losses import mse
from lowtide.planning.probe import Prober, TooLarge
from lowtide.planning.subject import Subject
from lowtide.planning.trial import Trial
from lowtide.step import Choice
from tests.planning.cases import MIB, Tagger, pattern

DIES, GROWS, REFUSES, EXITS, KILLED, WAITS = 11, 12, 13, 14, 15, 16
"""Numbers of steps at which the model does something else."""
GROWN = 4096 * MIB


class Moody(Tagger):
    """Talks all the time, and does something else at some lengths."""

    def forward(self, x: Tensor) -> Tensor:
        print("a forward that talks", x.shape)  # noqa: T201 - that is the point
        os.write(1, b'{"reading": {}}\n')
        steps = x.shape[1]
        if steps == DIES:
            message = "these were my last words"
            raise RuntimeError(message)
        if steps == GROWS:
            torch.ones(GROWN // 4)
        if steps == REFUSES:
            raise LowtideError(what="it is what it is", why="so it goes", fix="do nothing")
        if steps == EXITS:
            sys.exit("no more")
        if steps == KILLED:
            os.kill(os.getpid(), 9)
        if steps == WAITS:
            threading.Event().wait()
        return super().forward(x)


def subject(model: nn.Module | None = None) -> Subject:
    model = model or Moody()
    return Subject(model, mse, torch.optim.Adam(model.parameters()), pattern(lengths=False), "float32")


def allowed() -> int:
    return held() + 400 * MIB


def trial(steps: int, *, rows: int = 2, repeats: int = 4) -> Trial:
    return Trial(Choice(steps, rows, None), rows, repeats)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture(scope="module")
def prober() -> Iterator[Prober]:
    """One for all tests that leave it usable."""
    with Prober(subject(), allowed(), settled=False) as made:
        made.start()
        yield made


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made meanwhile."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def test_a_forward_that_talks_disturbs_no_answer(prober: Prober) -> None:
    reading = prober.run(trial(10))
    assert reading.steps == 4
    assert reading.growth > 0
    assert reading.step_seconds > 0
    assert reading.state == sum(2 * one.numel() * 4 + 4 for one in Moody().parameters())


def test_more_is_seen_to_take_more(prober: Prober) -> None:
    small, large = prober.run(trial(10)), prober.run(trial(2000, rows=60))
    output = 60 * 2000 * 16 * 4
    assert large.growth > small.growth + output


def test_a_refusal_comes_back_with_its_words_and_the_child_goes_on(prober: Prober) -> None:
    prober.run(trial(9))
    before = children()
    with pytest.raises(LowtideError) as refused:
        prober.run(trial(REFUSES))
    assert (refused.value.what, refused.value.why, refused.value.fix) == (
        "it is what it is",
        "so it goes",
        "do nothing",
    )
    assert prober.run(trial(10)).steps == 4
    assert children() == before


@pytest.mark.parametrize("steps", [GROWS, KILLED])
def test_what_takes_too_much_is_too_large_and_the_next_trial_works(prober: Prober, steps: int) -> None:
    with pytest.raises(TooLarge):
        prober.run(trial(steps))
    assert prober.run(trial(10)).steps == 4


def test_a_child_that_dies_otherwise_is_an_error_with_its_last_words(prober: Prober) -> None:
    with pytest.raises(LowtideError, match="these were my last words"):
        prober.run(trial(DIES))
    with pytest.raises(LowtideError, match="no more"):
        prober.run(trial(EXITS))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's killer is Linux's")
def test_a_child_offers_itself_to_the_kernels_killer_first(prober: Prober) -> None:
    before = Path("/proc/self/oom_score_adj").read_text(encoding="ascii")
    prober.start()
    probes = [child.pid for child in psutil.Process().children() if "lowtide.planning._child" in child.cmdline()]
    assert probes
    scores = {Path(f"/proc/{child}/oom_score_adj").read_text(encoding="ascii").strip() for child in probes}
    assert scores == {"1000"}
    assert Path("/proc/self/oom_score_adj").read_text(encoding="ascii") == before


def test_nothing_here_is_touched(prober: Prober) -> None:
    own = subject()
    before = {name: value.clone() for name, value in own.model.state_dict().items()}

    def drawn() -> tuple[Any, ...]:
        numpy = np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002 - the global generator
        return torch.get_rng_state().tolist(), random.getstate(), numpy, torch.get_num_threads(), Path.cwd()

    state = drawn()
    with Prober(own, allowed(), settled=False):
        prober.run(trial(10))  # a child of the same kind, which is there already
    assert drawn() == state
    assert all(torch.equal(value, before[name]) for name, value in own.model.state_dict().items())
    assert not own.optimizer.state
    assert all(one.grad is None for one in own.model.parameters())


@pytest.mark.parametrize("error", [KeyboardInterrupt, LowtideError])
def test_neither_child_nor_folder_is_left_behind(error: type[BaseException], folders: Path) -> None:
    before = children()

    def work() -> None:
        with Prober(subject(), allowed(), settled=False) as prober:
            prober.start()
            assert len(children() - before) == 1
            assert len(list(folders.iterdir())) == 1
            if error is LowtideError:
                prober.run(trial(DIES))
            raise KeyboardInterrupt

    with pytest.raises(error):
        work()
    assert children() == before
    assert list(folders.iterdir()) == []


def test_what_cannot_be_pickled_leaves_no_folder(folders: Path) -> None:
    model = Tagger()
    model.lock = threading.Lock()  # type: ignore[assignment] # that is the point
    with pytest.raises(LowtideError, match="factory="):
        Prober(subject(model), allowed(), settled=False)
    assert list(folders.iterdir()) == []


def test_where_not_even_the_child_fits_it_is_too_large(folders: Path) -> None:
    with pytest.raises(TooLarge), Prober(subject(), 20 * MIB, settled=False) as prober:
        prober.start()
    assert list(folders.iterdir()) == []


def test_a_factory_makes_what_is_probed(folders: Path) -> None:
    model = Tagger()
    model.lock = threading.Lock()  # type: ignore[assignment] # that is the point

    def factory() -> tuple[nn.Module, Any, torch.optim.Optimizer]:
        made = Tagger(hidden=3)
        return made, mse, torch.optim.SGD(made.parameters(), lr=0.1)

    with Prober(subject(model), allowed(), settled=False, factory=factory) as prober:
        assert prober.run(trial(10)).state == 0
    assert list(folders.iterdir()) == []
