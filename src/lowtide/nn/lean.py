"""Turns the recurrent layers of a model that exists into lean ones, and back.

A layer changes its class and nothing else: it stays the same object, with the same parameters, hooks and place in the
model, so optimizers, schedulers and references to it stay valid. Three kinds of class come up:

- torch's own LSTM, GRU and RNN, which have their lean counterparts;
- a user's subclass that inherits torch's forward, for which a class is made that runs the lean forward;
- the class that torch.nn.utils.parametrize makes for a single module, which is made anew over the other parent.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import torch
from torch.nn.utils import parametrize

from lowtide.errors import LowtideError
from lowtide.nn._dynamo import allow_in_dynamo
from lowtide.nn._layer import LeanLayer
from lowtide.nn._options import OPTION_NAMES, checked_keep
from lowtide.nn.gru import GRU
from lowtide.nn.lstm import LSTM
from lowtide.nn.rnn import RNN
from lowtide.ops.spec import Keep

_LEAN_CLASSES: tuple[type[LeanLayer], ...] = (LSTM, GRU, RNN)

Model = TypeVar("Model", bound=torch.nn.Module)


def lean(model: Model, keep: Keep = "outputs") -> Model:
    """Make every torch.nn.LSTM, GRU and RNN in `model` lean, in place, and return the model.

    Results and gradients stay what they are. Layers that are lean already take over `keep`. A subclass with a
    forward of its own is left alone, since that forward is what its author wants to run; cells (torch.nn.LSTMCell)
    are no layers.

    Args:
        model: A model, or a recurrent layer itself.
        keep: What survives until the backward pass, in all of them: "gates", "outputs" or "boundaries"; see
            `lowtide.nn.LSTM`.

    Raises:
        LowtideError: The model holds a recurrent layer compiled by TorchScript, or `keep` is no keep mode. Nothing
            has been changed then.
    """
    checked = checked_keep(keep)
    _refuse_no_module(model)
    _refuse_scripted(model)
    for layer in _recurrent_layers(model):
        lean_class = _lean_class_of(_plain_class(layer))
        if lean_class is not None and "forward" not in layer.__dict__:
            _set_plain_class(layer, lean_class)
            layer.keep = checked
            allow_in_dynamo()
    return model


def stock(model: Model) -> Model:
    """Undo `lean`: put the stock layers back in `model`, in place, and return it.

    Layers constructed as `lowtide.nn.LSTM`, GRU or RNN become torch's as well. A class that was written as a subclass
    of these stays, since it has no stock counterpart.
    """
    _refuse_no_module(model)
    for layer in _recurrent_layers(model):
        plain_class = _plain_class(layer)
        if issubclass(plain_class, LeanLayer) and _is_made_here(plain_class):
            _set_plain_class(layer, plain_class.stock_class)
            for name in OPTION_NAMES:
                layer.__dict__.pop(name, None)
    return model


def _recurrent_layers(model: torch.nn.Module) -> Iterator[torch.nn.RNNBase]:
    for module in model.modules():
        if isinstance(module, (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)):
            yield module


def _refuse_no_module(model: object) -> None:
    if not isinstance(model, torch.nn.Module):
        raise LowtideError(
            what=f"lowtide was given a {type(model).__name__} instead of a model.",
            why="Layers are swapped inside a torch.nn.Module.",
            fix="Give the model itself, or a recurrent layer.",
        )


def _refuse_scripted(model: torch.nn.Module) -> None:
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule) and module.original_name in {"LSTM", "GRU", "RNN"}:
            raise LowtideError(
                what=f"{path or 'The model'} is a {module.original_name} compiled by TorchScript.",
                why="A compiled layer runs torch's own loop, and its class cannot be changed any more.",
                fix="Call lowtide.lean on the model that was scripted, and train that.",
            )


def _lean_class_of(plain_class: type[torch.nn.RNNBase]) -> type[LeanLayer] | None:
    """Find the lean class for a layer's class; None where the class has a forward of its own."""
    if issubclass(plain_class, LeanLayer):
        return plain_class
    for lean_class in _LEAN_CLASSES:
        if plain_class is lean_class.stock_class:
            return lean_class
        if issubclass(plain_class, lean_class.stock_class) and plain_class.forward is lean_class.stock_class.forward:
            return _lean_subclass(plain_class, lean_class)  # type: ignore[arg-type] # mypy: an unhashable class
    return None


@functools.cache
def _lean_subclass(user_class: type[torch.nn.RNNBase], lean_class: type[LeanLayer]) -> type[LeanLayer]:
    """Make a class that is the user's in everything but the forward, which it inherits from `lean_class`."""
    namespace = {
        "__module__": user_class.__module__,
        "__qualname__": user_class.__qualname__,
        "__doc__": user_class.__doc__,
        "__reduce_ex__": _reduce_to_user_class,
        "stock_class": user_class,
        "_made_by_lean": True,
    }
    made = types.new_class(user_class.__name__, (user_class, lean_class), exec_body=lambda body: body.update(namespace))
    return cast("type[LeanLayer]", made)


def _reduce_to_user_class(layer: LeanLayer, protocol: int) -> tuple[Any, ...]:
    """Pickle through the user's class, which has a name that can be imported."""
    parts = super(LeanLayer, layer).__reduce_ex__(protocol)
    assert isinstance(parts, tuple)
    return _remake, (type(layer).stock_class,), *parts[2:]


def _remake(user_class: type[torch.nn.RNNBase]) -> torch.nn.RNNBase:
    lean_class = _lean_class_of(user_class)
    assert lean_class is not None
    layer: torch.nn.RNNBase = lean_class.__new__(lean_class)
    return layer


def _is_made_here(lean_class: type[LeanLayer]) -> bool:
    return lean_class in _LEAN_CLASSES or "_made_by_lean" in lean_class.__dict__


def _plain_class(layer: torch.nn.RNNBase) -> type[torch.nn.RNNBase]:
    return cast("type[torch.nn.RNNBase]", parametrize.type_before_parametrizations(layer))


def _set_plain_class(layer: torch.nn.RNNBase, plain_class: type[torch.nn.RNNBase]) -> None:
    if _plain_class(layer) is plain_class:
        return
    if not parametrize.is_parametrized(layer):
        layer.__class__ = plain_class
        return
    # Made anew rather than given another base: deep copies of the layer share its class.
    parametrized = type(layer)
    namespace = {name: value for name, value in vars(parametrized).items() if name not in {"__dict__", "__weakref__"}}
    layer.__class__ = types.new_class(
        f"Parametrized{plain_class.__name__}", (plain_class,), exec_body=lambda body: body.update(namespace)
    )
