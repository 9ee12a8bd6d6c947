// Working memory for one call: aligned, on huge pages where it is large, given back as soon as the call ends.
#pragma once

#include <stddef.h>

namespace lowtide {

void* scratch_take(size_t bytes);  // null when there is none
void scratch_give(void* memory);

// Asks for huge pages in memory that is about to be written whole, where it is large: a page fault for each 4 KiB
// costs more than the arithmetic of a small layer. Only pages that lie inside are touched.
void prefer_huge_pages(void* memory, size_t bytes);

}  // namespace lowtide
