// A team of threads that runs one task together, and the barrier between its phases.
//
// Nothing here is inline: code compiled for a newer instruction set must not emit what older machines might link to.
#pragma once

#include <stddef.h>

namespace lowtide {

struct Team;

struct Member {
  int id;      // 0 .. count-1
  int count;   // members that really run, at most what was asked for
  Team* team;
};

using Task = void (*)(void* context, Member me);

// Runs task on up to `threads` threads, the caller among them, and returns when all are done.
void run_team(int threads, Task task, void* context);

// Waits until every member of the team has arrived.
void team_barrier(const Member& me);

// Looks for an OpenMP runtime among the libraries that `library` (already loaded) depends on. From then on teams run
// on it, so that they never fight its spinning threads. Returns whether one was found.
bool adopt_openmp(const char* library);

// "openmp" or "own".
const char* team_source();

}  // namespace lowtide
