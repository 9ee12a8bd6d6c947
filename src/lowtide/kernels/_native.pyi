"""Types of the compiled module; what each field means stands in problem.hpp and ragged.hpp. Addresses are integers."""

from enum import Enum

class Cell(Enum):
    lstm = 0
    gru = 1
    rnn_tanh = 2
    rnn_relu = 3

class Keep(Enum):
    gates = 0
    outputs = 1
    boundaries = 2

class Rows:
    base: int
    step_stride: int
    row_stride: int
    step_start: int
    row_index: int
    def __init__(self) -> None: ...

class LayerCall:
    w_ih: int
    w_hh: int
    b_ih: int
    b_hh: int
    h0: int
    c0: int
    hT: int  # noqa: N815 - as the literature writes it
    cT: int  # noqa: N815
    mask: int
    states: int
    gates: int
    dhT: int  # noqa: N815
    dcT: int  # noqa: N815
    dh0: int
    dc0: int
    dw_ih: int
    dw_hh: int
    db_ih: int
    db_hh: int

class Call:
    cell: Cell
    keep: Keep
    is_double: bool
    steps: int
    batch: int
    inputs: int
    hidden: int
    total_rows: int
    chunk_steps: int
    state_steps: int
    threads: int
    dropout_scale: float
    zero_padding: bool
    x: Rows
    y: Rows
    dy: Rows
    dx: Rows
    rows_at_time: int
    start_at_time: int
    start_at_step_reverse: int
    inner: int
    def __init__(self, layers: int, directions: int) -> None: ...
    def layer(self, index: int) -> LayerCall: ...

class PaddedSteps:
    base: int
    rows: int
    steps: int
    row_stride: int
    step_stride: int
    step_bytes: int
    def __init__(self) -> None: ...

def sizes(call: Call, isa: str = "") -> tuple[int, int]: ...
def forward(call: Call, isa: str = "") -> None: ...
def backward(call: Call, isa: str = "") -> None: ...
def activate(function: str, is_double: bool, source: int, target: int, count: int, isa: str = "") -> None: ...
def prefer_huge_pages(memory: int, size: int) -> None: ...
def copy_steps(tables: int, table_count: int, spans: int, span_count: int, out: PaddedSteps) -> int: ...
def clear_padding(lengths: int, out: PaddedSteps) -> None: ...
def isa() -> str: ...
def usable_isas() -> list[str]: ...
def adopt_openmp(library: str) -> bool: ...
def team_source() -> str: ...
