// The LSTM cell on one vector of units.  Legend: i input gate, f forget gate, g candidate, o output gate, c cell state,
// h output; d… the loss's gradient with respect to …; gates before their activation while in a fresh tile.
//
//   c' = f c + i g        h' = o tanh(c')
#pragma once

#include "activations.hpp"

namespace {

template <class RealType>
struct Lstm {
  using Real = RealType;
  static constexpr int L = lanes<Real>;
  static constexpr bool has_c = true;
  static constexpr bool recomputes = true;
  static constexpr int gates = 4;       // torch's order: i, f, g, o
  static constexpr int unit_vectors = 1;  // vectors of units in a panel
  static constexpr int tile = 4;        // vectors of a tile: i, f, g, o
  static constexpr int x_first = 0, x_vectors = 4;  // the part of the tile that the inputs' product fills
  static constexpr int h_first = 0, h_vectors = 4;  // the part that the hidden state's product fills
  static constexpr int kept = 5;        // vectors kept for each panel and row under "gates": i, f, g, o, c'

  static constexpr int gate_of_x(int v) { return v; }
  static constexpr int gate_of_h(int v) { return v; }

  static inline void activate(Real* tile) {
    store(tile, sigmoid<Real>(load(tile)));
    store(tile + L, sigmoid<Real>(load(tile + L)));
    store(tile + 2 * L, tanh<Real>(load(tile + 2 * L)));
    store(tile + 3 * L, sigmoid<Real>(load(tile + 3 * L)));
  }

  // c' from activated gates.
  static inline void scan(const Real* tile, const Real* c, Real* c_next) {
    store(c_next, load(tile + L) * load(c) + load(tile) * load(tile + 2 * L));
  }

  // One step: the tile holds the gates' sums; c is updated in place. kept may be null.
  static inline void forward(const Real* tile, Real* c, const Real*, Real* h_next, Real* kept_row) {
    const Vec<Real> i = sigmoid<Real>(load(tile)), f = sigmoid<Real>(load(tile + L));
    const Vec<Real> g = tanh<Real>(load(tile + 2 * L)), o = sigmoid<Real>(load(tile + 3 * L));
    const Vec<Real> c_next = f * load(c) + i * g;
    store(c, c_next);
    store(h_next, o * tanh<Real>(c_next));
    if (kept_row) {
      store(kept_row, i);
      store(kept_row + L, f);
      store(kept_row + 2 * L, g);
      store(kept_row + 3 * L, o);
      store(kept_row + 4 * L, c_next);
    }
  }

  // From the gradient d of h' (dh so far, plus the step's own) to those of the gates' sums; dc goes on to the step
  // before, and dh is cleared to take the product with the recurrent weights.
  static inline void backward(const Real* gates_row, const Real* c, const Real* c_next, const Real*, const Vec<Real>*,
                              const Vec<Real>* dy, Real* dgates, Real* dh, Real* dc) {
    const Vec<Real> i = load(gates_row), f = load(gates_row + L);
    const Vec<Real> g = load(gates_row + 2 * L), o = load(gates_row + 3 * L);
    const Vec<Real> d = load(dh) + dy[0];
    const Vec<Real> squashed = tanh<Real>(load(c_next));
    const Vec<Real> e = load(dc) + d * o * (Real(1) - squashed * squashed);
    store(dgates, e * g * i * (Real(1) - i));
    store(dgates + L, e * load(c) * f * (Real(1) - f));
    store(dgates + 2 * L, e * i * (Real(1) - g * g));
    store(dgates + 3 * L, d * squashed * o * (Real(1) - o));
    store(dc, e * f);
    store(dh, Vec<Real>{});
  }
};

}  // namespace
