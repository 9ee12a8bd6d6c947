// Scratch memory of a call, on huge pages where it is large.
#include "scratch.hpp"

#include <cstdlib>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace lowtide {
namespace {

constexpr size_t huge_page = size_t{2} << 20;
constexpr size_t cache_line = 64;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

bool wants_huge_pages(size_t bytes) { return bytes >= 2 * huge_page; }

}  // namespace

// From malloc rather than from the kernel: where malloc is told to hold on to what is freed, no page is faulted twice.
void* scratch_take(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, wants_huge_pages(bytes) ? huge_page : cache_line, bytes == 0 ? 1 : bytes) != 0)
    return nullptr;
  prefer_huge_pages(memory, bytes);
  return memory;
}

void scratch_give(void* memory) { std::free(memory); }

void prefer_huge_pages(void* memory, size_t bytes) {
#ifdef __linux__
  if (!wants_huge_pages(bytes)) return;
  // Partial huge pages at the ends stay on small pages: they would be charged whole.
  const size_t address = reinterpret_cast<size_t>(memory);
  const size_t begin = round_up(address, huge_page);
  const size_t end = (address + bytes) / huge_page * huge_page;
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)memory;
  (void)bytes;
#endif
}

}  // namespace lowtide
