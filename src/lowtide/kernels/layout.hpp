// Where rows lie in memory, and how work is dealt out.
#pragma once

#include "problem.hpp"
#include "threads.hpp"
#include "vec.hpp"

namespace {

using lowtide::Member;
using lowtide::Rows;

// The order in which one direction visits its rows. Processing step s is time s, or T-1-s in reverse.
struct Schedule {
  int64_t steps = 0;                         // T
  int64_t batch = 0;                         // B
  bool reverse = false;
  const int64_t* rows_at_time = nullptr;     // [T] falling; null: always B
  const int64_t* start_at_time = nullptr;    // [T + 1] rows before time t; null: t * B
  const int64_t* start_at_step = nullptr;    // [T + 1] rows before processing step s; null: s * B

  int64_t time(int64_t s) const { return reverse ? steps - 1 - s : s; }
  int64_t rows(int64_t s) const { return rows_at_time ? rows_at_time[time(s)] : batch; }
  int64_t start(int64_t s) const { return start_at_step ? start_at_step[s] : s * batch; }
  int64_t compact(int64_t t) const { return start_at_time ? start_at_time[t] : t * batch; }
};

// Rows of inputs and hidden states are gathered in panels of this many features, zero-padded.
constexpr int64_t panel_features = 16;

template <class Real>
inline Real* row_at(const Rows& rows, int64_t t, int64_t b) {
  const int64_t step = rows.step_start ? rows.step_start[t] * rows.row_stride : t * rows.step_stride;
  const int64_t place = rows.row_index ? rows.row_index[b] : b;
  return (Real*)rows.base + (step + place * rows.row_stride - rows.origin);
}

// Part `id` of `count` even parts of [0, total).
struct Share {
  int64_t begin, end;
  Share(int64_t total, int64_t id, int64_t count) : begin(total * id / count), end(total * (id + 1) / count) {}
};

// What one member does of a chunk's sequential phase: some sequences with all units, or all sequences with some units.
struct Group {
  int64_t b0, b1;  // sequences
  int64_t p0, p1;  // panels of units
  bool by_units;   // neighbours need each other's units at every step

  int64_t rows(const Schedule& when, int64_t s) const { return larger(smaller(when.rows(s), b1) - b0, 0); }
};

// Rows of steps [s0, s1) that belong to sequences below b.
inline int64_t rows_below(const Schedule& when, int64_t s0, int64_t s1, int64_t b) {
  if (!when.rows_at_time) return (s1 - s0) * smaller(b, when.batch);
  int64_t sum = 0;
  for (int64_t s = s0; s < s1; s++) sum += smaller(when.rows(s), b);
  return sum;
}

// The first sequence of part `id`, so that the parts of steps [s0, s1) hold about as many rows each.
inline int64_t first_sequence(const Schedule& when, int64_t s0, int64_t s1, int64_t id, int64_t count) {
  if (!when.rows_at_time) return when.batch * id / count;
  if (id >= count) return when.batch;
  const int64_t wanted = rows_below(when, s0, s1, when.batch) * id / count;
  int64_t low = 0, high = when.batch;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (rows_below(when, s0, s1, middle) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Calls visit(r, s, b) for rows [begin, end) of a group's rows in steps [s0, s1), r counting from 0 at (s0, b0).
template <class Visit>
inline void for_rows(const Schedule& when, const Group& group, int64_t s0, int64_t s1, int64_t begin, int64_t end,
                     Visit visit) {
  int64_t r = 0;
  for (int64_t s = s0; s < s1 && r < end; s++) {
    const int64_t n = group.rows(when, s);
    for (int64_t k = larger(begin - r, 0); k < n && r + k < end; k++) visit(r + k, s, group.b0 + k);
    r += n;
  }
}

// Bits over a compact [R][width] array; a kept element is scaled, a dropped one multiplied by zero, as torch does.
template <class Real>
struct Dropout {
  const uint8_t* bits;  // null: nothing is dropped
  int64_t width;
  Real scale;

  Real factor(int64_t row, int64_t feature) const {
    const int64_t bit = row * width + feature;
    return (bits[bit >> 3] >> (bit & 7)) & 1 ? scale : Real(0);
  }
};

// Memory handed out piece by piece. With no base it only counts, which tells how much to ask for.
struct Arena {
  char* base = nullptr;
  size_t used = 0;

  template <class Real>
  Real* take(int64_t count) {
    char* piece = base ? base + used : nullptr;
    // one cache line between neighbours keeps equal powers of two from falling on the same sets
    used += ((size_t)count * sizeof(Real) + 127) / 64 * 64;
    return (Real*)piece;
  }
};

}  // namespace
