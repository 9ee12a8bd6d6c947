// Vectors of the instruction set that this file is compiled for, by the compiler's own vector types.
//
// Included only by isa.cpp. Everything lies in an anonymous namespace and uses no inline std code: the linker would
// otherwise be free to let an old machine run the copy that was compiled for a new one.
#pragma once

#include <stdint.h>

namespace {

template <class Real>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(LOWTIDE_VECTOR_BYTES)));
  typedef float loose __attribute__((vector_size(LOWTIDE_VECTOR_BYTES), aligned(4), may_alias));
  typedef int32_t integer __attribute__((vector_size(LOWTIDE_VECTOR_BYTES)));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(LOWTIDE_VECTOR_BYTES)));
  typedef double loose __attribute__((vector_size(LOWTIDE_VECTOR_BYTES), aligned(8), may_alias));
  typedef int64_t integer __attribute__((vector_size(LOWTIDE_VECTOR_BYTES)));
};

template <class Real>
using Vec = typename VectorOf<Real>::type;

template <class Real>
constexpr int lanes = LOWTIDE_VECTOR_BYTES / sizeof(Real);

template <class Real>
inline Vec<Real> load(const Real* from) {
  return (Vec<Real>)*(const typename VectorOf<Real>::loose*)from;
}

template <class Real>
inline void store(Real* to, Vec<Real> value) {
  *(typename VectorOf<Real>::loose*)to = (typename VectorOf<Real>::loose)value;
}

template <class Real>
inline Vec<Real> all(Real value) {
  return value - Vec<Real>{};  // minus: adding +0 would turn -0 into +0
}

// The first `count` lanes from memory, zero in the rest.
template <class Real>
inline Vec<Real> load_some(const Real* from, int64_t count) {
  if (count >= lanes<Real>) return load(from);
  Vec<Real> value{};
  for (int64_t j = 0; j < count; j++) value[j] = from[j];
  return value;
}

template <class Real>
inline void copy(Real* to, const Real* from, int64_t count) {
  __builtin_memcpy(to, from, (size_t)count * sizeof(Real));
}

template <class Real>
inline void clear(Real* to, int64_t count) {
  __builtin_memset(to, 0, (size_t)count * sizeof(Real));
}

inline int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace
