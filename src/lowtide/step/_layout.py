"""Whether data are (B, T, ...) or (T, B, ...), as a model's layers say it."""

from __future__ import annotations

from torch import nn

from lowtide.errors import LowtideError


def layout_of(model: nn.Module, *, unsaid: bool | None = None) -> bool:
    """Whether the model's layers take batches first.

    Args:
        model: The model.
        unsaid: What holds where no layer says it; None: that is refused.

    Raises:
        LowtideError: They disagree, or none says it.
    """
    found = {module.batch_first for module in model.modules() if isinstance(getattr(module, "batch_first", None), bool)}
    if not found and unsaid is not None:
        return unsaid
    if len(found) != 1:
        said = "disagree about it" if found else "do not say"
        raise LowtideError(
            what=f"the layers of {type(model).__name__} {said} whether data are (B, T, ...) or (T, B, ...)",
            why="a step cuts the data along sequences or time",
            fix="pass batch_first=True or batch_first=False",
        )
    return bool(found.pop())
