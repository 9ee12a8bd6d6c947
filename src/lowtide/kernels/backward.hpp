// The backward pass of one layer over a chunk of steps, in four phases with a barrier between them:
//
//   gather      x and the h before each step, in panels of features
//   recompute   all gates of the chunk from one batched product (the h before each step is known), then c by a scan
//   sequential  from the last step to the first: gradients of the gates, and of h through the recurrent weights
//   batched     gradients of x by rows, of the weights by (panel of units, panel of features)
//
// The second phase is skipped where gates were kept, or where the output alone tells the slope (plain RNN).
#pragma once

#include "forward.hpp"

namespace {

// What a chunk's backward pass starts from.
template <class Real>
struct ChunkSource {
  KeptGates<Real> kept;         // base null: recompute
  const Real* first_h = nullptr;  // h of sequences that begin at step `first`; null: zeros
  int64_t first_h_stride = 0;
  const Real* first_c = nullptr;  // likewise c, laid out like the layer's
  int64_t first = 0;            // the first step whose neighbour on the left is not in storage
};

// Whether the row before (s, b) is stored, rather than being the sequence's first.
inline bool has_before(const Schedule& when, int64_t first, int64_t s, int64_t b) {
  return s > first && b < when.rows(s - 1);
}

template <class Cell>
struct Backward {
  using Real = typename Cell::Real;
  using LayerT = Layer<Cell>;
  static constexpr int L = LayerT::L;
  static constexpr int tile_width = LayerT::tile_width;
  static constexpr int kept_width = Cell::kept * L;

  const LayerT& layer;
  const Workspace<Cell>& work;
  const ChunkSource<Real>& source;
  Member me;
  int64_t s0, s1, rows;

  Backward(const LayerT& of, const Workspace<Cell>& with, const ChunkSource<Real>& from, Member member, int64_t begin,
           int64_t end)
      : layer(of), work(with), source(from), me(member), s0(begin), s1(end),
        rows(of.when.start(end) - of.when.start(begin)) {}

  Real* feature_panel(int64_t f) const { return work.features + f * work.capacity * panel_features; }
  Real* gate_tile(int64_t p, int64_t row) const { return work.gates + (p * work.capacity + row) * tile_width; }
  Real* cell_row(int64_t p, int64_t row) const { return work.cells + (p * work.capacity + row) * LayerT::panel_units; }
  int64_t row_of(int64_t s, int64_t b) const { return layer.when.start(s) - layer.when.start(s0) + b; }

  const Real* kept_row(int64_t p, int64_t s, int64_t b) const {
    const KeptGates<Real>& kept = source.kept;
    return kept.base + (p * kept.capacity + layer.when.start(s) - kept.origin + b) * kept_width;
  }

  // ---- gather --------------------------------------------------------------------------------------------------------

  static void scatter_to_panels(const Real* row, int64_t features, Real* panels, int64_t panel_stride) {
    int64_t k = 0;
    for (; k + panel_features <= features; k += panel_features, panels += panel_stride)
      copy(panels, row, panel_features), row += panel_features;
    if (k == features) return;
    copy(panels, row, features - k);
    clear(panels + (features - k), panel_features - (features - k));
  }

  void gather() const {
    const Group whole{0, layer.batch, 0, layer.panels, false};
    const Share mine(rows, me.id, me.count);
    const int64_t panel_stride = work.capacity * panel_features;
    for_rows(layer.when, whole, s0, s1, mine.begin, mine.end, [&](int64_t r, int64_t s, int64_t b) {
      const int64_t t = layer.when.time(s);
      Real* panels = work.features + r * panel_features;
      scatter_to_panels(row_at<Real>(layer.in, t, b), layer.inputs, panels, panel_stride);
      if (layer.dropout.bits) drop_gathered(panels, panel_stride, layer.when.compact(t) + b);
      panels += layer.x_panels * panel_stride;
      const Real* h = has_before(layer.when, source.first, s, b) ? row_at<Real>(layer.out, layer.when.time(s - 1), b)
                      : source.first_h ? source.first_h + b * source.first_h_stride : nullptr;
      if (h) {
        scatter_to_panels(h, layer.hidden, panels, panel_stride);
      } else {
        for (int64_t f = 0; f < layer.h_panels; f++) clear(panels + f * panel_stride, panel_features);
      }
    });
  }

  void drop_gathered(Real* panels, int64_t panel_stride, int64_t place) const {
    for (int64_t k = 0; k < layer.inputs; k++)
      panels[k / panel_features * panel_stride + k % panel_features] *= layer.dropout.factor(place, k);
  }

  // ---- recompute -----------------------------------------------------------------------------------------------------

  template <int vectors>
  void multiply_features(int64_t begin, int64_t end, int64_t first_panel, int64_t feature_panels, const Real* weights,
                         Real* tile) const {
    constexpr int64_t width = vectors * L, block = Blocking<Real>::depth / panel_features;
    for (int64_t f = 0; f < feature_panels; f += block)
      multiply_tile<Real, vectors>(
          end - begin,
          Left<Real>{feature_panel(first_panel + f) + begin * panel_features, panel_features, 1,
                     work.capacity * panel_features},
          Right<Real>{weights + f * panel_features * width, width, panel_features * width}, panel_features,
          smaller(block, feature_panels - f), tile, tile_width);
  }

  void recompute() const {
    // Rows are cut as well where there are too few panels to go round evenly.
    const int64_t cuts = layer.panels >= 4 * me.count ? 1 : (4 * me.count + layer.panels - 1) / layer.panels;
    const Share mine(layer.panels * cuts, me.id, me.count);
    for (int64_t item = mine.begin; item < mine.end; item++) {
      const int64_t p = item / cuts;
      const Share part(rows, item % cuts, cuts);
      Real* tile = gate_tile(p, part.begin);
      for (int64_t r = 0; r < part.end - part.begin; r++) copy(tile + r * tile_width, layer.bias + p * tile_width, tile_width);
      multiply_features<Cell::x_vectors>(part.begin, part.end, 0, layer.x_panels,
                                         layer.wx + p * layer.x_depth * LayerT::x_width, tile + Cell::x_first * L);
      multiply_features<Cell::h_vectors>(part.begin, part.end, layer.x_panels, layer.h_panels,
                                         layer.wh + p * layer.h_depth * LayerT::h_width, tile + Cell::h_first * L);
      for (int64_t r = 0; r < part.end - part.begin; r++) Cell::activate(tile + r * tile_width);
    }
  }

  // c of every row of the group; layer.c, which holds c before the chunk, moves to its end.
  void scan(const Group& group) const {
    for (int64_t p = group.p0; p < group.p1; p++) {
      copy(layer.c_row(work.first_c, p, group.b0), layer.c_row(layer.c, p, group.b0),
           (group.b1 - group.b0) * LayerT::panel_units);
      for (int64_t s = s0; s < s1; s++)
        for (int64_t b = group.b0, row = row_of(s, b); b < group.b0 + group.rows(layer.when, s); b++, row++) {
          Cell::scan(gate_tile(p, row), layer.c_row(layer.c, p, b), cell_row(p, row));
          copy(layer.c_row(layer.c, p, b), cell_row(p, row), LayerT::panel_units);
        }
    }
  }

  // ---- sequential ----------------------------------------------------------------------------------------------------

  struct Cells {
    const Real *before, *after;
  };

  Cells cells(int64_t p, int64_t s, int64_t b) const {
    if (!Cell::has_c) return {nullptr, nullptr};
    if (!source.kept.base) {
      const bool stored = has_before(layer.when, s0, s, b);
      return {stored ? cell_row(p, row_of(s - 1, b)) : layer.c_row(work.first_c, p, b), cell_row(p, row_of(s, b))};
    }
    const bool stored = has_before(layer.when, source.first, s, b);
    constexpr int64_t c_of_row = kept_width - LayerT::panel_units;  // c is kept last
    return {stored ? kept_row(p, s - 1, b) + c_of_row : source.first_c + (p * layer.batch + b) * LayerT::panel_units,
            kept_row(p, s, b) + c_of_row};
  }

  void gate_gradients(const Group& group, int64_t s, int64_t n) const {
    const int64_t t = layer.when.time(s), row0 = row_of(s, group.b0);
    for (int64_t p = group.p0; p < group.p1; p++) {
      const int64_t unit = p * LayerT::panel_units, units = layer.units_of(p);
      const Real* h_panel = feature_panel(layer.x_panels + unit / panel_features) + unit % panel_features;
      for (int64_t k = 0; k < n; k++) {
        const int64_t b = group.b0 + k, row = row0 + k;
        Vec<Real> dy[Cell::unit_vectors] = {};
        if (layer.d_out.base) load_units(row_at<Real>(layer.d_out, t, b) + unit, units, dy);
        Vec<Real> y[Cell::unit_vectors] = {};
        if (!Cell::recomputes) load_units(row_at<Real>(layer.out, t, b) + unit, units, y);
        const Cells c = cells(p, s, b);
        Real* tile = gate_tile(p, row);
        Cell::backward(source.kept.base ? kept_row(p, s, b) : tile, c.before, c.after,
                       h_panel + row * panel_features, y, dy, tile, layer.dh + b * layer.h_stride + unit,
                       Cell::has_c ? layer.c_row(layer.dc, p, b) : nullptr);
        if (units < LayerT::panel_units) clear_absent_units(p, tile);
      }
    }
  }

  // Lanes that stand for no unit have weights of zero; but zero times an infinite input is NaN, and would spread.
  void clear_absent_units(int64_t p, Real* tile) const {
    for (int v = 0; v < Cell::tile; v++)
      for (int j = 0; j < L; j++)
        if (LayerT::unit(p, v, j) >= layer.hidden) tile[v * L + j] = Real(0);
  }

  static void load_units(const Real* from, int64_t units, Vec<Real>* to) {
    for (int u = 0; u < Cell::unit_vectors; u++)
      if (units > u * L) to[u] = load_some(from + u * L, units - u * L);
  }

  // dh += gradients of the gates * bh, for the group's rows and column panels [q0, q1).
  void multiply_back(const Group& group, int64_t q0, int64_t q1, int64_t s, int64_t n) const {
    for (int64_t q = q0; q < q1; q++)
      multiply_columns(q, layer.hidden, layer.bh, LayerT::h_width, gate_tile(0, row_of(s, group.b0)) + Cell::h_first * L,
                       n, layer.dh + group.b0 * layer.h_stride + q * LayerT::columns, layer.h_stride);
  }

  void multiply_columns(int64_t q, int64_t features, const Real* packed, int64_t part_width, const Real* gate_rows,
                        int64_t n, Real* to, int64_t to_stride) const {
    const int64_t width = LayerT::column_width(q, features);
    const Real* weights = packed + q * LayerT::columns * layer.panels * part_width;
    const int64_t block = larger(1, Blocking<Real>::depth / part_width);
    for (int64_t p = 0; p < layer.panels; p += block)
      multiply_width<Real>((int)(width / L), n,
                           Left<Real>{gate_rows + p * work.capacity * tile_width, tile_width, 1, work.capacity * tile_width},
                           Right<Real>{weights + p * part_width * width, width, part_width * width}, part_width,
                           smaller(block, layer.panels - p), to, to_stride);
  }

  void sequential(const Group& group) const {
    const int64_t all_columns = layer.column_panels(layer.hidden);
    const Share own(all_columns, me.id, me.count);
    for (int64_t s = s1 - 1; s >= s0; s--) {
      const int64_t n = group.rows(layer.when, s);
      if (n > 0) gate_gradients(group, s, n);
      if (group.by_units) team_barrier(me);
      if (n > 0) multiply_back(group, group.by_units ? own.begin : 0, group.by_units ? own.end : all_columns, s, n);
    }
  }

  // ---- batched -------------------------------------------------------------------------------------------------------

  void input_gradients() const {
    const Group whole{0, layer.batch, 0, layer.panels, false};
    const Share mine(rows, me.id, me.count);
    Real* block = work.d_inputs + me.id * Blocking<Real>::input_rows * work.input_stride;
    for (int64_t begin = mine.begin; begin < mine.end; begin += Blocking<Real>::input_rows) {
      const int64_t end = smaller(begin + Blocking<Real>::input_rows, mine.end);
      clear(block, (end - begin) * work.input_stride);
      for (int64_t q = 0; q < layer.column_panels(layer.inputs); q++)
        multiply_columns(q, layer.inputs, layer.bx, LayerT::x_width, gate_tile(0, begin) + Cell::x_first * L, end - begin,
                         block + q * LayerT::columns, work.input_stride);
      for_rows(layer.when, whole, s0, s1, begin, end, [&](int64_t r, int64_t s, int64_t b) {
        put_input_gradient(block + (r - begin) * work.input_stride, layer.when.time(s), b);
      });
    }
  }

  void put_input_gradient(Real* gradient, int64_t t, int64_t b) const {
    Real* to = row_at<Real>(layer.d_in, t, b);
    if (layer.dropout.bits) {
      const int64_t place = layer.when.compact(t) + b;
      for (int64_t k = 0; k < layer.inputs; k++) gradient[k] *= layer.dropout.factor(place, k);
    }
    if (!layer.add_d_in) {
      copy(to, gradient, layer.inputs);
      return;
    }
    for (int64_t k = 0; k < layer.inputs; k++) to[k] += gradient[k];
  }

  template <int vectors>
  void sum_outer_products(int64_t f, int64_t p, int first, int64_t begin, int64_t end, Real* sums) const {
    constexpr int pass = pass_vectors(vectors);
    for (int v = 0; v < vectors; v += pass)
      multiply_rows<Real, pass>(panel_features, Left<Real>{feature_panel(f) + begin * panel_features, 1, panel_features, 0},
                                Right<Real>{gate_tile(p, begin) + (first + v) * L, tile_width, 0}, end - begin, 1,
                                sums + v * L, vectors * L);
  }

  void sum_bias(int64_t p, int64_t begin, int64_t end) const {
    Vec<Real> sum[Cell::tile];
    for (int v = 0; v < Cell::tile; v++) sum[v] = load(layer.dbias + p * tile_width + v * L);
    for (int64_t r = begin; r < end; r++)
      for (int v = 0; v < Cell::tile; v++) sum[v] += load(gate_tile(p, r) + v * L);
    for (int v = 0; v < Cell::tile; v++) store(layer.dbias + p * tile_width + v * L, sum[v]);
  }

  void weight_gradients() const {
    const int64_t features = layer.x_panels + layer.h_panels;
    const Share mine(layer.panels * features, me.id, me.count);
    for (int64_t p = mine.begin / features; p * features < mine.end; p++) {
      const int64_t f0 = larger(mine.begin - p * features, 0), f1 = smaller(mine.end - p * features, features);
      for (int64_t begin = 0; begin < rows; begin += Blocking<Real>::sum_rows) {
        const int64_t end = smaller(begin + Blocking<Real>::sum_rows, rows);
        if (f0 == 0) sum_bias(p, begin, end);
        for (int64_t f = f0; f < f1; f++)
          if (f < layer.x_panels)
            sum_outer_products<Cell::x_vectors>(f, p, Cell::x_first, begin, end,
                                                layer.dwx + (p * layer.x_depth + f * panel_features) * LayerT::x_width);
          else
            sum_outer_products<Cell::h_vectors>(
                f, p, Cell::h_first, begin, end,
                layer.dwh + (p * layer.h_depth + (f - layer.x_panels) * panel_features) * LayerT::h_width);
      }
    }
  }

  // Gathers and recomputes alone, to learn c at the chunk's end.
  void advance_c() const {
    gather();
    team_barrier(me);
    recompute();
    team_barrier(me);
    scan(group_of(layer, me, s0, s1));
    team_barrier(me);
  }

  void run() const {
    gather();
    team_barrier(me);
    const Group group = group_of(layer, me, s0, s1);
    if (Cell::recomputes && !source.kept.base) {
      recompute();
      team_barrier(me);
      if (Cell::has_c) scan(group);
    }
    sequential(group);
    team_barrier(me);
    if (layer.wants_d_in) input_gradients();
    if (layer.wants_weight_gradients()) weight_gradients();
    team_barrier(me);
  }
};

}  // namespace
