"""Which dtype a lean layer computes in, and which dtypes it returns: those that the stock layer returns.

Outside autocast everything has one dtype. Under autocast on a GPU, torch hands cuDNN float16 whatever autocast's dtype
is, and computes in autocast's without cuDNN. Under autocast on a CPU the lean layer computes in float32; the stock
layer runs op by op there (but for its fused LSTM), so its matrix products come out in autocast's dtype while the
updates of a state promote to that state's own dtype.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from lowtide.ops.spec import StackSpec


class Precision(NamedTuple):
    """The dtype of the computation and of its results."""

    compute: torch.dtype
    outputs: torch.dtype
    h: torch.dtype
    c: torch.dtype


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """Autocast's dtype where it is on for `device`, else None."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return None


def choose_precision(
    spec: StackSpec, data: Tensor, states: tuple[Tensor, ...], weights: Iterable[Tensor], *, packed: bool
) -> Precision | None:
    """Find the dtypes for these tensors; None where the stock layer has no result for such a mixture."""
    dtypes = {tensor.dtype for tensor in (data, *states, *weights)}
    autocast = autocast_dtype(data.device)
    if autocast is None or dtypes == {torch.float64}:
        return _uniform(data.dtype) if dtypes == {data.dtype} and data.dtype.is_floating_point else None
    if not dtypes <= {torch.float32, torch.bfloat16, torch.float16}:
        return None
    if data.device.type != "cpu":
        return _uniform(torch.float16 if _takes_cudnn(data) else autocast)
    if not {data.dtype, *(state.dtype for state in states)} <= {torch.float32, autocast}:
        return None
    return _stock_cpu_precision(spec, autocast, data, states, packed=packed)


def _uniform(dtype: torch.dtype) -> Precision:
    return Precision(compute=dtype, outputs=dtype, h=dtype, c=dtype)


def _takes_cudnn(data: Tensor) -> bool:
    cudnn = torch.backends.cudnn
    return data.is_cuda and cudnn.enabled and bool(cudnn.is_available())  # type: ignore[no-untyped-call]


def _stock_cpu_precision(
    spec: StackSpec, autocast: torch.dtype, data: Tensor, states: tuple[Tensor, ...], *, packed: bool
) -> Precision:
    state_dtypes = [state.dtype for state in states] or [data.dtype, data.dtype]
    fused_lstm = spec.cell == "lstm" and spec.proj_size == 0 and not packed
    if fused_lstm or spec.cell in {"rnn_tanh", "rnn_relu"}:
        h = c = autocast
    elif spec.cell == "gru":
        h = c = torch.promote_types(state_dtypes[0], autocast)
    else:
        c = torch.promote_types(state_dtypes[1], autocast)
        h = autocast if spec.proj_size else c
    return Precision(compute=torch.float32, outputs=h, h=h, c=c)
