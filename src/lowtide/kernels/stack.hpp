// A whole stack of layers: which chunk of which layer runs when, and what lies where meanwhile.
//
// In one direction, all layers go through the sequence together, chunk by chunk, so the gradient between two layers
// never exists for more than a chunk. A bidirectional stack needs both whole directions of a layer before the next.
#pragma once

#include "backward.hpp"

namespace {

using lowtide::Keep;
using lowtide::Sizes;
using lowtide::StackCall;

template <class Cell>
struct Stack {
  using Real = typename Cell::Real;
  using LayerT = Layer<Cell>;

  const StackCall& call;
  const bool back;        // a backward pass
  const bool boundaries;  // only states at chunk starts survive
  LayerT* layers = nullptr;  // [L * D]
  LayerT widest;
  Workspace<Cell> work;
  Real* chunk_outputs = nullptr;  // "boundaries": outputs of a chunk, [layers or 2][capacity][H]
  Real* chunk_gates = nullptr;    // "boundaries" backward: [layers][kept gates of a chunk]
  Real* between = nullptr;        // backward: gradients between layers, two buffers
  Real* interval_c = nullptr;     // backward: c at each chunk's start of an interval, [layers][chunks][c]

  Stack(const StackCall& of, bool backward)
      : call(of), back(backward), boundaries(of.keep == Keep::boundaries && of.directions == 1 && of.layers > 1) {}

  int64_t count() const { return call.layers * call.directions; }
  int64_t output_width() const { return call.directions * call.hidden; }
  int64_t inputs_of(int64_t l) const { return l == 0 ? call.inputs : output_width(); }
  bool one_way() const { return call.directions == 1; }
  int64_t chunks_of_interval() const { return call.state_steps / call.chunk_steps; }
  bool rescans() const { return Cell::has_c && !keeps_gates() && !boundaries && chunks_of_interval() > 1; }
  int64_t kept_of_chunk() const { return widest.panels * work.capacity * Cell::kept * lanes<Real>; }
  int64_t state_elements() const { return widest.c_elements() + (boundaries ? widest.h_elements() : 0); }
  bool keeps_gates() const { return call.keep == Keep::gates && Cell::kept > 0; }

  void shape() {
    widest.shape(larger(call.inputs, call.layers > 1 ? output_width() : 0), call.hidden, call.batch);
    work.shape(widest, call.chunk_steps);
  }

  // ---- where rows lie --------------------------------------------------------------------------------------------------

  Rows compact(Real* base, int64_t width) const {
    Rows rows{};
    rows.base = base;
    rows.step_stride = call.batch * width;
    rows.row_stride = width;
    rows.step_start = call.start_at_time;
    return rows;
  }

  static Rows shifted(Rows rows, int64_t elements) {
    if (rows.base) rows.base = (Real*)rows.base + elements;
    return rows;
  }

  // A chunk's scratch seen as compact storage: what comes before the chunk is left out.
  Rows chunk_rows(Real* base, const Schedule& when, int64_t s0, int64_t width) const {
    Rows rows = compact(base, width);
    rows.origin = when.compact(s0) * width;
    return rows;
  }

  Real* inner(int64_t l) const { return (Real*)call.inner + l * call.total_rows * output_width(); }
  Real* between_buffer(int64_t l) const {
    return between + (l & 1) * (one_way() ? work.capacity : call.total_rows) * output_width();
  }

  void describe(LayerT& layer, int64_t l, int64_t d) const {
    const bool last = l == call.layers - 1;
    layer.shape(inputs_of(l), call.hidden, call.batch);
    layer.call = &call.call[l * call.directions + d];
    layer.when.steps = call.steps;
    layer.when.batch = call.batch;
    layer.when.reverse = d == 1;
    layer.when.rows_at_time = call.rows_at_time;
    layer.when.start_at_time = call.start_at_time;
    layer.when.start_at_step = d == 1 ? call.start_at_step_reverse : call.start_at_time;
    layer.dropout = {layer.call->mask, layer.inputs, (Real)call.dropout_scale};
    layer.add_d_in = d == 1;
    if (l == 0) layer.in = call.x;
    else if (!boundaries) layer.in = compact(inner(l - 1), output_width());
    if (last) layer.out = shifted(call.y, d * call.hidden);
    else if (!boundaries) layer.out = compact(inner(l) + d * call.hidden, output_width());
    if (!back) return;
    layer.wants_d_in = l > 0 || call.dx.base;
    layer.d_in = l == 0 ? call.dx : compact(between_buffer(l), output_width());
    layer.d_out = last ? shifted(call.dy, d * call.hidden) : compact(between_buffer(l + 1) + d * call.hidden, output_width());
  }

  // Twice: once to count, once to hand out.
  void place(Arena& arena) {
    layers = arena.take<LayerT>(count());
    work.place_forward(arena, widest);
    if (back) work.place_backward(arena, widest, call.threads);
    if (boundaries) chunk_outputs = arena.take<Real>((back ? call.layers : 2) * work.capacity * call.hidden);
    if (boundaries && back) chunk_gates = arena.take<Real>(call.layers * kept_of_chunk());
    if (back && call.layers > 1)
      between = arena.take<Real>(2 * (one_way() ? work.capacity : call.total_rows) * output_width());
    if (back && rescans()) interval_c = arena.take<Real>(count() * chunks_of_interval() * widest.c_elements());
    for (int64_t i = 0; i < count(); i++) {
      LayerT layer{};
      describe(layer, i / call.directions, i % call.directions);
      if (back) layer.place_backward(arena);
      else layer.place_forward(arena);
      if (arena.base) layers[i] = layer;
    }
  }

  // ---- padding -----------------------------------------------------------------------------------------------------

  void clear_padding(const Rows& rows, int64_t width, Member me) const {
    if (!call.zero_padding || !rows.base) return;
    const Share mine(call.steps, me.id, me.count);
    for (int64_t t = mine.begin; t < mine.end; t++)
      for (int64_t b = call.rows_at_time[t]; b < call.batch; b++) clear(row_at<Real>(rows, t, b), width);
  }

  // ---- kept states -------------------------------------------------------------------------------------------------

  Real* state_at(const LayerT& layer, int64_t s) const {
    return (Real*)layer.call->states + s / call.state_steps * state_elements();
  }

  void save_state(const LayerT& layer, Member me, int64_t s0, int64_t s1) const {
    if (!layer.call->states || state_elements() == 0 || s0 % call.state_steps != 0) return;
    const Group group = group_of(layer, me, s0, s1);
    Real* to = state_at(layer, s0);
    const int64_t sequences = group.b1 - group.b0;
    for (int64_t p = group.p0; Cell::has_c && p < group.p1; p++)
      copy(layer.c_row(to, p, group.b0), layer.c_row(layer.c, p, group.b0), sequences * LayerT::panel_units);
    if (!boundaries) return;
    const int64_t first = group.p0 * LayerT::panel_units, units = (group.p1 - group.p0) * LayerT::panel_units;
    for (int64_t b = group.b0; b < group.b1; b++)
      copy(to + layer.c_elements() + b * layer.h_stride + first, layer.h[s0 & 1] + b * layer.h_stride + first, units);
  }

  // The caller puts a barrier behind this.
  void copy_shared(Real* to, const Real* from, int64_t elements, Member me) const {
    const Share mine(elements, me.id, me.count);
    copy(to + mine.begin, from + mine.begin, mine.end - mine.begin);
  }

  // ---- forward -----------------------------------------------------------------------------------------------------

  KeptGates<Real> whole_gates(const LayerT& layer) const {
    KeptGates<Real> kept;
    if (!keeps_gates()) return kept;
    kept.base = (Real*)layer.call->gates;
    kept.capacity = call.total_rows;
    return kept;
  }

  // A layer as it is for one chunk: under "boundaries" what lies between layers is the chunk's own scratch.
  LayerT for_chunk(int64_t i, int64_t s0) const {
    LayerT layer = layers[i];
    if (back && one_way() && i > 0) layer.d_in = chunk_rows(between_buffer(i), layer.when, s0, call.hidden);
    if (back && one_way() && i + 1 < call.layers) layer.d_out = chunk_rows(between_buffer(i + 1), layer.when, s0, call.hidden);
    if (!boundaries) return layer;
    if (i > 0) layer.in = chunk_rows(chunk_output(i - 1), layer.when, s0, call.hidden);
    if (back || i + 1 < call.layers) layer.out = chunk_rows(chunk_output(i), layer.when, s0, call.hidden);
    return layer;
  }

  Real* chunk_output(int64_t l) const { return chunk_outputs + (back ? l : l & 1) * work.capacity * call.hidden; }

  void forward_layers(int64_t low, int64_t high, Member me) const {
    for (int64_t s0 = 0; s0 < call.steps; s0 += call.chunk_steps) {
      const int64_t s1 = smaller(s0 + call.chunk_steps, call.steps);
      for (int64_t i = low; i < high; i++) {
        const LayerT layer = for_chunk(i, s0);
        save_state(layer, me, s0, s1);
        forward_chunk(layer, work, me, s0, s1, whole_gates(layer));
        team_barrier(me);
      }
    }
  }

  void forward(Member me) const {
    for (int64_t i = 0; i < count(); i++) layers[i].begin_forward(me);
    clear_padding(call.y, output_width(), me);
    team_barrier(me);
    if (one_way()) return forward_layers(0, count(), me);
    for (int64_t i = 0; i < count(); i++) forward_layers(i, i + 1, me);
  }

  // ---- backward ----------------------------------------------------------------------------------------------------

  // Chunk by chunk from the left, to learn c at each chunk's start of an interval.
  void rescan(int64_t i, int64_t begin, int64_t end, Member me) const {
    Real* starts = interval_c + i * chunks_of_interval() * widest.c_elements();
    const LayerT& layer = layers[i];
    for (int64_t s0 = begin; s0 < end; s0 += call.chunk_steps) {
      copy_shared(starts + (s0 - begin) / call.chunk_steps * widest.c_elements(), layer.c, widest.c_elements(), me);
      team_barrier(me);
      if (s0 + call.chunk_steps >= end) break;
      const ChunkSource<Real> source = source_of(layer, s0, {});
      Backward<Cell>(for_chunk(i, s0), work, source, me, s0, s0 + call.chunk_steps).advance_c();
    }
  }

  // Runs a chunk forward again from its kept states, gates kept, under "boundaries".
  void replay(int64_t i, int64_t s0, int64_t s1, Member me) const {
    const LayerT layer = for_chunk(i, s0);
    const Real* state = state_at(layer, s0);
    if (Cell::has_c) copy_shared(layer.c, state, layer.c_elements(), me);
    copy_shared(layer.h[s0 & 1], state + layer.c_elements(), layer.h_elements(), me);
    team_barrier(me);
    forward_chunk(layer, work, me, s0, s1, chunk_kept(i, layer, s0));
    team_barrier(me);
  }

  KeptGates<Real> chunk_kept(int64_t i, const LayerT& layer, int64_t s0) const {
    KeptGates<Real> kept;
    kept.base = chunk_gates + i * kept_of_chunk();
    kept.capacity = work.capacity;
    kept.origin = layer.when.start(s0);
    return kept;
  }

  ChunkSource<Real> source_of(const LayerT& layer, int64_t s0, KeptGates<Real> kept) const {
    ChunkSource<Real> source;
    source.kept = kept;
    source.first_h = (const Real*)layer.call->h0;
    source.first_h_stride = call.hidden;
    source.first_c = layer.c;
    if (!boundaries) return source;
    const Real* state = state_at(layer, s0);
    source.first = s0;
    source.first_c = state;
    source.first_h = state + layer.c_elements();
    source.first_h_stride = layer.h_stride;
    return source;
  }

  void backward_chunk(int64_t i, int64_t s0, int64_t s1, Member me) const {
    const LayerT layer = for_chunk(i, s0);
    KeptGates<Real> kept = whole_gates(layer);
    if (boundaries && Cell::kept > 0) kept = chunk_kept(i, layer, s0);
    if (Cell::has_c && !kept.base) {
      const Real* c = rescans() ? interval_c + (i * chunks_of_interval() + s0 % call.state_steps / call.chunk_steps) * widest.c_elements()
                                : state_at(layer, s0);
      copy_shared(layer.c, c, layer.c_elements(), me);
    }
    const ChunkSource<Real> source = source_of(layer, s0, kept);
    Backward<Cell>(layer, work, source, me, s0, s1).run();
  }

  void backward_layers(int64_t low, int64_t high, Member me) const {
    const int64_t intervals = (call.steps + call.state_steps - 1) / call.state_steps;
    for (int64_t interval = intervals - 1; interval >= 0; interval--) {
      const int64_t begin = interval * call.state_steps, end = smaller(begin + call.state_steps, call.steps);
      for (int64_t i = low; rescans() && i < high; i++) {
        copy_shared(layers[i].c, state_at(layers[i], begin), widest.c_elements(), me);
        team_barrier(me);
        rescan(i, begin, end, me);
      }
      const int64_t chunks = (end - begin + call.chunk_steps - 1) / call.chunk_steps;
      for (int64_t k = chunks - 1; k >= 0; k--) {
        const int64_t s0 = begin + k * call.chunk_steps, s1 = smaller(s0 + call.chunk_steps, end);
        for (int64_t i = low; boundaries && i < high; i++) replay(i, s0, s1, me);
        for (int64_t i = high - 1; i >= low; i--) backward_chunk(i, s0, s1, me);
      }
    }
  }

  void backward(Member me) const {
    for (int64_t i = 0; i < count(); i++) layers[i].begin_backward(me);
    for (int64_t i = 0; Cell::has_c && keeps_gates() && i < count(); i++) {
      const Share mine(layers[i].panels, me.id, me.count);
      layers[i].read_c(mine.begin, mine.end, (const Real*)layers[i].call->c0, layers[i].c);
    }
    clear_padding(call.dx, call.inputs, me);
    team_barrier(me);
    if (one_way()) {
      backward_layers(0, count(), me);
    } else {
      for (int64_t l = call.layers - 1; l >= 0; l--)
        for (int64_t d = 0; d < call.directions; d++)
          backward_layers(l * call.directions + d, l * call.directions + d + 1, me);
    }
    for (int64_t i = 0; i < count(); i++) layers[i].end_backward(me);
  }
};

}  // namespace
