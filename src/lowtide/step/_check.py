"""Whether a model may be run in chunks, and with padding: it is tried on a few steps of the data, both ways.

A model that mixes time in a way that chunks cannot see (a bidirectional layer, attention, BatchNorm over time, a
symmetric convolution) would train wrongly without a word, and so would one that takes padding for data. So at first use
a few steps run through the model whole and in chunks, and where lengths are given with more padding behind, and outputs
and gradients are compared. Where they differ, the first module whose outputs differ is named. Dropout is switched off
meanwhile; buffers, generators and training flags are as before afterwards, and no gradient is left behind.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from lowtide.errors import LowtideError
from lowtide.nn._carry import Carry
from lowtide.nn._layer import LeanLayer
from lowtide.nn.causal_conv import CausalConv1d
from lowtide.step._model import StreamedModel
from lowtide.step._randomness import Generators
from lowtide.step._sequence import Data, map_leaves
from lowtide.step._trace import Trace, agree, floating, joined, recorded

SAMPLE_STEPS = 12
SAMPLE_BATCH = 2
_CUTS = (0, 5, 9, SAMPLE_STEPS)
"""Chunks of different lengths, so that no axis is mistaken for that of time."""
_PADDING = 3
"""Steps of padding added behind the sample."""


@dataclass(frozen=True)
class Sample:
    """A short batch of the data: SAMPLE_STEPS steps, repeated where there were fewer."""

    inputs: Data
    batch: int
    lengths: Tensor | None
    """Where the batch has lengths: some of the sample's own."""
    time_axis: int


@dataclass(frozen=True)
class Run:
    """One run of the model on the sample."""

    outputs: list[Tensor]
    trace: Trace


def check_streamable(model: StreamedModel, sample: Sample, generators: Generators) -> bool:
    """Refuse a model that chunks or padding would mislead; return whether it gives one output a step.

    Raises:
        LowtideError: It names the module that mixes time, or that takes padding for data.
    """
    module = model.module
    state = generators.state()
    with _undisturbed(module), torch.enable_grad(), torch.autocast(_device_type(sample), enabled=False):
        _settle(model, sample, generators)
        whole = _whole(model, sample, sample.lengths)
        chunked = _in_chunks(model, sample)
        per_step = _compare_chunks(module, whole, chunked)
        if sample.lengths is not None:
            _compare_padding(module, sample, whole, _whole(model, _padded(sample), sample.lengths))
    generators.restore(state)
    return per_step


# ---- runs ------------------------------------------------------------------------------------------------------------


def _settle(model: StreamedModel, sample: Sample, generators: Generators) -> None:
    """Find out how the forward treats states, and silence a model that draws numbers of its own."""
    _whole(model, sample, sample.lengths)
    before = generators.state()
    _whole(model, sample, sample.lengths)
    if not generators.stand_at(before):
        model.module.eval()


def _whole(model: StreamedModel, sample: Sample, lengths: Tensor | None) -> Run:
    steps = _steps(sample)
    if lengths is None and sample.lengths is not None:
        lengths = sample.lengths
    with recorded(model.module) as trace:
        result = model.run(sample.inputs, Carry({}), steps=steps, batch=sample.batch, lengths=lengths)
    return Run(floating(result.outputs), trace)


def _in_chunks(model: StreamedModel, sample: Sample) -> list[Run]:
    runs, carry = [], Carry({})
    for start, stop in itertools.pairwise(_CUTS):
        part = map_leaves(lambda leaf: leaf.narrow(sample.time_axis, start, stop - start), sample.inputs)  # noqa: B023 - used at once
        lengths = None if sample.lengths is None else (sample.lengths - start).clamp(0, stop - start)
        with recorded(model.module) as trace:
            try:
                result = model.run(part, carry, steps=stop - start, batch=sample.batch, lengths=lengths)
            except (RuntimeError, ValueError, IndexError) as error:
                raise LowtideError(
                    what=f"the model takes {SAMPLE_STEPS} steps at once, but not {stop - start} of them: {error}",
                    why="a stream runs the model on one chunk of time after another",
                    fix="use layers that take any number of steps and give as many back",
                ) from error
        runs.append(Run(floating(result.outputs), trace))
        carry = Carry(result.leaving)
    return runs


def _padded(sample: Sample) -> Sample:
    """The same sequences with other padding, and more of it."""
    assert sample.lengths is not None

    def pad(leaf: Tensor) -> Tensor:
        axis, steps = sample.time_axis, SAMPLE_STEPS
        longer = torch.cat([leaf, leaf.narrow(axis, 0, _PADDING)], axis)
        other = longer.flip(axis)
        valid = torch.arange(steps + _PADDING)[:, None] < sample.lengths  # type: ignore[operator]
        valid = valid if axis == 0 else valid.T
        valid = valid.view(*valid.shape, *(1 for _ in leaf.shape[2:])).to(leaf.device)
        return torch.where(valid, longer, other)

    return Sample(map_leaves(pad, sample.inputs), sample.batch, sample.lengths, sample.time_axis)


def _steps(sample: Sample) -> int:
    sizes: list[int] = []
    map_leaves(lambda leaf: sizes.append(leaf.shape[sample.time_axis]), sample.inputs)
    return sizes[0]


# ---- comparisons -----------------------------------------------------------------------------------------------------


def _compare_chunks(module: nn.Module, whole: Run, chunked: Sequence[Run]) -> bool:
    """Raise where chunks make a difference; return whether any output has an axis of time."""
    pairs = _side_by_side(whole.outputs, [run.outputs for run in chunked])
    if pairs is None or not all(agree(ours, theirs) for ours, theirs, _ in pairs):
        path = _first_difference(whole.trace, lambda key, side: _chunks_agree(key, side, whole, chunked))
        raise _refusal(module, path, "gives other outputs in chunks than over the whole sequence")
    named = _first_gradient_difference(module, [one for one, _, _ in pairs], [other for _, other, _ in pairs])
    if named is not None:
        raise _refusal(module, named, "has other gradients in chunks than over the whole sequence")
    return any(time_axis is not None for _, _, time_axis in pairs)


def _side_by_side(
    whole: Sequence[Tensor], chunks: Sequence[Sequence[Tensor]]
) -> list[tuple[Tensor, Tensor, int | None]] | None:
    """Each tensor, the chunks' put together, and its axis of time; None where they do not fit together."""
    pairs = []
    for number, ours in enumerate(whole):
        theirs = joined(ours, [chunk[number] for chunk in chunks if number < len(chunk)])
        if theirs is None:
            return None
        pairs.append((ours, *theirs))
    return pairs


def _chunks_agree(key: tuple[str, int], side: int, whole: Run, chunked: Sequence[Run]) -> bool:
    parts = [run.trace[key][side] for run in chunked if key in run.trace]
    if len(parts) < len(chunked):
        return True  # a call that some chunks do without: its caller answers for it
    pairs = _side_by_side(whole.trace[key][side], parts)
    return pairs is not None and all(agree(ours, theirs) for ours, theirs, _ in pairs)


_INPUTS, _OUTPUTS = 0, 1


def _first_difference(trace: Trace, agrees: Callable[[tuple[str, int], int], bool]) -> str:
    """The path of the first module whose outputs differ; of the one around it where its inputs differ already."""
    for key in trace:
        if not agrees(key, _OUTPUTS):
            return key[0] if agrees(key, _INPUTS) else key[0].rpartition(".")[0]
    return ""


def _first_gradient_difference(module: nn.Module, ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> str | None:
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    cotangents = [torch.rand_like(tensor.detach()) for tensor in ours]
    gradients = [_gradients(tensors, cotangents, [one for _, one in named]) for tensors in (ours, theirs)]
    for (name, _), one, other in zip(named, *gradients, strict=True):
        if (one is None) != (other is None) or (one is not None and other is not None and not _as_one(one, other)):
            return str(name).rpartition(".")[0]
    return None


def _as_one(one: Tensor, other: Tensor) -> bool:
    dense = [gradient.to_dense() if gradient.is_sparse else gradient for gradient in (one, other)]
    return agree(*dense)


def _gradients(
    tensors: Sequence[Tensor], cotangents: Sequence[Tensor], parameters: Sequence[nn.Parameter]
) -> list[Tensor | None]:
    pairs = [(one, other) for one, other in zip(tensors, cotangents, strict=True) if one.requires_grad]
    if not pairs or not parameters:
        return [None] * len(parameters)
    roots, seeds = zip(*pairs, strict=True)
    try:
        return list(torch.autograd.grad(roots, parameters, seeds, retain_graph=True, allow_unused=True))
    except RuntimeError as error:
        raise LowtideError(
            what=f"the backward pass of the model fails in a stream: {str(error).splitlines()[0]}",
            why="what torch.utils.checkpoint computes again there knows no carried states",
            fix="leave out the checkpointing around layers that carry states: a stream keeps one chunk's graph alone",
        ) from error


def _compare_padding(module: nn.Module, sample: Sample, bare: Run, padded: Run) -> None:
    def agrees(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
        pairs = [_valid_parts(one, other, sample) for one, other in zip(ours, theirs, strict=False)]
        return all(pair is not None and agree(*pair) for pair in pairs)

    if not agrees(bare.outputs, padded.outputs):
        path = _first_difference(
            bare.trace,
            lambda key, side: key not in padded.trace or agrees(bare.trace[key][side], padded.trace[key][side]),
        )
        raise _refusal(module, path, "gives a sequence other outputs when padding is added behind it")
    pairs = [_valid_parts(one, other, sample) for one, other in zip(bare.outputs, padded.outputs, strict=True)]
    valid = [pair for pair in pairs if pair is not None]
    named = _first_gradient_difference(module, [one for one, _ in valid], [other for _, other in valid])
    if named is not None:
        raise _refusal(module, named, "has other gradients when padding is added behind a sequence")


def _valid_parts(bare: Tensor, padded: Tensor, sample: Sample) -> tuple[Tensor, Tensor] | None:
    """The same steps of the same sequences in both, where steps are there at all; None where shapes do not fit."""
    assert sample.lengths is not None
    if bare.shape == padded.shape:
        return bare, padded
    if bare.dim() != padded.dim():
        return None
    axes = [axis for axis, (one, other) in enumerate(zip(bare.shape, padded.shape, strict=True)) if one != other]
    if len(axes) != 1 or (bare.shape[axes[0]], padded.shape[axes[0]]) != (SAMPLE_STEPS, SAMPLE_STEPS + _PADDING):
        return None
    (time,) = axes
    padded = padded.narrow(time, 0, SAMPLE_STEPS)
    batch = next((axis for axis in range(bare.dim()) if axis != time and bare.shape[axis] == sample.batch), None)
    if batch is None:
        return bare, padded
    valid = (torch.arange(SAMPLE_STEPS)[:, None] < sample.lengths).to(bare.device)
    return bare.movedim((time, batch), (0, 1))[valid], padded.movedim((time, batch), (0, 1))[valid]


# ---- refusals --------------------------------------------------------------------------------------------------------


def _refusal(module: nn.Module, path: str, what: str) -> LowtideError:
    culprit = module.get_submodule(path)
    where = f"module {path!r} ({type(culprit).__name__})" if path else f"the forward of {type(culprit).__name__} itself"
    padding = "padding" in what
    why = "trained that way, padding would be learned from" if padding else "chunk by chunk it would train wrongly"
    return LowtideError(what=f"{where} {what}", why=why, fix=_advice(culprit, padding=padding))


def _advice(culprit: nn.Module, *, padding: bool) -> str:
    whole = 'or train without streaming: lowtide.lean(model, keep="outputs") and micro-batches'
    if isinstance(culprit, nn.RNNBase) and not isinstance(culprit, LeanLayer):
        return "make its layers lean first, lowtide.lean(model): stock layers know neither lengths nor carried states"
    if isinstance(culprit, nn.RNNBase) and culprit.bidirectional:
        return f"use a unidirectional layer, {whole}"
    if isinstance(culprit, (_BatchNorm, _InstanceNorm, nn.GroupNorm)):
        return f"normalise each step by itself with torch.nn.LayerNorm, {whole}"
    if isinstance(culprit, _ConvNd) and not isinstance(culprit, CausalConv1d):
        return f"use lowtide.nn.CausalConv1d, which looks to the left only, {whole}"
    if padding:
        return "use layers that know lengths (lowtide.nn), and lowtide.nn.Pool for one vector a sequence"
    return f"use lowtide.nn.Pool for one vector a sequence, carry_in and carry_out in modules of your own, {whole}"


# ---- surroundings ----------------------------------------------------------------------------------------------------


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Switch dropout off, and put everything back afterwards."""
    training = {module: module.training for module in model.modules()}
    buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    dropouts = {layer: layer.dropout for layer in model.modules() if isinstance(layer, nn.RNNBase)}
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.training = False
        if isinstance(module, nn.RNNBase):
            module.dropout = 0.0
    try:
        yield
    finally:
        for module, flag in training.items():
            module.training = flag
        for layer, dropout in dropouts.items():
            layer.dropout = dropout
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])


def _device_type(sample: Sample) -> str:
    found: list[str] = []
    map_leaves(lambda leaf: found.append(leaf.device.type), sample.inputs)
    return found[0]
