// Register-blocked products on packed operands: C[rows][NV vectors] += sum over depth of left(row, k) * right[k].
//
// An accumulator is one vector of C; `accumulators` of them fit the register file beside the operands (24 of 32
// registers for AVX-512 and NEON, 12 of 16 for AVX2 and SSE). Each element of C is summed in the order of k alone, one
// fused multiply-add after another, whatever the blocking: results do not depend on how rows are dealt to threads.
#pragma once

#include "vec.hpp"

namespace {

constexpr int accumulators = LOWTIDE_REGISTERS == 32 ? 24 : 12;

// How many vectors of C one pass covers, for C that is `vectors` wide: all, or two at a time with few registers.
constexpr int pass_vectors(int vectors) {
  return LOWTIDE_REGISTERS == 32 || vectors < 4 ? vectors : vectors / 2;
}

constexpr int block_rows(int vectors) { return accumulators / vectors > 12 ? 12 : accumulators / vectors; }

// Element (i, panel, k) lies at start[panel * panel_stride + i * row_stride + k * depth_stride].
template <class Real>
struct Left {
  const Real* start;
  int64_t row_stride, depth_stride, panel_stride;
};

// The vectors of (panel, k) lie at start + panel * panel_stride + k * depth_stride.
template <class Real>
struct Right {
  const Real* start;
  int64_t depth_stride, panel_stride;
};

// One block of MR rows and NV vectors, in registers from beginning to end.
template <class Real, int MR, int NV>
inline void multiply_block(Left<Real> left, Right<Real> right, int64_t depth, int64_t panels, Real* c, int64_t c_stride) {
  constexpr int L = lanes<Real>;
  Vec<Real> sum[MR][NV];
  for (int i = 0; i < MR; i++)
    for (int j = 0; j < NV; j++) sum[i][j] = load(c + i * c_stride + j * L);
  for (int64_t panel = 0; panel < panels; panel++) {
    const Real* a = left.start + panel * left.panel_stride;
    const Real* b = right.start + panel * right.panel_stride;
    for (int64_t k = 0; k < depth; k++) {
      Vec<Real> row[NV];
      for (int j = 0; j < NV; j++) row[j] = load(b + j * L);
      for (int i = 0; i < MR; i++) {
        const Vec<Real> value = all(a[i * left.row_stride]);
        for (int j = 0; j < NV; j++) sum[i][j] += value * row[j];
      }
      a += left.depth_stride;
      b += right.depth_stride;
    }
  }
  for (int i = 0; i < MR; i++)
    for (int j = 0; j < NV; j++) store(c + i * c_stride + j * L, sum[i][j]);
}

// A block of `rows` rows, at most MR of them.
template <class Real, int MR, int NV>
inline void multiply_few(int64_t rows, Left<Real> left, Right<Real> right, int64_t depth, int64_t panels, Real* c,
                         int64_t c_stride) {
  if constexpr (MR > 1)
    if (rows < MR) return multiply_few<Real, MR - 1, NV>(rows, left, right, depth, panels, c, c_stride);
  multiply_block<Real, MR, NV>(left, right, depth, panels, c, c_stride);
}

// Any number of rows, in blocks as even as can be.
template <class Real, int NV>
void multiply_rows(int64_t rows, Left<Real> left, Right<Real> right, int64_t depth, int64_t panels, Real* c,
                   int64_t c_stride) {
  constexpr int most = block_rows(NV);
  int64_t blocks = (rows + most - 1) / most;
  for (; rows > 0; blocks--) {
    const int64_t take = (rows + blocks - 1) / blocks;
    multiply_few<Real, most, NV>(take, left, right, depth, panels, c, c_stride);
    left.start += take * left.row_stride;
    c += take * c_stride;
    rows -= take;
  }
}

// C of up to four vectors, the width known only at run time (the last panel of a matrix).
template <class Real>
void multiply_width(int vectors, int64_t rows, Left<Real> left, Right<Real> right, int64_t depth, int64_t panels,
                    Real* c, int64_t c_stride) {
  switch (vectors) {
    case 1: return multiply_rows<Real, 1>(rows, left, right, depth, panels, c, c_stride);
    case 2: return multiply_rows<Real, 2>(rows, left, right, depth, panels, c, c_stride);
    case 3: return multiply_rows<Real, 3>(rows, left, right, depth, panels, c, c_stride);
    default:
      if constexpr (LOWTIDE_REGISTERS == 32) multiply_rows<Real, 4>(rows, left, right, depth, panels, c, c_stride);
  }
}

// C of exactly WIDE vectors, in passes that fit the registers.
template <class Real, int WIDE>
void multiply_tile(int64_t rows, Left<Real> left, Right<Real> right, int64_t depth, int64_t panels, Real* c,
                   int64_t c_stride) {
  constexpr int pass = pass_vectors(WIDE);
  for (int j = 0; j < WIDE; j += pass) {
    Right<Real> part = right;
    part.start += j * lanes<Real>;
    multiply_rows<Real, pass>(rows, left, part, depth, panels, c + j * lanes<Real>, c_stride);
  }
}

}  // namespace
