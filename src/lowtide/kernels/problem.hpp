// What a caller asks of the kernels: plain data, shared by the binding and by every instruction set's code.
//
// Legend: T steps, B sequences, I inputs, H hidden units, L layers, D directions, R rows = (step, sequence) pairs.
// A *row* is one time step of one sequence. *Compact* storage holds valid rows only, time by time: for each step t
// the sequences 0 .. rows(t)-1, sequences sorted by falling length, so it equals a PackedSequence's data.
//
// Plain members without initialisers, so that no constructor exists for the linker to share between instruction sets:
// who makes one of these writes {} behind it.
#pragma once

#include <stdint.h>

namespace lowtide {

enum class Cell : int { lstm, gru, rnn_tanh, rnn_relu };
enum class Keep : int { gates, outputs, boundaries };

// Where the features of (time t, sequence b) begin, in any of the layouts a caller may hold. Features are contiguous.
struct Rows {
  void* base;                 // null: not given, or not wanted
  int64_t step_stride;        // elements from one time step to the next, where step_start is null
  int64_t row_stride;         // elements from one sequence to the next
  const int64_t* step_start;  // [T + 1] rows before time t (compact storage)
  const int64_t* row_index;   // [B] the place of sorted sequence b among the caller's
  int64_t origin;             // elements that are left out in front (a chunk's scratch)
};

// One layer in one direction. All arrays are contiguous and in the call's real type.
struct LayerCall {
  const void* w_ih;     // [G H][inputs], torch's gate order
  const void* w_hh;     // [G H][H]
  const void* b_ih;     // [G H] or null
  const void* b_hh;     // [G H] or null
  const void* h0;       // [B][H], sorted sequences; null: zeros
  const void* c0;       // [B][H], LSTM only; null: zeros
  void* hT;             // [B][H]
  void* cT;             // [B][H], LSTM only
  const uint8_t* mask;  // bits over the layer's compact input [R][inputs]: 1 keeps; null: no dropout
  void* states;         // [T / state_steps, rounded up][state_elements]: c (and h under "boundaries")
  void* gates;          // [gate_elements], keep "gates" only
  // backward
  const void* dhT;  // [B][H] or null
  const void* dcT;  // [B][H] or null
  void* dh0;        // [B][H] or null: not wanted; likewise below
  void* dc0;        // [B][H]
  void* dw_ih;      // [G H][inputs]
  void* dw_hh;      // [G H][H]
  void* db_ih;      // [G H]
  void* db_hh;      // [G H]
};

struct StackCall {
  Cell cell;
  Keep keep;
  bool is_double;
  int64_t steps, batch, inputs, hidden, layers, directions;
  int64_t total_rows;   // R
  int64_t chunk_steps;  // steps whose gates exist at once
  int64_t state_steps;  // steps between kept states: a multiple of chunk_steps
  int64_t threads;
  double dropout_scale;                  // what a kept element is multiplied by
  bool zero_padding;                     // write zeros to y and dx where t lies past a sequence's end
  const int64_t* rows_at_time;           // [T] or null, as in Schedule
  const int64_t* start_at_time;          // [T + 1] or null
  const int64_t* start_at_step_reverse;  // [T + 1] or null
  Rows x, y, dy, dx;
  void* inner;      // compact outputs of layers 0 .. L-2: [L - 1][R][D H]; null under "boundaries"
  LayerCall* call;  // [L * D]
};

// Elements of the buffers that the caller provides, for one layer and direction.
struct Sizes {
  int64_t state_elements;  // of one kept state
  int64_t gate_elements;   // of all kept gates
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
