// What a caller asks of the kernels: plain data, shared by the binding and by every instruction set's code.
//
// Legend: T steps, B sequences, I inputs, H hidden units, L layers, D directions, R rows = (step, sequence) pairs.
// A *row* is one time step of one sequence. *Compact* storage holds valid rows only, time by time: for each step t
// the sequences 0 .. rows(t)-1, sequences sorted by falling length, so it equals a PackedSequence's data.
#pragma once

#include <stdint.h>

namespace lowtide {

enum class Cell : int { lstm, gru, rnn_tanh, rnn_relu };
enum class Keep : int { gates, outputs, boundaries };

// Where the features of (time t, sequence b) begin, in any of the layouts a caller may hold. Features are contiguous.
struct Rows {
  void* base = nullptr;                 // null: not given, or not wanted
  int64_t step_stride = 0;              // elements from one time step to the next, where step_start is null
  int64_t row_stride = 0;               // elements from one sequence to the next
  const int64_t* step_start = nullptr;  // [T + 1] rows before time t (compact storage)
  const int64_t* row_index = nullptr;   // [B] the place of sorted sequence b among the caller's
  int64_t origin = 0;                   // elements that are left out in front (a chunk's scratch)
};

// The order in which one direction visits its rows. Processing step s is time s, or T-1-s in reverse.
struct Schedule {
  int64_t steps = 0;                         // T
  int64_t batch = 0;                         // B
  bool reverse = false;
  const int64_t* rows_at_time = nullptr;     // [T] falling; null: always B
  const int64_t* start_at_time = nullptr;    // [T + 1] rows before time t; null: t * B
  const int64_t* start_at_step = nullptr;    // [T + 1] rows before processing step s; null: s * B

  int64_t time(int64_t s) const { return reverse ? steps - 1 - s : s; }
  int64_t rows(int64_t s) const { return rows_at_time ? rows_at_time[time(s)] : batch; }
  int64_t start(int64_t s) const { return start_at_step ? start_at_step[s] : s * batch; }
  int64_t compact(int64_t t) const { return start_at_time ? start_at_time[t] : t * batch; }
};

// One layer in one direction. All arrays are contiguous and in the call's real type.
struct LayerCall {
  const void* w_ih = nullptr;  // [G H][inputs], torch's gate order
  const void* w_hh = nullptr;  // [G H][H]
  const void* b_ih = nullptr;  // [G H] or null
  const void* b_hh = nullptr;  // [G H] or null
  const void* h0 = nullptr;    // [B][H], sorted sequences; null: zeros
  const void* c0 = nullptr;    // [B][H], LSTM only; null: zeros
  void* hT = nullptr;          // [B][H]
  void* cT = nullptr;          // [B][H], LSTM only
  const uint8_t* mask = nullptr;  // bits over the layer's compact input [R][inputs]: 1 keeps; null: no dropout
  void* states = nullptr;      // [T / state_steps, rounded up][state_elements]: c (and h under "boundaries")
  void* gates = nullptr;       // [gate_elements], keep "gates" only
  // backward
  const void* dhT = nullptr;   // [B][H] or null
  const void* dcT = nullptr;   // [B][H] or null
  void* dh0 = nullptr;         // [B][H] or null: not wanted; likewise below
  void* dc0 = nullptr;         // [B][H]
  void* dw_ih = nullptr;       // [G H][inputs]
  void* dw_hh = nullptr;       // [G H][H]
  void* db_ih = nullptr;       // [G H]
  void* db_hh = nullptr;       // [G H]
};

struct StackCall {
  Cell cell = Cell::lstm;
  Keep keep = Keep::outputs;
  bool is_double = false;
  int64_t steps = 0, batch = 0, inputs = 0, hidden = 0, layers = 1, directions = 1;
  int64_t total_rows = 0;              // R
  int64_t chunk_steps = 1;             // steps whose gates exist at once
  int64_t state_steps = 1;             // steps between kept states: a multiple of chunk_steps
  int64_t threads = 1;
  double dropout_scale = 1.0;          // what a kept element is multiplied by
  bool zero_padding = false;           // write zeros to y and dx where t lies past a sequence's end
  const int64_t* rows_at_time = nullptr;   // [T] or null, as in Schedule
  const int64_t* start_at_time = nullptr;  // [T + 1] or null
  const int64_t* start_at_step_reverse = nullptr;  // [T + 1] or null
  Rows x, y, dy, dx;
  void* inner = nullptr;               // compact outputs of layers 0 .. L-2: [L - 1][R][D H]; null under "boundaries"
  LayerCall* call = nullptr;           // [L * D]
};

// Elements of the buffers that the caller provides, for one layer and direction.
struct Sizes {
  int64_t state_elements = 0;  // of one kept state
  int64_t gate_elements = 0;   // of all kept gates
};

enum class Status : int { ok, no_memory };

// One instruction set's code.
struct KernelTable {
  const char* isa;
  Sizes (*sizes)(const StackCall&);
  Status (*forward)(const StackCall&);
  Status (*backward)(const StackCall&);
  void (*activate)(bool is_double, int function, const void* in, void* out, int64_t count);  // 0 sigmoid, 1 tanh
};

}  // namespace lowtide
