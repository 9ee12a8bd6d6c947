"""What does not fit says so: the least that training takes, by component, and the smallest change that would fit."""

from __future__ import annotations

from lowtide.errors import LowtideError
from lowtide.memory.sizes import in_words
from lowtide.planning.budget import Budget
from lowtide.planning.plan import Component, Offer


class DoesNotFitError(LowtideError):
    """No way of training that keeps the result the same fits into the budget."""

    floor: int
    """Bytes below which nothing fits."""
    components: tuple[Component, ...]


def does_not_fit(
    budget: Budget, floor: int, components: tuple[Component, ...], offers: tuple[Offer, ...]
) -> DoesNotFitError:
    """The error that says so."""
    parts = ", ".join(f"{one.name} {in_words(one.bytes)}" for one in components)
    enough = next((one for one in sorted(offers, key=lambda one: one.saves) if one.saves >= floor - budget.bytes), None)
    change = f"; or {enough.what}, which saves about {in_words(enough.saves)}" if enough else ""
    error = DoesNotFitError(
        what=f"training takes at least {in_words(floor)}, and the budget is {in_words(budget.bytes)} ({budget.source})",
        why=f"{parts}: with one sequence at a time, and the leanest way of running it",
        fix=f"give a budget of {in_words(floor)} or more{change}",
    )
    error.floor = floor
    error.components = components
    return error
