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

void* scratch_take(size_t bytes) {
#ifdef __linux__
  if (wants_huge_pages(bytes)) {
    // A little more than asked, so that the part in use can begin on a huge page; untouched pages cost nothing.
    const size_t whole = round_up(bytes, cache_line) + huge_page;
    void* mapped = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    const size_t address = reinterpret_cast<size_t>(mapped);
    const size_t start = round_up(address, huge_page);
    if (start > address) munmap(mapped, start - address);
    const size_t used = round_up(bytes, 4096);
    const size_t rest = address + whole - (start + used);
    if (rest > 0) munmap(reinterpret_cast<void*>(start + used), rest);
    prefer_huge_pages(reinterpret_cast<void*>(start), bytes);
    return reinterpret_cast<void*>(start);
  }
#endif
  return std::aligned_alloc(cache_line, round_up(bytes == 0 ? 1 : bytes, cache_line));
}

void scratch_give(void* memory, size_t bytes) {
#ifdef __linux__
  if (wants_huge_pages(bytes)) {
    munmap(memory, round_up(bytes, 4096));
    return;
  }
#endif
  (void)bytes;
  std::free(memory);
}

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
