"""Drop-in recurrent layers that keep little memory, and the switch that turns a model's stock layers into them."""

from lowtide.nn.gru import GRU
from lowtide.nn.lean import lean, stock
from lowtide.nn.lstm import LSTM
from lowtide.nn.rnn import RNN

__all__ = ["GRU", "LSTM", "RNN", "lean", "stock"]
