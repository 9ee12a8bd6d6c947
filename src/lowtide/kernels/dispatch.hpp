// Which instruction set's kernels run here.
#pragma once

#include <string>
#include <vector>

#include "problem.hpp"

namespace lowtide {

// Those that were built and that this machine can run, the fastest first.
std::vector<const KernelTable*> usable_kernels();

// The kernels in use: the fastest, or the one that the environment variable LOWTIDE_ISA names. Throws
// std::invalid_argument where it names none that can run here.
const KernelTable& kernels();

}  // namespace lowtide
