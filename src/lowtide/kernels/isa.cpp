// The kernels for one instruction set. Built once for each, with LOWTIDE_ISA, LOWTIDE_VECTOR_BYTES and
// LOWTIDE_REGISTERS set; dispatch.cpp chooses among them when the library is loaded.
#include "problem.hpp"
#include "scratch.hpp"
#include "stack.hpp"
#include "cell_gru.hpp"
#include "cell_lstm.hpp"
#include "cell_rnn.hpp"

namespace {

using lowtide::KernelTable;
using lowtide::Status;

template <class Cell>
struct Run {
  static Sizes sizes(const StackCall& call) {
    Stack<Cell> stack(call, false);
    stack.shape();
    Sizes sizes{};
    sizes.state_elements = call.keep == Keep::gates ? 0 : stack.state_elements();
    sizes.gate_elements = stack.keeps_gates() ? stack.widest.panels * call.total_rows * Cell::kept * lanes<typename Cell::Real> : 0;
    return sizes;
  }

  static void forward_task(void* stack, Member me) { ((const Stack<Cell>*)stack)->forward(me); }
  static void backward_task(void* stack, Member me) { ((const Stack<Cell>*)stack)->backward(me); }

  static Status run(const StackCall& call, bool backward) {
    Stack<Cell> stack(call, backward);
    stack.shape();
    Arena arena;
    stack.place(arena);
    const size_t bytes = arena.used;
    arena.base = (char*)lowtide::scratch_take(bytes);
    if (!arena.base) return Status::no_memory;
    arena.used = 0;
    stack.place(arena);
    lowtide::run_team((int)call.threads, backward ? backward_task : forward_task, &stack);
    lowtide::scratch_give(arena.base);
    return Status::ok;
  }

  static Status forward(const StackCall& call) { return run(call, false); }
  static Status backward(const StackCall& call) { return run(call, true); }
};

// The cell and real type that a call asks for, as a type.
template <class Result, class Real, class Do>
Result with_cell(const StackCall& call, Do act) {
  switch (call.cell) {
    case lowtide::Cell::lstm: return act(Run<Lstm<Real>>{});
    case lowtide::Cell::gru: return act(Run<Gru<Real>>{});
    case lowtide::Cell::rnn_tanh: return act(Run<Rnn<Real, false>>{});
    default: return act(Run<Rnn<Real, true>>{});
  }
}

template <class Result, class Do>
Result with_types(const StackCall& call, Do act) {
  return call.is_double ? with_cell<Result, double>(call, act) : with_cell<Result, float>(call, act);
}

Sizes sizes(const StackCall& call) {
  return with_types<Sizes>(call, [&](auto run) { return run.sizes(call); });
}
Status forward(const StackCall& call) {
  return with_types<Status>(call, [&](auto run) { return run.forward(call); });
}
Status backward(const StackCall& call) {
  return with_types<Status>(call, [&](auto run) { return run.backward(call); });
}

void activate_any(bool is_double, int function, const void* in, void* out, int64_t count) {
  if (is_double) activate<double>(function, (const double*)in, (double*)out, count);
  else activate<float>(function, (const float*)in, (float*)out, count);
}

}  // namespace

#define LOWTIDE_TEXT(name) #name
#define LOWTIDE_NAME(name) LOWTIDE_TEXT(name)
#define LOWTIDE_JOIN(a, b) a##b
#define LOWTIDE_TABLE(isa) LOWTIDE_JOIN(kernels_, isa)

namespace lowtide {

extern const KernelTable LOWTIDE_TABLE(LOWTIDE_ISA);
const KernelTable LOWTIDE_TABLE(LOWTIDE_ISA) = {LOWTIDE_NAME(LOWTIDE_ISA), sizes, forward, backward, activate_any};

}  // namespace lowtide
