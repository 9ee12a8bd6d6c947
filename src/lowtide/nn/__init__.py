"""Drop-in recurrent layers that keep little memory, `lean`, which puts them into a model, and what goes with them.

That is, through long sequences: pooling, causal convolution, losses per step, states carried from chunk to chunk.
"""

from lowtide.nn import losses
from lowtide.nn._context import carry_in, carry_out, valid_lengths
from lowtide.nn.bucketed import bucketed
from lowtide.nn.causal_conv import CausalConv1d
from lowtide.nn.gru import GRU
from lowtide.nn.lean import lean, stock
from lowtide.nn.lstm import LSTM
from lowtide.nn.pool import Pool
from lowtide.nn.rnn import RNN

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "CausalConv1d",
    "Pool",
    "bucketed",
    "carry_in",
    "carry_out",
    "lean",
    "losses",
    "stock",
    "valid_lengths",
]
