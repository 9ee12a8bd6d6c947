// The Python face of the kernels: calls on raw addresses, described by a `StackCall` that Python fills in.
//
// Nothing here knows a framework. lowtide/kernels/__init__.py gives it its Python types.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "dispatch.hpp"
#include "problem.hpp"
#include "ragged.hpp"
#include "scratch.hpp"
#include "threads.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using lowtide::Cell;
using lowtide::Keep;
using lowtide::KernelTable;
using lowtide::LayerCall;
using lowtide::PaddedSteps;
using lowtide::Rows;
using lowtide::StackCall;
using lowtide::Status;
using lowtide::StepSpan;
using lowtide::StepTable;

namespace {

// Python holds addresses as integers.
template <class Class, class Pointer>
void address(nb::class_<Class>& type, const char* name, Pointer Class::* member) {
  type.def_prop_rw(
      name, [member](const Class& self) { return reinterpret_cast<uintptr_t>(self.*member); },
      [member](Class& self, uintptr_t value) { self.*member = reinterpret_cast<Pointer>(value); });
}

// A call together with its layers, which it owns.
struct Call {
  StackCall stack{};
  std::vector<LayerCall> layers;

  Call(int64_t layer_count, int64_t directions) : layers(static_cast<size_t>(layer_count * directions)) {
    stack.layers = layer_count;
    stack.directions = directions;
    stack.chunk_steps = stack.state_steps = stack.threads = 1;
    stack.dropout_scale = 1.0;
  }

  // The pieces of the description that would otherwise lead to wild reads.
  const StackCall& checked() {
    if (stack.steps < 1 || stack.batch < 1 || stack.hidden < 1 || stack.inputs < 0 || stack.threads < 1)
      throw std::invalid_argument("steps, batch, hidden and threads are at least 1, inputs at least 0");
    if (stack.chunk_steps < 1 || stack.state_steps % stack.chunk_steps != 0 || stack.state_steps < 1)
      throw std::invalid_argument("state_steps is a positive multiple of chunk_steps");
    if (stack.keep == Keep::boundaries && stack.directions == 1 && stack.layers > 1 &&
        stack.state_steps != stack.chunk_steps)
      throw std::invalid_argument("under \"boundaries\" state_steps equals chunk_steps");
    if (stack.directions == 2 && stack.start_at_time && !stack.start_at_step_reverse)
      throw std::invalid_argument("the reverse direction needs start_at_step_reverse");
    for (const LayerCall& layer : layers)
      if (!layer.w_ih || !layer.w_hh) throw std::invalid_argument("every layer needs its weights");
    stack.call = layers.data();
    return stack;
  }
};

// A member of the description: addresses as integers, structs by reference so that Python can fill them in place.
template <class Value>
void field(nb::class_<Call>& type, const char* name, Value StackCall::* member) {
  if constexpr (std::is_pointer_v<Value>)
    type.def_prop_rw(
        name, [member](const Call& self) { return reinterpret_cast<uintptr_t>(self.stack.*member); },
        [member](Call& self, uintptr_t value) { self.stack.*member = reinterpret_cast<Value>(value); });
  else if constexpr (std::is_same_v<Value, Rows>)
    type.def_prop_rw(
        name, [member](Call& self) -> Rows& { return self.stack.*member; },
        [member](Call& self, const Rows& value) { self.stack.*member = value; }, nb::rv_policy::reference_internal);
  else
    type.def_prop_rw(
        name, [member](const Call& self) { return self.stack.*member; },
        [member](Call& self, Value value) { self.stack.*member = value; });
}

const KernelTable& table_of(const std::string& isa) {
  if (isa.empty()) return lowtide::kernels();
  for (const KernelTable* table : lowtide::usable_kernels())
    if (isa == table->isa) return *table;
  throw std::invalid_argument("no kernels for instruction set '" + isa + "' on this machine");
}

void run(Call& call, const std::string& isa, Status (*KernelTable::* pass)(const StackCall&)) {
  const KernelTable& table = table_of(isa);
  const StackCall& stack = call.checked();
  Status status;
  {
    nb::gil_scoped_release release;
    status = (table.*pass)(stack);
  }
  if (status == Status::no_memory) throw std::bad_alloc();
}

}  // namespace

NB_MODULE(_native, module) {
  nb::enum_<Cell>(module, "Cell")
      .value("lstm", Cell::lstm)
      .value("gru", Cell::gru)
      .value("rnn_tanh", Cell::rnn_tanh)
      .value("rnn_relu", Cell::rnn_relu);
  nb::enum_<Keep>(module, "Keep")
      .value("gates", Keep::gates)
      .value("outputs", Keep::outputs)
      .value("boundaries", Keep::boundaries);

  nb::class_<Rows> rows(module, "Rows");
  rows.def(nb::init<>());
  rows.def_rw("step_stride", &Rows::step_stride).def_rw("row_stride", &Rows::row_stride);
  address(rows, "base", &Rows::base);
  address(rows, "step_start", &Rows::step_start);
  address(rows, "row_index", &Rows::row_index);

  nb::class_<LayerCall> layer(module, "LayerCall");
  address(layer, "w_ih", &LayerCall::w_ih);
  address(layer, "w_hh", &LayerCall::w_hh);
  address(layer, "b_ih", &LayerCall::b_ih);
  address(layer, "b_hh", &LayerCall::b_hh);
  address(layer, "h0", &LayerCall::h0);
  address(layer, "c0", &LayerCall::c0);
  address(layer, "hT", &LayerCall::hT);
  address(layer, "cT", &LayerCall::cT);
  address(layer, "mask", &LayerCall::mask);
  address(layer, "states", &LayerCall::states);
  address(layer, "gates", &LayerCall::gates);
  address(layer, "dhT", &LayerCall::dhT);
  address(layer, "dcT", &LayerCall::dcT);
  address(layer, "dh0", &LayerCall::dh0);
  address(layer, "dc0", &LayerCall::dc0);
  address(layer, "dw_ih", &LayerCall::dw_ih);
  address(layer, "dw_hh", &LayerCall::dw_hh);
  address(layer, "db_ih", &LayerCall::db_ih);
  address(layer, "db_hh", &LayerCall::db_hh);

  nb::class_<Call> call(module, "Call");
  call.def(nb::init<int64_t, int64_t>(), "layers"_a, "directions"_a);
  call.def("layer", [](Call& self, size_t index) -> LayerCall& { return self.layers.at(index); },
           nb::rv_policy::reference_internal);
  field(call, "cell", &StackCall::cell);
  field(call, "keep", &StackCall::keep);
  field(call, "is_double", &StackCall::is_double);
  field(call, "steps", &StackCall::steps);
  field(call, "batch", &StackCall::batch);
  field(call, "inputs", &StackCall::inputs);
  field(call, "hidden", &StackCall::hidden);
  field(call, "total_rows", &StackCall::total_rows);
  field(call, "chunk_steps", &StackCall::chunk_steps);
  field(call, "state_steps", &StackCall::state_steps);
  field(call, "threads", &StackCall::threads);
  field(call, "dropout_scale", &StackCall::dropout_scale);
  field(call, "zero_padding", &StackCall::zero_padding);
  field(call, "x", &StackCall::x);
  field(call, "y", &StackCall::y);
  field(call, "dy", &StackCall::dy);
  field(call, "dx", &StackCall::dx);
  field(call, "rows_at_time", &StackCall::rows_at_time);
  field(call, "start_at_time", &StackCall::start_at_time);
  field(call, "start_at_step_reverse", &StackCall::start_at_step_reverse);
  field(call, "inner", &StackCall::inner);

  module.def(
      "sizes",
      [](Call& self, const std::string& isa) {
        self.stack.call = self.layers.data();
        const lowtide::Sizes sizes = table_of(isa).sizes(self.stack);
        return nb::make_tuple(sizes.state_elements, sizes.gate_elements);
      },
      "call"_a, "isa"_a = "");
  module.def("forward", [](Call& self, const std::string& isa) { run(self, isa, &KernelTable::forward); }, "call"_a,
             "isa"_a = "");
  module.def("backward", [](Call& self, const std::string& isa) { run(self, isa, &KernelTable::backward); }, "call"_a,
             "isa"_a = "");
  module.def(
      "activate",
      [](const std::string& function, bool is_double, uintptr_t in, uintptr_t out, int64_t count,
         const std::string& isa) {
        table_of(isa).activate(is_double, function == "sigmoid" ? 0 : 1, reinterpret_cast<const void*>(in),
                               reinterpret_cast<void*>(out), count);
      },
      "function"_a, "is_double"_a, "source"_a, "target"_a, "count"_a, "isa"_a = "");
  module.def(
      "prefer_huge_pages",
      [](uintptr_t memory, size_t bytes) { lowtide::prefer_huge_pages(reinterpret_cast<void*>(memory), bytes); },
      "memory"_a, "size"_a);
  nb::class_<PaddedSteps> padded(module, "PaddedSteps");
  padded.def(nb::init<>());
  padded.def_rw("rows", &PaddedSteps::rows).def_rw("steps", &PaddedSteps::steps);
  padded.def_rw("row_stride", &PaddedSteps::row_stride).def_rw("step_stride", &PaddedSteps::step_stride);
  padded.def_rw("step_bytes", &PaddedSteps::step_bytes);
  address(padded, "base", &PaddedSteps::base);
  module.def(
      "copy_steps",
      [](uintptr_t tables, int64_t table_count, uintptr_t spans, int64_t span_count, const PaddedSteps& out) {
        return lowtide::copy_steps(reinterpret_cast<const StepTable*>(tables), table_count,
                                   reinterpret_cast<const StepSpan*>(spans), span_count, out);
      },
      "tables"_a, "table_count"_a, "spans"_a, "span_count"_a, "out"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "clear_padding",
      [](uintptr_t lengths, const PaddedSteps& out) {
        lowtide::clear_padding(reinterpret_cast<const int64_t*>(lengths), out);
      },
      "lengths"_a, "out"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def("isa", [] { return std::string(lowtide::kernels().isa); });
  module.def("usable_isas", [] {
    std::vector<std::string> names;
    for (const KernelTable* table : lowtide::usable_kernels()) names.emplace_back(table->isa);
    return names;
  });
  module.def("adopt_openmp", [](const std::string& library) { return lowtide::adopt_openmp(library.c_str()); },
             "library"_a);
  module.def("team_source", [] { return std::string(lowtide::team_source()); });
}
