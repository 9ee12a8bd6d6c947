#include "ragged.hpp"

#include <string.h>

namespace {

using lowtide::PaddedSteps;
using lowtide::StepSpan;
using lowtide::StepTable;

int64_t offset_at(const StepTable& table, int64_t row) {
  int64_t value;
  memcpy(&value, (const char*)table.offsets + row * (int64_t)sizeof value, sizeof value);
  return value;
}

bool lies_inside(const StepTable& table, const StepSpan& span, const PaddedSteps& out) {
  if (span.row < 0 || span.row >= table.rows || span.start < 0 || span.stop < span.start) return false;
  const int64_t first = offset_at(table, span.row), end = offset_at(table, span.row + 1);
  if (first < 0 || end < first || end > table.steps || span.stop > end - first) return false;
  return span.out_row >= 0 && span.out_row < out.rows && span.out_step >= 0 &&
         span.stop - span.start <= out.steps - span.out_step;
}

// A size that is known when this is compiled becomes a load and a store.
template <size_t Bytes>
void scatter(const char* from, char* to, int64_t count, int64_t stride) {
  for (int64_t step = 0; step < count; step++) memcpy(to + step * stride, from + step * (int64_t)Bytes, Bytes);
}

void copy_run(const char* from, char* to, int64_t count, const PaddedSteps& out) {
  if (out.step_stride == out.step_bytes) {
    if (count) memcpy(to, from, (size_t)(count * out.step_bytes));
    return;
  }
  switch (out.step_bytes) {
    case 1: return scatter<1>(from, to, count, out.step_stride);
    case 2: return scatter<2>(from, to, count, out.step_stride);
    case 4: return scatter<4>(from, to, count, out.step_stride);
    case 8: return scatter<8>(from, to, count, out.step_stride);
    case 16: return scatter<16>(from, to, count, out.step_stride);
    case 32: return scatter<32>(from, to, count, out.step_stride);
    case 64: return scatter<64>(from, to, count, out.step_stride);
  }
  for (int64_t step = 0; step < count; step++)
    memcpy(to + step * out.step_stride, from + step * out.step_bytes, (size_t)out.step_bytes);
}

}  // namespace

namespace lowtide {

int64_t copy_steps(const StepTable* tables, int64_t table_count, const StepSpan* spans, int64_t span_count,
                   const PaddedSteps& out) {
  for (int64_t number = 0; number < span_count; number++) {
    const StepSpan& span = spans[number];
    if (span.table < 0 || span.table >= table_count || !lies_inside(tables[span.table], span, out)) return number;
  }
  for (int64_t number = 0; number < span_count; number++) {
    const StepSpan& span = spans[number];
    const StepTable& table = tables[span.table];
    const char* from = table.values + (offset_at(table, span.row) + span.start) * out.step_bytes;
    copy_run(from, out.base + span.out_row * out.row_stride + span.out_step * out.step_stride, span.stop - span.start,
             out);
  }
  return -1;
}

void clear_padding(const int64_t* lengths, const PaddedSteps& out) {
  for (int64_t row = 0; row < out.rows; row++) {
    char* place = out.base + row * out.row_stride;
    if (out.step_stride == out.step_bytes) {
      const int64_t spare = out.steps - lengths[row];
      if (spare > 0) memset(place + lengths[row] * out.step_bytes, 0, (size_t)(spare * out.step_bytes));
      continue;
    }
    for (int64_t step = lengths[row]; step < out.steps; step++)
      memset(place + step * out.step_stride, 0, (size_t)out.step_bytes);
  }
}

}  // namespace lowtide
