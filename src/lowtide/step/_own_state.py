"""The state that a forward takes as an argument and returns beside its outputs, as a stream carries it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from lowtide.errors import LowtideError
from lowtide.nn._carry import Axes, Carry, NoCarry, Slot, State
from lowtide.step._sequence import Data, leaves, map_leaves

_PAIR = 2


class OwnState:
    """The state of one model's forward: where it lies in what is returned, and where its sequences lie in it."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.slot = Slot(nn.Identity(), 0)
        self.axes: Axes = ()
        """Found by trying batches of two sizes."""
        self.begins_with_zeros = False
        """Whether no state means a state of zeros; found by trying."""
        self._template: Data = None

    def found_in(self, result: Any) -> bool:  # noqa: ANN401 - whatever a model returns
        """Whether a forward returned (outputs, state)."""
        is_pair = isinstance(result, tuple) and len(result) == _PAIR
        return is_pair and any(isinstance(leaf, Tensor) for leaf in leaves(result[1]))

    def leave(self, state: Data, carry: Carry | NoCarry) -> None:
        """Hand a returned state to the next chunk."""
        odd = [leaf for leaf in leaves(state) if leaf is not None and not isinstance(leaf, Tensor)]
        if odd:
            raise LowtideError(
                what=f"the forward returned a state that holds a {type(odd[0]).__name__}",
                why="a state is carried, kept and differentiated tensor by tensor",
                fix="make it a tensor, or leave it out of the state",
            )
        self.remember(state)
        carry.leave(self.slot.module, self.parts(state))

    def take(self, carry: Carry, batch: int) -> Data:
        """The state that the chunk before left, as the forward returned it; zeros for lanes that begin anew."""
        arrived = carry.arriving[self.slot]
        axes = self.axes or (None,) * len(arrived)
        initial = tuple(
            part.new_zeros([batch if place == axis else size for place, size in enumerate(part.shape)])
            for part, axis in zip(arrived, axes, strict=True)
        )
        return self.restored(carry.take(self.slot.module, initial, axes))

    def remember(self, state: Data) -> None:
        """Note a state's structure."""
        self._template = map_leaves(lambda leaf: None if leaf is None else True, state)

    def parts(self, state: Data) -> State:
        """The tensors of a state."""
        return tuple(leaf for leaf in leaves(state) if leaf is not None)

    def restored(self, parts: State) -> Data:
        """A state of these tensors."""
        tensors: Iterator[Tensor] = iter(parts)
        return map_leaves(lambda leaf: None if leaf is None else next(tensors), self._template)

    def check_lanes(self) -> None:
        """Refuse to begin single lanes anew where it is not known what they would begin with.

        Raises:
            LowtideError: No state is something else than zeros.
        """
        if not self.begins_with_zeros:
            raise LowtideError(
                what="the forward begins with something else than zeros where it is given no state",
                why="a lane that begins anew inside a batch is given zeros",
                fix="begin anew with all lanes, step.reset(), or carry the state with carry_in and carry_out",
            )


def axes_between(few: State, more: State) -> Axes:
    """Where the sequences lie, from states of a smaller and of a larger batch."""
    return tuple(_differing_axis(one, other) for one, other in zip(few, more, strict=True))


def _differing_axis(one: Tensor, other: Tensor) -> int | None:
    if one.dim() != other.dim():
        return None
    axes = [axis for axis, (few, more) in enumerate(zip(one.shape, other.shape, strict=True)) if few != more]
    return axes[0] if len(axes) == 1 else None
