// One layer in one direction: its packed weights, its running state, its gradients, and where its rows lie.
//
// Legend: H hidden units lie in P panels of U (1 or 2) vectors of L units; the last panel is padded with zeros.
// A *tile* is what one row holds for one panel: the cell's gates side by side, one vector each (cell_*.hpp).
// wx, wh  weights for the forward products   [P][features rounded up to 16][part of the tile]
// bx, bh  the same for the backward products [column panel][P][part of the tile][columns of the panel]
#pragma once

#include "gemm.hpp"
#include "layout.hpp"

namespace {

using lowtide::LayerCall;

// Vectors side by side in a column panel of the backward weights.
constexpr int column_vectors = LOWTIDE_REGISTERS == 32 ? 4 : 2;

template <class Cell>
struct Layer {
  using Real = typename Cell::Real;
  static constexpr int L = lanes<Real>;
  static constexpr int panel_units = Cell::unit_vectors * L;
  static constexpr int tile_width = Cell::tile * L;
  static constexpr int x_width = Cell::x_vectors * L, h_width = Cell::h_vectors * L;
  static constexpr int columns = column_vectors * L;

  int64_t inputs, hidden, batch;
  Schedule when;
  const LayerCall* call;
  Rows in, out, d_out, d_in;
  Dropout<Real> dropout;       // of this layer's input
  bool wants_d_in = false;
  bool add_d_in = false;       // the other direction has already written d_in

  int64_t panels, x_depth, h_depth, h_stride, x_panels, h_panels;  // depths: multiples of panel_features

  Real *wx, *wh, *bias;        // bias [P][tile]
  Real *bx = nullptr, *bh = nullptr;
  Real* h[2];                  // [B][h_stride]: step s reads h[s & 1] and writes the other
  Real* c;                     // [P][B][panel_units]
  Real *dh = nullptr, *dc = nullptr;               // like h and c
  Real *dwx = nullptr, *dwh = nullptr, *dbias = nullptr;  // sums, laid out like wx, wh and bias

  void shape(int64_t input_features, int64_t hidden_units, int64_t sequences) {
    inputs = input_features;
    hidden = hidden_units;
    batch = sequences;
    panels = (hidden + panel_units - 1) / panel_units;
    x_depth = round_up(inputs, panel_features);
    h_depth = round_up(hidden, panel_features);
    x_panels = x_depth / panel_features;
    h_panels = h_depth / panel_features;
    // not a multiple of the cache's way size, or the rows of a block would fall on the same sets
    h_stride = round_up(panels * panel_units, columns) + 16;
  }

  int64_t c_elements() const { return Cell::has_c ? panels * batch * panel_units : 0; }
  int64_t h_elements() const { return batch * h_stride; }
  int64_t column_panels(int64_t features) const { return (features + columns - 1) / columns; }
  int64_t units_of(int64_t p) const { return smaller(panel_units, hidden - p * panel_units); }
  Real* c_row(Real* from, int64_t p, int64_t b) const { return from + (p * batch + b) * panel_units; }

  void place_forward(Arena& arena) {
    wx = arena.take<Real>(panels * x_depth * x_width);
    wh = arena.take<Real>(panels * h_depth * h_width);
    bias = arena.take<Real>(panels * tile_width);
    h[0] = arena.take<Real>(h_elements());
    h[1] = arena.take<Real>(h_elements());
    c = arena.take<Real>(c_elements());
  }

  void place_backward(Arena& arena) {
    place_forward(arena);
    if (wants_d_in) bx = arena.take<Real>(round_up(inputs, columns) * panels * x_width);
    bh = arena.take<Real>(round_up(hidden, columns) * panels * h_width);
    dh = arena.take<Real>(h_elements());
    dc = arena.take<Real>(c_elements());
    dwx = arena.take<Real>(panels * x_depth * x_width);
    dwh = arena.take<Real>(panels * h_depth * h_width);
    dbias = arena.take<Real>(panels * tile_width);
  }

  // The unit of lane j in vector v of panel p (vectors of a tile part that has one gate are units side by side).
  static int64_t unit(int64_t p, int v, int j) {
    return p * panel_units + (Cell::unit_vectors > 1 ? v : 0) * L + j;
  }

  // ---- weights -----------------------------------------------------------------------------------------------------

  template <class GateOf>
  void pack_forward(int64_t p, const Real* weights, int64_t features, int64_t depth, int vectors, GateOf gate_of,
                    Real* packed) const {
    Real* to = packed + p * depth * vectors * L;
    for (int v = 0; v < vectors; v++)
      for (int j = 0; j < L; j++) {
        const int64_t u = unit(p, v, j);
        const Real* from = weights + (gate_of(v) * hidden + u) * features;
        for (int64_t k = 0; k < depth; k++)
          to[(k * vectors + v) * L + j] = u < hidden && k < features ? from[k] : Real(0);
      }
  }

  template <class GateOf>
  void pack_backward(int64_t p, const Real* weights, int64_t features, int vectors, GateOf gate_of,
                     Real* packed) const {
    for (int64_t q = 0; q < column_panels(features); q++) {
      const int64_t width = column_width(q, features);
      Real* to = packed + q * columns * panels * vectors * L + p * vectors * L * width;
      for (int v = 0; v < vectors; v++)
        for (int j = 0; j < L; j++, to += width) {
          const int64_t u = unit(p, v, j);
          const int64_t valid = u < hidden ? smaller(width, features - q * columns) : 0;
          if (valid) copy(to, weights + (gate_of(v) * hidden + u) * features + q * columns, valid);
          clear(to + valid, width - valid);
        }
    }
  }

  // Elements side by side in column panel q: whole vectors, fewer in the last.
  static int64_t column_width(int64_t q, int64_t features) {
    return smaller(columns, round_up(features - q * columns, L));
  }

  void pack_bias(int64_t p) const {
    const Real *of_x = (const Real*)call->b_ih, *of_h = (const Real*)call->b_hh;
    Real* to = bias + p * tile_width;
    clear(to, tile_width);
    for (int j = 0; j < panel_units; j++) {
      const int64_t u = p * panel_units + j;
      if (u >= hidden) break;
      // lane j of a panel lies in vector j / L of a one-gate tile; a tile of several gates has one vector a gate
      for (int v = 0; of_x && v < Cell::x_vectors; v++)
        if (unit(p, v, j % L) == u) to[(Cell::x_first + v) * L + j % L] += of_x[Cell::gate_of_x(v) * hidden + u];
      for (int v = 0; of_h && v < Cell::h_vectors; v++)
        if (unit(p, v, j % L) == u) to[(Cell::h_first + v) * L + j % L] += of_h[Cell::gate_of_h(v) * hidden + u];
    }
  }

  void pack_for_forward(Member me) const {
    const Share mine(panels, me.id, me.count);
    for (int64_t p = mine.begin; p < mine.end; p++) {
      pack_forward(p, (const Real*)call->w_ih, inputs, x_depth, Cell::x_vectors, Cell::gate_of_x, wx);
      pack_forward(p, (const Real*)call->w_hh, hidden, h_depth, Cell::h_vectors, Cell::gate_of_h, wh);
      pack_bias(p);
    }
  }

  void pack_for_backward(Member me) const {
    const Share mine(panels, me.id, me.count);
    for (int64_t p = mine.begin; p < mine.end; p++) {
      if (bx) pack_backward(p, (const Real*)call->w_ih, inputs, Cell::x_vectors, Cell::gate_of_x, bx);
      pack_backward(p, (const Real*)call->w_hh, hidden, Cell::h_vectors, Cell::gate_of_h, bh);
      clear(dwx + p * x_depth * x_width, x_depth * x_width);
      clear(dwh + p * h_depth * h_width, h_depth * h_width);
      clear(dbias + p * tile_width, tile_width);
    }
  }

  template <class GateOf>
  void unpack(int64_t p, const Real* sums, int64_t features, int64_t depth, int vectors, GateOf gate_of,
              Real* weights) const {
    const Real* from = sums + p * depth * vectors * L;
    for (int v = 0; v < vectors; v++)
      for (int j = 0; j < L; j++) {
        const int64_t u = unit(p, v, j);
        if (u >= hidden) break;
        Real* to = weights + (gate_of(v) * hidden + u) * features;
        for (int64_t k = 0; k < features; k++) to[k] = from[(k * vectors + v) * L + j];
      }
  }

  void unpack_gradients(Member me) const {
    const Share mine(panels, me.id, me.count);
    for (int64_t p = mine.begin; p < mine.end; p++) {
      if (call->dw_ih) unpack(p, dwx, inputs, x_depth, Cell::x_vectors, Cell::gate_of_x, (Real*)call->dw_ih);
      if (call->dw_hh) unpack(p, dwh, hidden, h_depth, Cell::h_vectors, Cell::gate_of_h, (Real*)call->dw_hh);
      const Real* sums = dbias + p * tile_width;
      for (int j = 0; j < L; j++) {
        for (int v = 0; v < Cell::x_vectors; v++)
          if (call->db_ih && unit(p, v, j) < hidden)
            ((Real*)call->db_ih)[Cell::gate_of_x(v) * hidden + unit(p, v, j)] = sums[(Cell::x_first + v) * L + j];
        for (int v = 0; v < Cell::h_vectors; v++)
          if (call->db_hh && unit(p, v, j) < hidden)
            ((Real*)call->db_hh)[Cell::gate_of_h(v) * hidden + unit(p, v, j)] = sums[(Cell::h_first + v) * L + j];
      }
    }
  }

  bool wants_weight_gradients() const { return call->dw_ih || call->dw_hh || call->db_ih || call->db_hh; }

  // ---- states --------------------------------------------------------------------------------------------------------

  // States of panels [p0, p1) between the caller's [B][H] arrays and ours. A null source means zeros.
  void read_h(int64_t p0, int64_t p1, const Real* from, Real* to) const {
    for (int64_t b = 0; b < batch; b++)
      for (int64_t p = p0; p < p1; p++) {
        Real* row = to + b * h_stride + p * panel_units;
        const int64_t units = from ? units_of(p) : 0;
        if (units) copy(row, from + b * hidden + p * panel_units, units);
        clear(row + units, panel_units - units);
      }
  }

  void read_c(int64_t p0, int64_t p1, const Real* from, Real* to) const {
    for (int64_t p = p0; p < p1; p++)
      for (int64_t b = 0; b < batch; b++) {
        const int64_t units = from ? units_of(p) : 0;
        if (units) copy(c_row(to, p, b), from + b * hidden + p * panel_units, units);
        clear(c_row(to, p, b) + units, panel_units - units);
      }
  }

  void write_h(int64_t p0, int64_t p1, int64_t b0, int64_t b1, const Real* from, void* to) const {
    for (int64_t b = b0; b < b1; b++)
      for (int64_t p = p0; p < p1; p++)
        copy((Real*)to + b * hidden + p * panel_units, from + b * h_stride + p * panel_units, units_of(p));
  }

  void write_c(int64_t p0, int64_t p1, int64_t b0, int64_t b1, const Real* from, void* to) const {
    for (int64_t p = p0; p < p1; p++)
      for (int64_t b = b0; b < b1; b++)
        copy((Real*)to + b * hidden + p * panel_units, from + (p * batch + b) * panel_units, units_of(p));
  }

  // Before the first step. Rows that never become active (sequences of length 0) end as they began.
  void begin_forward(Member me) const {
    pack_for_forward(me);
    const Share mine(panels, me.id, me.count);
    for (int k = 0; k < 2; k++) read_h(mine.begin, mine.end, (const Real*)call->h0, h[k]);
    if (Cell::has_c) read_c(mine.begin, mine.end, (const Real*)call->c0, c);
    if (call->hT) write_h(mine.begin, mine.end, 0, batch, h[0], call->hT);
    if (Cell::has_c && call->cT) write_c(mine.begin, mine.end, 0, batch, c, call->cT);
  }

  void begin_backward(Member me) const {
    pack_for_forward(me);
    pack_for_backward(me);
    const Share mine(panels, me.id, me.count);
    read_h(mine.begin, mine.end, (const Real*)call->dhT, dh);
    if (Cell::has_c) read_c(mine.begin, mine.end, (const Real*)call->dcT, dc);
  }

  void end_backward(Member me) const {
    unpack_gradients(me);
    const Share mine(panels, me.id, me.count);
    if (call->dh0) write_h(mine.begin, mine.end, 0, batch, dh, call->dh0);
    if (Cell::has_c && call->dc0) write_c(mine.begin, mine.end, 0, batch, dc, call->dc0);
  }
};

}  // namespace
