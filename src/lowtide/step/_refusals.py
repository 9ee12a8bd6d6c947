"""What is said of a model that cannot be streamed: which module it is, why, and what to use instead."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from lowtide.errors import LowtideError
from lowtide.nn._layer import LeanLayer
from lowtide.nn.causal_conv import CausalConv1d
from lowtide.step._model import StreamedModel
from lowtide.step._randomness import Sources
from lowtide.step._sequence import CONTAINERS

_WHOLE = 'or train without streaming: lowtide.lean(model, keep="outputs") and micro-batches'


def mixes_time(model: StreamedModel, path: str, what: str, sources: Sources) -> LowtideError:
    """A module whose results depend on where chunks begin."""
    culprit = model.module.get_submodule(path)
    return LowtideError(
        what=f"{_named(model.module, path)} {what}",
        why="chunk by chunk it would train wrongly",
        fix=_advice(model, culprit, sources),
    )


def takes_padding(model: StreamedModel, path: str, what: str) -> LowtideError:
    """A module whose results on a sequence depend on what lies behind it."""
    culprit = model.module.get_submodule(path)
    fix = _known_advice(culprit, otherwise="") or (
        "use layers that know lengths (lowtide.nn), lowtide.nn.Pool for one vector a sequence, and "
        "lowtide.nn.valid_lengths in modules of your own"
    )
    return LowtideError(
        what=f"{_named(model.module, path)} {what}",
        why="trained that way, padding would be learned from",
        fix=fix,
    )


def loss_takes_padding() -> LowtideError:
    """A loss of sequences that counts what lies behind them."""
    return LowtideError(
        what="the loss of a sequence changes when padding is added behind it",
        why="the loss function is given outputs and targets of all steps, and knows no lengths",
        fix="give one value per step, which is counted where it is valid, or end the model in lowtide.nn.Pool",
    )


def has_static() -> LowtideError:
    """A forward that is given something once a sequence, in a stream."""
    return LowtideError(
        what="the batch has static values, which the forward takes, and the plan streams batches of this length",
        why="a stream hands a forward one chunk of time after another, and knows nothing that belongs to all of them",
        fix="plan without streaming, or repeat the static values along time as part of the inputs",
    )


def mixes_sequences(model: StreamedModel, path: str, *, batch_first: bool) -> LowtideError:
    """A module whose results on a sequence depend on which others run beside it."""
    read = "(B, T, ...)" if batch_first else "(T, B, ...)"
    return LowtideError(
        what=f"{_named(model.module, path)} gives a sequence of data read as {read} other outputs when another runs "
        "beside it",
        why="cut into micro-batches, the batch would have another gradient than as a whole",
        fix=f"pass batch_first={not batch_first} if the data lie so; else use modules that treat each sequence by "
        "itself, or plan with one micro-batch: a larger budget, or a smaller batch_size",
    )


def sees_other_sequences(module: nn.Module, path: str) -> LowtideError:
    """A normalisation over the batch, where the batch is divided."""
    return LowtideError(
        what=f"{_named(module, path)} normalises over all sequences of a batch, and this one is cut into micro-batches",
        why="each micro-batch would be normalised by itself: another result than that of the whole batch",
        fix="use torch.nn.GroupNorm or LayerNorm, call eval() on that module, or plan with one micro-batch: "
        "a larger budget, or a smaller batch_size",
    )


def fails_whole(model: StreamedModel, error: Exception, *, steps: int, lanes: int) -> LowtideError:
    """A model that does not even run."""
    state = model.signature.state
    fix = "make the model's own forward run on inputs of this size; pass batch_first if the data lie otherwise"
    if state is not None and model.signature.requires(state):
        fix = f"let {state}=None stand for the state at a sequence's start: {model.signature.text} is given that"
    return LowtideError(
        what=f"the model fails on {steps} steps of {lanes} of these sequences: {error}",
        why="before training it is tried on a few rows of the data",
        fix=fix,
    )


def fails_in_chunks(error: Exception, *, steps: int, chunk: int) -> LowtideError:
    """A model that wants a certain number of steps."""
    why = "a stream runs the model on one chunk of time after another"
    fix = "use layers that take any number of steps and give as many back; pass batch_first if the data lie otherwise"
    if "greater than 0" in str(error):  # torch's pack_padded_sequence
        why = "a sequence that has ended has no valid step in later chunks, and cannot be packed"
        fix = "leave packing out: lean layers know the lengths inside of a step, and lowtide.nn.valid_lengths tells"
    return LowtideError(
        what=f"the model takes {steps} steps at once, but not {chunk} of them: {error}", why=why, fix=fix
    )


def runs_across(*, batch_first: bool) -> LowtideError:
    """A model whose layers all run along the sequences."""
    read = "(B, T, ...)" if batch_first else "(T, B, ...)"
    return LowtideError(
        what=f"the data are read as {read}, and no state of the model goes along that T",
        why="a stream cuts the data along time; cut along the sequences, the model would need all of their memory",
        fix=f"pass batch_first={not batch_first} if the data lie so; a model that carries no state needs no stream",
    )


def forgets_its_state(path: str, module: nn.Module) -> LowtideError:
    """A stock recurrent layer, whose state is carried by nobody."""
    kind = type(module).__name__
    named = f"module {path!r} ({kind})" if path else f"the model ({kind})"
    return LowtideError(
        what=f"{named} is a stock layer, which begins every chunk without a state",
        why="a sequence in chunks would be many short ones, and the gradients those of other data",
        fix="call lowtide.lean(model): lean layers carry their state from chunk to chunk; or let the forward take the "
        "state as an argument and return (outputs, state)",
    )


def changes_inputs() -> LowtideError:
    """A forward that works in place on what it is given."""
    return LowtideError(
        what="the forward changes its inputs in place",
        why="chunks are views of the data and run twice: the second time on what the first has left",
        fix="work on a copy in the forward, for example x = x * 2 rather than x *= 2",
    )


def unknown_outputs(found: object) -> LowtideError:
    """Outputs that cannot be compared."""
    return LowtideError(
        what=f"the model's outputs hold a {type(found).__name__}",
        why=f"outputs are compared tensor by tensor, and tensors are looked for in {CONTAINERS} alone",
        fix=f"return a floating-point tensor, or several in {CONTAINERS}",
    )


def both_kinds() -> LowtideError:
    """Outputs a step and a sequence, and a loss on both."""
    return LowtideError(
        what="the loss uses outputs of each step and of whole sequences together",
        why="the mean is over steps or over sequences, and a sequence has its output at its end alone",
        fix="train the two in two steps, each with a model that returns one of them: gradients add up in .grad",
    )


def loss_fails(error: Exception) -> LowtideError:
    """A loss function that raises."""
    return LowtideError(
        what=f"the loss function fails on a few rows of outputs and targets: {type(error).__name__}: {error}",
        why="before training it is tried like the model",
        fix="give a loss that takes (outputs, targets) as the model and the data give them, classes and features last: "
        "lowtide.nn.losses has the usual ones",
    )


def loss_mixes() -> LowtideError:
    """A loss that takes one step for another."""
    return LowtideError(
        what="the loss of a step depends on other steps: it is another in chunks than over the whole sequence",
        why="chunk by chunk the loss would be another than the one that was asked for",
        fix="compute the loss of each step from its own output and target",
    )


def _named(module: nn.Module, path: str) -> str:
    kind = type(module.get_submodule(path)).__name__
    return f"module {path!r} ({kind})" if path else f"the forward of {kind} itself"


def _advice(model: StreamedModel, culprit: nn.Module, sources: Sources) -> str:
    if isinstance(culprit, LeanLayer) and model.passes_state and not culprit.bidirectional:
        return (
            f"pass the states of all layers through the argument {model.signature.state!r}, or drop it and let lean "
            "layers carry their own: beside a state that the forward passes they carry none"
        )
    known = _known_advice(culprit)
    if known is not None:
        return known
    if sources.python or sources.numpy:
        where = "the module random" if sources.python else "numpy.random"
        return f"draw with torch's functions: numbers from {where} for each step may be all that differs; {_WHOLE}"
    advice = f"use lowtide.nn.Pool for one vector a sequence, carry_in and carry_out in modules of your own, {_WHOLE}"
    if len(model.signature.states) > 1:
        together = " and ".join(model.signature.states)
        advice = (
            f"take {together} as one argument, state=None, and return (outputs, state): {model.signature.text} "
            f"cannot be given several; or {advice}"
        )
    return advice


def _known_advice(culprit: nn.Module, *, otherwise: str = f", {_WHOLE}") -> str | None:
    if isinstance(culprit, nn.RNNBase) and not isinstance(culprit, LeanLayer):
        return "make its layers lean first, lowtide.lean(model): stock layers know neither lengths nor carried states"
    if isinstance(culprit, nn.RNNBase) and culprit.bidirectional:
        return f"use a unidirectional layer{otherwise}"
    if isinstance(culprit, (_BatchNorm, _InstanceNorm, nn.GroupNorm)):
        return f"normalise each step by itself with torch.nn.LayerNorm{otherwise}"
    if isinstance(culprit, _ConvNd) and not isinstance(culprit, CausalConv1d):
        return f"use lowtide.nn.CausalConv1d, which looks to the left only{otherwise}"
    return None
