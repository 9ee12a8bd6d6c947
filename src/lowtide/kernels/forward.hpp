// The forward pass of one layer over a chunk of steps.
//
// For each block of a few steps the inputs' product is made for all rows at once; then, step by step, the hidden
// state's product is added and the cell applied.
#pragma once

#include "workspace.hpp"

namespace {

using lowtide::team_barrier;

// Rows [begin, end) of a group's block, copied side by side, dropout applied.
template <class Cell>
void gather_inputs(const Layer<Cell>& layer, const Group& group, int64_t s0, int64_t s1, int64_t begin, int64_t end,
                   typename Cell::Real* to, int64_t stride) {
  using Real = typename Cell::Real;
  for_rows(layer.when, group, s0, s1, begin, end, [&](int64_t r, int64_t s, int64_t b) {
    const int64_t t = layer.when.time(s);
    const Real* from = row_at<Real>(layer.in, t, b);
    Real* row = to + r * stride;
    copy(row, from, layer.inputs);
    if (!layer.dropout.bits) return;
    const int64_t place = layer.when.compact(t) + b;
    for (int64_t k = 0; k < layer.inputs; k++) row[k] *= layer.dropout.factor(place, k);
  });
}

// tiles [P][rows] = bias + inputs * wx, for the group's panels.
template <class Cell>
void multiply_inputs(const Layer<Cell>& layer, const Group& group, int64_t rows, const typename Cell::Real* inputs,
                     int64_t stride, typename Cell::Real* tiles) {
  using Real = typename Cell::Real;
  using LayerT = Layer<Cell>;
  for (int64_t p = group.p0; p < group.p1; p++) {
    Real* tile = tiles + p * rows * LayerT::tile_width;
    for (int64_t r = 0; r < rows; r++)
      copy(tile + r * LayerT::tile_width, layer.bias + p * LayerT::tile_width, LayerT::tile_width);
    const Real* weights = layer.wx + p * layer.x_depth * LayerT::x_width;
    for (int64_t k = 0; k < layer.inputs; k += Blocking<Real>::depth)
      multiply_tile<Real, Cell::x_vectors>(rows, Left<Real>{inputs + k, stride, 1, 0},
                                           Right<Real>{weights + k * LayerT::x_width, LayerT::x_width, 0},
                                           smaller(Blocking<Real>::depth, layer.inputs - k), 1,
                                           tile + Cell::x_first * LayerT::L, LayerT::tile_width);
  }
}

// One step of a group: tiles are those of the step's first row in the group's first panel counted from zero.
template <class Cell>
void forward_step(const Layer<Cell>& layer, const Group& group, int64_t s, int64_t rows, typename Cell::Real* tiles,
                  int64_t panel_stride, const KeptGates<typename Cell::Real>& kept) {
  using Real = typename Cell::Real;
  using LayerT = Layer<Cell>;
  const Real* h = layer.h[s & 1] + group.b0 * layer.h_stride;
  Real* h_next = layer.h[(s + 1) & 1] + group.b0 * layer.h_stride;
  const int64_t t = layer.when.time(s);
  for (int64_t p = group.p0; p < group.p1; p++) {
    Real* tile = tiles + p * panel_stride;
    const Real* weights = layer.wh + p * layer.h_depth * LayerT::h_width;
    for (int64_t k = 0; k < layer.hidden; k += Blocking<Real>::depth)
      multiply_tile<Real, Cell::h_vectors>(rows, Left<Real>{h + k, layer.h_stride, 1, 0},
                                           Right<Real>{weights + k * LayerT::h_width, LayerT::h_width, 0},
                                           smaller(Blocking<Real>::depth, layer.hidden - k), 1,
                                           tile + Cell::h_first * LayerT::L, LayerT::tile_width);
    const int64_t unit = p * LayerT::panel_units, units = layer.units_of(p);
    Real* kept_row = nullptr;
    if (kept.base && Cell::kept)
      kept_row = kept.base + (p * kept.capacity + layer.when.start(s) - kept.origin + group.b0) * Cell::kept * LayerT::L;
    for (int64_t k = 0; k < rows; k++) {
      Real* next = h_next + k * layer.h_stride + unit;
      Cell::forward(tile + k * LayerT::tile_width, layer.c_row(layer.c, p, group.b0 + k), h + k * layer.h_stride + unit,
                    next, kept_row ? kept_row + k * Cell::kept * LayerT::L : nullptr);
      Real* y = row_at<Real>(layer.out, t, group.b0 + k) + unit;
      if (units == LayerT::panel_units)
        copy(y, next, LayerT::panel_units);
      else
        copy(y, next, units);
    }
  }
}

// Sequences of the group that end with step s leave their final states.
template <class Cell>
void finish_sequences(const Layer<Cell>& layer, const Group& group, int64_t s) {
  const int64_t now = group.b0 + group.rows(layer.when, s);
  const int64_t left = s + 1 < layer.when.steps ? smaller(group.b0 + group.rows(layer.when, s + 1), now) : group.b0;
  if (left == now) return;
  if (layer.call->hT) layer.write_h(group.p0, group.p1, left, now, layer.h[(s + 1) & 1], layer.call->hT);
  if (Cell::has_c && layer.call->cT) layer.write_c(group.p0, group.p1, left, now, layer.c, layer.call->cT);
}

// Steps [s0, s1). A barrier must follow before another layer or chunk.
template <class Cell>
void forward_chunk(const Layer<Cell>& layer, const Workspace<Cell>& work, Member me, int64_t s0, int64_t s1,
                   const KeptGates<typename Cell::Real>& kept) {
  using Real = typename Cell::Real;
  using LayerT = Layer<Cell>;
  const Group group = group_of(layer, me, s0, s1);
  for (int64_t from = s0; from < s1; from += work.block_steps) {
    const int64_t to = smaller(from + work.block_steps, s1);
    const int64_t rows = rows_below(layer.when, from, to, group.b1) - rows_below(layer.when, from, to, group.b0);
    // Each group's own part, the same for every block: groups do not wait for each other between blocks.
    Real* tiles = work.tiles + group.b0 * work.block_steps * layer.panels * LayerT::tile_width;
    Real* inputs = work.inputs + group.b0 * work.block_steps * work.input_stride;
    const Share gathered(rows, group.by_units ? me.id : 0, group.by_units ? me.count : 1);
    gather_inputs(layer, group, from, to, gathered.begin, gathered.end, inputs, work.input_stride);
    if (group.by_units) team_barrier(me);
    multiply_inputs(layer, group, rows, inputs, work.input_stride, tiles);
    int64_t row = 0;
    for (int64_t s = from; s < to; s++) {
      const int64_t n = group.rows(layer.when, s);
      if (n > 0) {
        forward_step(layer, group, s, n, tiles + row * LayerT::tile_width, rows * LayerT::tile_width, kept);
        finish_sequences(layer, group, s);
      }
      row += n;
      if (group.by_units) team_barrier(me);
    }
  }
}

}  // namespace
