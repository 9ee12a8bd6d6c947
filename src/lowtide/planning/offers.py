"""What else would help, and what it costs: approximate or another model, so never done unasked. Estimates."""

from __future__ import annotations

from torch import nn
from torch.optim import SGD, Optimizer

from lowtide.planning.plan import Component, Offer

WORK = "activations and workspace"
"""The component that a micro-batch decides."""
_LEAST_SHARE = 0.02
"""Of the peak that an offer saves at least, to be worth a line."""


def offers_for(
    model: nn.Module,
    optimizer: Optimizer,
    parts: tuple[Component, ...],
    *,
    precision: str,
    longest: int,
    typical: int,
    streams: bool,
) -> tuple[Offer, ...]:
    """What would lower the peak.

    Args:
        model: What is trained.
        optimizer: By what.
        parts: What the peak consists of.
        precision: What the forward computes in.
        longest: Steps of the longest batch.
        typical: Steps that nine of ten batches have at most.
        streams: Whether the model runs in chunks.
    """
    sizes = {one.name: one.bytes for one in parts}
    work, state = sizes.get(WORK, 0), sizes.get("optimizer state", 0)
    found = []
    if not streams and any(type(one) in (nn.LSTM, nn.GRU, nn.RNN) for one in model.modules()):
        found.append(Offer("lowtide.lean(model)", work // 2, "nothing: the same gradients, at least as fast"))
    if precision == "float32":
        found.append(Offer('precision="bfloat16"', work // 2, "three digits in the forward; slower on old machines"))
    if state and not isinstance(optimizer, SGD):
        found.append(Offer("torch.optim.Adafactor", int(state * 0.95), "another optimizer: other steps"))
        found.append(Offer("torch.optim.SGD without momentum", state, "another optimizer: other steps"))
    if typical < longest:
        found.append(
            Offer(
                f"max_length={typical}", int(work * (1 - typical / longest)), "one batch in ten loses its longest steps"
            )
        )
    found.append(Offer("half the units", work // 2 + state // 2, "a smaller model"))
    least = _LEAST_SHARE * sum(sizes.values())
    return tuple(sorted((one for one in found if one.saves > least), key=lambda one: -one.saves))
