// Sigmoid and tanh on vectors, from one exponential.
//
// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2)/2: Cody and Waite's two-part reduction, exp(r) - 1 by a
// polynomial (Cephes' for float; Taylor's to r^13 / 13! for double, whose next term is below 5e-18).
// Bounds, tested against float64 and long double over the whole range: 4 units in the last place for tanh, and for
// sigmoid wherever its value is a normal number. NaN stays NaN; infinities give 0, 1 and -1 exactly.
#pragma once

#include "vec.hpp"

namespace {

template <class Real>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  static constexpr int mantissa = 23;
  static constexpr int32_t bias = 127;
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  static constexpr float overflow = 89.0f, underflow = -88.0f;  // round to n = 128 (infinity) and n = -127 (zero)
  static constexpr float saturation = 20.0f;                    // tanh(x/2) is 1 from here on
};
template <>
struct ExpConstants<double> {
  static constexpr double magic = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr int mantissa = 52;
  static constexpr int64_t bias = 1023;
  static constexpr double ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
  static constexpr double overflow = 710.0, underflow = -709.1;
  static constexpr double saturation = 44.0;
};

// exp(r) - 1 for |r| <= ln(2)/2.
inline Vec<float> small_expm1(Vec<float> r) {
  Vec<float> q = r * 1.9875691500e-4f + 1.3981999507e-3f;
  q = q * r + 8.3334519073e-3f;
  q = q * r + 4.1665795894e-2f;
  q = q * r + 1.6666665459e-1f;
  q = q * r + 5.0000001201e-1f;
  return q * (r * r) + r;
}

inline Vec<double> small_expm1(Vec<double> r) {
  Vec<double> q = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  q = q * r + 1.0 / 39916800.0;
  q = q * r + 1.0 / 3628800.0;
  q = q * r + 1.0 / 362880.0;
  q = q * r + 1.0 / 40320.0;
  q = q * r + 1.0 / 5040.0;
  q = q * r + 1.0 / 720.0;
  q = q * r + 1.0 / 120.0;
  q = q * r + 1.0 / 24.0;
  q = q * r + 1.0 / 6.0;
  q = q * r + 0.5;
  return q * (r * r) + r;
}

// Splits exp(x) into power * (1 + rest).
template <class Real>
inline void split_exp(Vec<Real> x, Vec<Real>& power, Vec<Real>& rest) {
  using C = ExpConstants<Real>;
  using Integer = typename VectorOf<Real>::integer;
  const Vec<Real> shifted = x * Real(1.44269504088896340736) + C::magic;
  const Vec<Real> n = shifted - C::magic;
  power = (Vec<Real>)(((Integer)shifted + C::bias) << C::mantissa);
  rest = small_expm1((x - n * C::ln2_high) - n * C::ln2_low);
}

// Comparisons with NaN are false, so that NaN passes through.
template <class Real>
inline Vec<Real> clamp(Vec<Real> x, Real low, Real high) {
  x = x < low ? all(low) : x;
  return x > high ? all(high) : x;
}

// y, which has the sign of x wherever it is not zero, with the sign of x there as well.
template <class Real>
inline Vec<Real> with_sign_of(Vec<Real> x, Vec<Real> y) {
  using Integer = typename VectorOf<Real>::integer;
  const Integer sign = (Integer)all(Real(-0.0));
  return (Vec<Real>)((Integer)y | ((Integer)x & sign));
}

template <class Real>
inline Vec<Real> sigmoid(Vec<Real> x) {
  using C = ExpConstants<Real>;
  Vec<Real> power, rest;
  split_exp<Real>(clamp<Real>(-x, C::underflow, C::overflow), power, rest);
  // Not power * rest + power: with an infinite power and a negative rest that would be NaN.
  return Real(1) / (Real(1) + power * (rest + Real(1)));
}

template <class Real>
inline Vec<Real> tanh(Vec<Real> x) {
  using C = ExpConstants<Real>;
  Vec<Real> power, rest;
  split_exp<Real>(clamp<Real>(x + x, -C::saturation, C::saturation), power, rest);
  const Vec<Real> expm1 = power * rest + (power - Real(1));
  return with_sign_of<Real>(x, expm1 / (expm1 + Real(2)));
}

template <class Real>
void activate(int function, const Real* in, Real* out, int64_t count) {
  constexpr int L = lanes<Real>;
  for (int64_t i = 0; i < count; i += L) {
    const Vec<Real> x = load_some(in + i, count - i);
    const Vec<Real> y = function == 0 ? sigmoid<Real>(x) : tanh<Real>(x);
    for (int64_t j = 0; j < L && i + j < count; j++) out[i + j] = y[j];
  }
}

}  // namespace
