// The GRU cell on one vector of units, with the reset gate applied after the product, as torch and Keras define it.
// Legend: r reset gate, z update gate, n candidate, m = W_hn h + b_hn (what r scales), h state; d… gradients.
//
//   n = tanh(W_in x + b_in + r m)        h' = n + z (h - n)
#pragma once

#include "activations.hpp"

namespace {

template <class RealType>
struct Gru {
  using Real = RealType;
  static constexpr int L = lanes<Real>;
  static constexpr bool has_c = false;
  static constexpr bool recomputes = true;
  static constexpr int gates = 3;  // torch's order: r, z, n
  static constexpr int unit_vectors = 1;
  static constexpr int tile = 4;  // n's input part, r, z, m: inputs fill the first three, the hidden state the last
  static constexpr int x_first = 0, x_vectors = 3;
  static constexpr int h_first = 1, h_vectors = 3;
  static constexpr int kept = 4;  // n, r, z, m

  static constexpr int gate_of_x(int v) { return v == 0 ? 2 : v - 1; }
  static constexpr int gate_of_h(int v) { return v; }

  static inline void activate(Real* tile) {
    const Vec<Real> r = sigmoid<Real>(load(tile + L));
    store(tile, tanh<Real>(load(tile) + r * load(tile + 3 * L)));
    store(tile + L, r);
    store(tile + 2 * L, sigmoid<Real>(load(tile + 2 * L)));
  }

  static inline void scan(const Real*, const Real*, Real*) {}

  static inline void forward(const Real* tile, Real*, const Real* h, Real* h_next, Real* kept_row) {
    const Vec<Real> r = sigmoid<Real>(load(tile + L)), z = sigmoid<Real>(load(tile + 2 * L));
    const Vec<Real> m = load(tile + 3 * L);
    const Vec<Real> n = tanh<Real>(load(tile) + r * m);
    store(h_next, n + z * (load(h) - n));
    if (kept_row) {
      store(kept_row, n);
      store(kept_row + L, r);
      store(kept_row + 2 * L, z);
      store(kept_row + 3 * L, m);
    }
  }

  static inline void backward(const Real* gates_row, const Real*, const Real*, const Real* h, const Vec<Real>*,
                              const Vec<Real>* dy, Real* dgates, Real* dh, Real*) {
    const Vec<Real> n = load(gates_row), r = load(gates_row + L);
    const Vec<Real> z = load(gates_row + 2 * L), m = load(gates_row + 3 * L);
    const Vec<Real> d = load(dh) + dy[0];
    const Vec<Real> dn = d * (Real(1) - z) * (Real(1) - n * n);
    store(dgates, dn);
    store(dgates + L, dn * m * r * (Real(1) - r));
    store(dgates + 2 * L, d * (load(h) - n) * z * (Real(1) - z));
    store(dgates + 3 * L, dn * r);
    store(dh, d * z);
  }
};

}  // namespace
