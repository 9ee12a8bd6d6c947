// Scratch that all layers share in turn, and how large the blocks of a chunk are.
//
// Legend: chunk rows R <= chunk_steps * B.
#pragma once

#include "layer.hpp"

namespace {

template <class Real>
struct Blocking {
  // Forward: the tiles of a block of steps stay in the second-level cache between the inputs' product and the cell.
  static constexpr int64_t tile_bytes = 256 << 10;
  // Depth of a product block: its packed weights stay in the second-level cache over all rows. Shallower blocks, in the
  // first level, lose more by loading and storing the sums again (measured: 64 costs 6 %, 128 costs 2 %).
  static constexpr int64_t depth = 256;
  // Rows of a block of the weight gradients, and of the input gradients.
  static constexpr int64_t sum_rows = 256;
  static constexpr int64_t input_rows = 48;
};

// Kept gates of some rows: [P][capacity][kept vectors], the first row being number `origin` in processing order.
template <class Real>
struct KeptGates {
  Real* base = nullptr;  // null: not kept
  int64_t capacity = 0, origin = 0;
};

template <class Cell>
struct Workspace {
  using Real = typename Cell::Real;
  using LayerT = Layer<Cell>;

  int64_t capacity;     // rows of a chunk
  int64_t block_steps;  // forward: steps whose input products are made at once
  int64_t block_rows;
  int64_t input_stride; // of a gathered input row
  Real* tiles;          // forward: [P][block rows][tile], for each group
  Real* inputs;         // forward: [block rows][input_stride]
  Real* features = nullptr;  // backward: gathered x, then h before the step: [x panels + h panels][R][16]
  Real* gates = nullptr;     // backward: [P][R][tile]: gates, then their gradients
  Real* cells = nullptr;     // backward: [P][R][panel units]: c after each row
  Real* first_c = nullptr;   // backward: [P][B][panel units]: c before the chunk
  Real* d_inputs = nullptr;  // backward: [members][input_rows][input_stride]

  void shape(const LayerT& widest, int64_t chunk_steps) {
    capacity = chunk_steps * widest.batch;
    const int64_t row_bytes = widest.panels * LayerT::tile_width * (int64_t)sizeof(Real);
    block_steps = larger(1, smaller(chunk_steps, Blocking<Real>::tile_bytes / (row_bytes * widest.batch)));
    block_rows = block_steps * widest.batch;
    input_stride = round_up(widest.inputs, LayerT::columns) + 16;
  }

  void place_forward(Arena& arena, const LayerT& widest) {
    tiles = arena.take<Real>(widest.panels * block_rows * LayerT::tile_width);
    inputs = arena.take<Real>(block_rows * input_stride);
  }

  void place_backward(Arena& arena, const LayerT& widest, int64_t threads) {
    features = arena.take<Real>((widest.x_panels + widest.h_panels) * capacity * panel_features);
    gates = arena.take<Real>(widest.panels * capacity * LayerT::tile_width);
    if (Cell::has_c) {
      cells = arena.take<Real>(widest.panels * capacity * LayerT::panel_units);
      first_c = arena.take<Real>(widest.c_elements());
    }
    d_inputs = arena.take<Real>(threads * Blocking<Real>::input_rows * input_stride);
  }
};

// Whether a chunk's sequential phase is split by units rather than by sequences: with few sequences for each thread
// and weights that exceed a core's own cache, half the weights on each core beat half the rows.
template <class Cell>
bool split_by_units(const Layer<Cell>& layer, int64_t rows, int count) {
  if (count == 1 || layer.column_panels(layer.hidden) < count) return false;
  const int64_t weight_bytes = layer.panels * layer.h_depth * Layer<Cell>::h_width * (int64_t)sizeof(typename Cell::Real);
  if (rows < count) return weight_bytes > (256 << 10);
  return weight_bytes > (1 << 20) && rows <= 12 * count;
}

// The part of steps [s0, s1) that `me` runs through one after the other.
template <class Cell>
Group group_of(const Layer<Cell>& layer, Member me, int64_t s0, int64_t s1) {
  const Schedule& when = layer.when;
  const int64_t most = larger(when.rows(s0), when.rows(s1 - 1));
  if (split_by_units(layer, most, me.count)) {
    // whole column panels, so that each member needs only the dh that it makes itself
    constexpr int64_t panels_a_column = column_vectors / Cell::unit_vectors;
    const Share mine(layer.column_panels(layer.hidden), me.id, me.count);
    return {0, layer.batch, mine.begin * panels_a_column, smaller(mine.end * panels_a_column, layer.panels), true};
  }
  return {first_sequence(when, s0, s1, me.id, me.count), first_sequence(when, s0, s1, me.id + 1, me.count), 0,
          layer.panels, false};
}

}  // namespace
