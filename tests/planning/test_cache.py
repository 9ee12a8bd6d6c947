"""A plan that was made before is found again where it holds, and only there; a cache that fails costs no plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lowtide.memory.limit import Limit
from lowtide.planning import plan as plan_module
from lowtide.planning.budget import Budget
from lowtide.planning.cache import cached, keep
from tests.planning.cases import MIB, made_plan

PLAN = made_plan()
HELD, ASKED = PLAN.base_bytes, "900 MiB"


def limited(size: int) -> Any:  # noqa: ANN401 - stands for `limit`
    return lambda _: Limit(size, "a made up limit", "resident memory", 0, ())


@pytest.fixture(autouse=True)
def plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "limit", limited(10_000 * MIB))


def budget(size: int = PLAN.budget, held: int = HELD) -> Budget:
    return Budget(size, "as asked now", held)


def test_a_plan_is_found_again_and_tells_of_the_budget_of_now() -> None:
    keep(PLAN, ASKED)
    found = cached(PLAN.fingerprint, budget(), ASKED)
    assert found == made_plan(budget_source="as asked now")


def test_another_fingerprint_or_another_budget_finds_nothing() -> None:
    keep(PLAN, ASKED)
    assert cached("ffff", budget(), ASKED) is None
    assert cached(PLAN.fingerprint, budget(), None) is None
    assert cached(PLAN.fingerprint, budget(), "901 MiB") is None


def test_what_is_held_now_is_part_of_what_is_found() -> None:
    keep(PLAN, ASKED)
    found = cached(PLAN.fingerprint, budget(held=HELD + 5 * MIB), ASKED)
    assert found is not None
    assert (found.base_bytes, found.peak_bytes) == (HELD + 5 * MIB, PLAN.peak_bytes + 5 * MIB)


@pytest.mark.parametrize("held", [10 * MIB, 320 * MIB])
def test_much_more_or_less_room_for_training_makes_it_another_budget(held: int) -> None:
    keep(PLAN, ASKED)
    assert cached(PLAN.fingerprint, budget(held=held), ASKED) is None


def test_a_plan_that_exceeds_the_budget_of_now_is_not_found() -> None:
    tight = made_plan(peak_bytes=PLAN.budget - MIB)
    keep(tight, ASKED)
    assert cached(PLAN.fingerprint, budget(), ASKED) is not None
    assert cached(PLAN.fingerprint, budget(held=HELD + 2 * MIB), ASKED) is None
    shrunk = cached(PLAN.fingerprint, budget(PLAN.budget - 2 * MIB), ASKED)
    assert shrunk is None


def test_the_budget_that_is_shown_is_the_one_of_now_where_the_machine_has_a_little_less() -> None:
    keep(PLAN, None)
    found = cached(PLAN.fingerprint, budget(PLAN.budget - 3 * MIB), None)
    assert found is not None
    assert found.budget == PLAN.budget - 3 * MIB
    assert found.peak_bytes <= found.budget


def test_a_limit_below_the_peak_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(PLAN, ASKED)
    monkeypatch.setattr(plan_module, "limit", limited(PLAN.peak_bytes - 1))
    assert cached(PLAN.fingerprint, budget(), ASKED) is None


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\xfe", b'{"format": 1}'])
def test_a_damaged_file_is_as_none(damage: bytes, own_cache: Path) -> None:
    keep(PLAN, ASKED)
    (place,) = (own_cache / "plans").iterdir()
    place.write_bytes(damage)
    assert cached(PLAN.fingerprint, budget(), ASKED) is None
    keep(PLAN, ASKED)
    assert cached(PLAN.fingerprint, budget(), ASKED) is not None


def test_off_keeps_and_finds_nothing(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    keep(PLAN, ASKED)
    monkeypatch.setenv("LOWTIDE_CACHE", "off")
    assert cached(PLAN.fingerprint, budget(), ASKED) is None
    keep(PLAN, None)
    assert len(list(own_cache.rglob("*.json"))) == 1
    assert not Path("off").exists()


def test_a_folder_is_where_plans_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("one", "two"):
        monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / name))
        assert cached(PLAN.fingerprint, budget(), ASKED) is None
        keep(PLAN, ASKED)
        assert cached(PLAN.fingerprint, budget(), ASKED) is not None
        assert list((tmp_path / name).rglob("*.json"))


def test_without_a_setting_the_users_caches_hold_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOWTIDE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    keep(PLAN, ASKED)
    assert list((tmp_path / "xdg" / "lowtide").rglob("*.json"))
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cached(PLAN.fingerprint, budget(), ASKED) is None
    keep(PLAN, ASKED)
    assert list((tmp_path / "home" / ".cache" / "lowtide").rglob("*.json"))


def test_where_nobody_knows_of_a_home_nothing_is_kept_unless_a_folder_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unknown() -> Path:
        message = "Could not determine home directory."
        raise RuntimeError(message)

    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.delenv("LOWTIDE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    keep(PLAN, ASKED)
    assert cached(PLAN.fingerprint, budget(), ASKED) is None
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "set"))
    keep(PLAN, ASKED)
    assert cached(PLAN.fingerprint, budget(), ASKED) is not None


def test_a_folder_that_cannot_be_made_costs_a_warning_and_no_plan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="LOWTIDE_CACHE"):
        keep(PLAN, ASKED)
    assert cached(PLAN.fingerprint, budget(), ASKED) is None
    (tmp_path / "folder" / "plans" / f"{PLAN.fingerprint}-{ASKED}.json").mkdir(parents=True)
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "folder"))
    with pytest.warns(UserWarning, match="not kept"):
        keep(PLAN, ASKED)
    assert cached(PLAN.fingerprint, budget(), ASKED) is None
