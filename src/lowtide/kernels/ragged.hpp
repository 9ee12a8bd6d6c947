// Steps of many sequences, copied from the tables that they lie in: to one run, or to the rows of a padded array.
//
// Tables may come from a damaged file, so every offset is checked before it is used.
#pragma once

#include <stdint.h>

namespace lowtide {

// Rows of steps, one behind the other. Eight bytes a member, for Python fills these in as an array of numbers.
struct StepTable {
  const int64_t* offsets;  // [rows + 1] where each row's steps begin; anywhere in memory, also unaligned
  const char* values;      // [steps][step_bytes]
  int64_t rows;
  int64_t steps;
};

// Steps [start, stop) of one row of a table, and where the first of them goes.
struct StepSpan {
  int64_t table, row, start, stop, out_row, out_step;
};

// [rows][steps], each step one run of bytes.
struct PaddedSteps {
  char* base;
  int64_t rows, steps;
  int64_t row_stride, step_stride;  // in bytes
  int64_t step_bytes;
};

// Copies all spans, which do not overlap in `out`. Returns -1, or the number of a span that does not lie inside its
// table or `out`: then nothing is written.
int64_t copy_steps(const StepTable* tables, int64_t table_count, const StepSpan* spans, int64_t span_count,
                   const PaddedSteps& out);

// Zeros behind the first lengths[row] steps of each row.
void clear_padding(const int64_t* lengths, const PaddedSteps& out);

}  // namespace lowtide
