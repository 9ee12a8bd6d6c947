// Working memory for one call: aligned, on huge pages where it is large, given back as soon as the call ends.
#pragma once

#include <stddef.h>

namespace lowtide {

void* scratch_take(size_t bytes);  // null when there is none
void scratch_give(void* memory, size_t bytes);

}  // namespace lowtide
