"""What the lean LSTM, GRU and RNN share: a forward pass that goes through `run_stack` instead of torch's own loop.

Everything else, from parameters to pickling, is inherited from the stock layer. The options have defaults on the
class, so that a layer whose class was set from outside (`lean`, or a checkpoint from before an option existed) works.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from lowtide.errors import LowtideError
from lowtide.nn._arguments import StackArguments, States, is_one_sequence, read_arguments, weight_shapes
from lowtide.nn._context import BatchContext, carry_in, carry_out, current_context
from lowtide.nn._dynamo import allow_in_dynamo
from lowtide.nn._lengths import Lengths, checked_lengths
from lowtide.nn._options import check_steps, checked_keep
from lowtide.nn._precision import Precision, autocast_dtype, choose_precision
from lowtide.ops.functorch import is_transforming
from lowtide.ops.spec import Cell, Keep, StackSpec
from lowtide.ops.stack import run_stack

_CELLS: dict[str, Cell] = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}


class LeanLayer(torch.nn.RNNBase):
    """The forward pass and the options of a lean layer, mixed in before its stock parent."""

    stock_class: ClassVar[type[torch.nn.RNNBase]]
    """The class that `lowtide.stock` puts back."""

    keep: Keep = "outputs"
    chunk_steps: int = 0
    state_steps: int = 0

    def set_options(self, keep: str, chunk_steps: int, state_steps: int) -> None:
        """Check and store what goes beyond the stock layer, and open the layer to torch.compile."""
        self.keep = checked_keep(keep)
        check_steps(chunk_steps, state_steps)
        self.chunk_steps = chunk_steps
        self.state_steps = state_steps
        allow_in_dynamo()

    def run(self, inputs: Tensor | PackedSequence, hx: States | None, lengths: Lengths | None) -> Any:  # noqa: ANN401 - as many forms as the stock forward
        """Compute what the stock layer computes; `lengths` are those of a padded batch."""
        _refuse_lengths_where_unknown(inputs, lengths)
        if _is_torchs_alone():
            return super().forward(inputs, hx)
        context = current_context()
        spec = self._spec(context)
        arguments = read_arguments(spec, inputs, hx, self._weights_by_name(), batch_first=self.batch_first)
        precision = None if arguments is None else _precision_for(spec, arguments)
        if arguments is None or precision is None:
            self._refuse_misshapen_weights(spec)
            return self._leave_to_torch(inputs, hx, lengths)
        return self._run_in_order(spec, inputs, arguments, precision, lengths, context)

    def extra_repr(self) -> str:
        """Describe the stock layer and what this one keeps."""
        text = f"{super().extra_repr()}, keep={self.keep!r}"
        if self.keep == "boundaries" and self.bidirectional:
            text += " (equals 'outputs': bidirectional)"
        elif self.keep == "boundaries" and self.num_layers == 1:
            text += " (equals 'outputs': single layer)"
        for name, steps in (("chunk_steps", self.chunk_steps), ("state_steps", self.state_steps)):
            if steps:
                text += f", {name}={steps}"
        return text

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        allow_in_dynamo()

    def __prepare_scriptable__(self) -> torch.nn.Module:
        raise LowtideError(
            what=f"torch.jit.script cannot compile {type(self).__name__}, a lean layer.",
            why="TorchScript has no notion of operators that recompute in their backward pass.",
            fix="Script the stock model, torch.jit.script(lowtide.stock(model)); lowtide.lean(model) leads back.",
        )

    def _spec(self, context: BatchContext) -> StackSpec:
        return StackSpec(
            cell=_CELLS[self.mode],
            input_size=self.input_size,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            bias=self.bias,
            bidirectional=self.bidirectional,
            batch_first=self.batch_first,
            proj_size=self.proj_size,
            dropout=self.dropout if self.training and self.num_layers > 1 else 0.0,
            keep=context.keep or checked_keep(self.keep),
            chunk_steps=self.chunk_steps,
            state_steps=self.state_steps,
        )

    def _weights_by_name(self) -> list[Tensor]:
        # Not from _flat_weights: it goes stale under parametrizations, which compute a weight when it is asked for.
        weights = [getattr(self, name, None) for names in self._all_weights for name in names]
        return [weight for weight in weights if isinstance(weight, Tensor)]

    def _refuse_misshapen_weights(self, spec: StackSpec) -> None:
        """Refuse what torch's fused LSTM does not look at: it would read past the end of such a weight."""
        if not spec.has_cell_state:
            return
        for name, shape in zip(self._flat_weights_names, weight_shapes(spec), strict=True):
            weight = getattr(self, name, None)
            if isinstance(weight, Tensor) and weight.shape != shape:
                raise LowtideError(
                    what=f"{name} has shape {tuple(weight.shape)}, not {shape}.",
                    why="A layer computes with weights of the sizes that it was constructed with.",
                    fix=f"Assign a parameter of shape {shape}, or construct a layer of other sizes.",
                )

    def _leave_to_torch(self, inputs: Tensor | PackedSequence, hx: States | None, lengths: Lengths | None) -> Any:  # noqa: ANN401 - as many forms as the stock forward
        results = super().forward(inputs, hx)
        if lengths is not None and isinstance(inputs, Tensor) and inputs.numel() > 0:
            raise LowtideError(
                what=f"lengths was given with a {inputs.dtype} input on {inputs.device}.",
                why="Only torch's own layer computes with these, and it takes no lengths.",
                fix="Pass the batch as a PackedSequence.",
            )
        return results

    def _run_in_order(
        self,
        spec: StackSpec,
        inputs: Tensor | PackedSequence,
        arguments: StackArguments,
        precision: Precision,
        lengths: Lengths | None,
        context: BatchContext,
    ) -> Any:  # noqa: ANN401 - as many forms as the stock forward
        checked = None
        if lengths is not None:
            checked = checked_lengths(lengths, sequences=arguments.sequences, steps=arguments.steps)
        elif arguments.batch_sizes is None:
            checked = context.lengths_of(arguments.steps, arguments.sequences)
        # A whole direction lies to the right of any chunk, so a bidirectional layer has nothing to carry.
        carries = context.streams and not context.passes_state and not self.bidirectional
        states = tuple(state.to(precision.compute) for state in arguments.states)
        if carries:
            states = self._taken_up(inputs, states or _no_states(spec, arguments, precision.compute))
        with _without_autocast(arguments.data.device):
            outputs, h, c = run_stack(
                spec,
                arguments.data.to(precision.compute),
                states[0] if states else None,
                states[1] if spec.has_cell_state and states else None,
                [weight.to(precision.compute) for weight in arguments.weights],
                batch_sizes=arguments.batch_sizes,
                lengths=checked,
            )
        given = self._outputs_as_given(outputs.to(precision.outputs), inputs)
        h, c = _state_as_given(h, inputs), None if c is None else _state_as_given(c, inputs)
        if carries:
            carry_out(self, (h,) if c is None else (h, c))
        return given, h.to(precision.h) if c is None else (h.to(precision.h), c.to(precision.c))

    def _taken_up(self, inputs: Tensor | PackedSequence, initial: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The states that the chunk before left, in the order of the data; the initial ones at the first chunk."""
        order = inputs.sorted_indices if isinstance(inputs, PackedSequence) else None
        if order is None:
            return carry_in(self, initial, batch_axis=1)
        own = tuple(state.index_select(1, order.argsort()) for state in initial)
        return tuple(state.index_select(1, order) for state in carry_in(self, own, batch_axis=1))

    def _outputs_as_given(self, outputs: Tensor, inputs: Tensor | PackedSequence) -> Tensor | PackedSequence:
        if isinstance(inputs, PackedSequence):
            return PackedSequence(outputs, inputs.batch_sizes, inputs.sorted_indices, inputs.unsorted_indices)
        if is_one_sequence(inputs):
            return outputs.squeeze(1)
        return outputs.transpose(0, 1) if self.batch_first else outputs


def _state_as_given(state: Tensor, inputs: Tensor | PackedSequence) -> Tensor:
    if isinstance(inputs, PackedSequence):
        order = inputs.unsorted_indices
        return state if order is None else state.index_select(1, order)
    return state.squeeze(1) if is_one_sequence(inputs) else state


def _no_states(spec: StackSpec, arguments: StackArguments, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """What a unidirectional stack begins with where it is given no states."""
    sizes = (spec.state_size, spec.hidden_size) if spec.has_cell_state else (spec.state_size,)
    shapes = [(spec.num_layers, arguments.sequences, size) for size in sizes]
    return tuple(torch.zeros(shape, dtype=dtype, device=arguments.data.device) for shape in shapes)


def _precision_for(spec: StackSpec, arguments: StackArguments) -> Precision | None:
    packed = arguments.batch_sizes is not None
    return choose_precision(spec, arguments.data, arguments.states, arguments.weights, packed=packed)


def _without_autocast(device: torch.device) -> AbstractContextManager[None]:
    return nullcontext() if autocast_dtype(device) is None else torch.autocast(device.type, enabled=False)


def _is_torchs_alone() -> bool:
    """Whether only the stock operators will do: in a trace, which must run where Lowtide is not, and in torch.func."""
    return _is_tracing() or (not torch.compiler.is_compiling() and is_transforming())


def _is_tracing() -> bool:
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def _refuse_lengths_where_unknown(inputs: Tensor | PackedSequence, lengths: Lengths | None) -> None:
    if lengths is None:
        return
    if isinstance(inputs, PackedSequence):
        raise LowtideError(
            what="lengths was given together with a PackedSequence.",
            why="A PackedSequence holds the length of each sequence itself, and two answers could differ.",
            fix="Pass the PackedSequence alone, or the padded batch with its lengths.",
        )
    if _is_torchs_alone():
        raise LowtideError(
            what=f"{'torch.jit.trace' if _is_tracing() else 'torch.func'} reached a lean layer called with lengths.",
            why="A trace records, and torch.func transforms, torch's own layer, which takes no lengths.",
            fix="Pass a PackedSequence in the model that is traced or transformed.",
        )
