// The plain RNN cell, tanh or relu, on two vectors of units (a single one would leave registers idle).
// Legend: h' = act(sum), the output itself tells the activation's slope, so nothing is recomputed; d… gradients.
#pragma once

#include "activations.hpp"

namespace {

template <class RealType, bool relu>
struct Rnn {
  using Real = RealType;
  static constexpr int L = lanes<Real>;
  static constexpr bool has_c = false;
  static constexpr bool recomputes = false;
  static constexpr int gates = 1;
  static constexpr int unit_vectors = 2;
  static constexpr int tile = 2;
  static constexpr int x_first = 0, x_vectors = 2;
  static constexpr int h_first = 0, h_vectors = 2;
  static constexpr int kept = 0;

  static constexpr int gate_of_x(int) { return 0; }
  static constexpr int gate_of_h(int) { return 0; }

  static inline void activate(Real*) {}
  static inline void scan(const Real*, const Real*, Real*) {}

  static inline void forward(const Real* tile, Real*, const Real*, Real* h_next, Real*) {
    for (int u = 0; u < unit_vectors; u++) {
      const Vec<Real> sum = load(tile + u * L);
      // "sum < 0 ? 0 : sum" lets NaN through, as torch does
      store(h_next + u * L, relu ? (sum < Real(0) ? Vec<Real>{} : sum) : tanh<Real>(sum));
    }
  }

  static inline void backward(const Real*, const Real*, const Real*, const Real*, const Vec<Real>* h_next,
                              const Vec<Real>* dy, Real* dgates, Real* dh, Real*) {
    for (int u = 0; u < unit_vectors; u++) {
      const Vec<Real> d = load(dh + u * L) + dy[u], y = h_next[u];
      store(dgates + u * L, relu ? (y <= Real(0) ? Vec<Real>{} : d) : d * (Real(1) - y * y));
      store(dh + u * L, Vec<Real>{});
    }
  }
};

}  // namespace
