// Which instruction set's kernels run: the best that this machine has, or the one that LOWTIDE_ISA names.
#include "dispatch.hpp"

#include <cstdlib>
#include <stdexcept>

namespace lowtide {

#ifdef LOWTIDE_HAS_X86
extern const KernelTable kernels_baseline, kernels_avx2, kernels_avx512;
#endif
#ifdef LOWTIDE_HAS_NEON
extern const KernelTable kernels_neon;
#endif

std::vector<const KernelTable*> usable_kernels() {
  std::vector<const KernelTable*> usable;
#ifdef LOWTIDE_HAS_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    usable.push_back(&kernels_avx512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) usable.push_back(&kernels_avx2);
  usable.push_back(&kernels_baseline);
#endif
#ifdef LOWTIDE_HAS_NEON
  usable.push_back(&kernels_neon);
#endif
  return usable;
}

namespace {

const KernelTable& choose() {
  const std::vector<const KernelTable*> usable = usable_kernels();
  const char* wanted = std::getenv("LOWTIDE_ISA");
  if (!wanted || !*wanted) return *usable.front();
  std::string names;
  for (const KernelTable* table : usable) {
    if (std::string(table->isa) == wanted) return *table;
    names += (names.empty() ? "" : ", ") + std::string(table->isa);
  }
  throw std::invalid_argument("LOWTIDE_ISA is '" + std::string(wanted) + "', but this machine can run: " + names);
}

}  // namespace

const KernelTable& kernels() {
  static const KernelTable& chosen = choose();
  return chosen;
}

}  // namespace lowtide
