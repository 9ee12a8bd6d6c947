// The barrier of a team, and the two kinds of team: the OpenMP runtime's that the process uses already, or a pool.
#include "threads.hpp"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#ifndef _WIN32
#include <dlfcn.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace lowtide {

// ---- barrier ---------------------------------------------------------------------------------------------------------

// Spins for about this many looks, then yields between looks: on a shared core the awaited thread needs the core.
constexpr int spins_before_yield = 2000;

struct Team {
  explicit Team(int members) : size(members) {}
  int size;
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<int> round{0};
};

namespace {

void pause_briefly() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__) && defined(__clang__)
  __builtin_arm_yield();
#endif
}

// ---- floating-point mode ---------------------------------------------------------------------------------------------

// Rounding and the handling of denormals, as the calling thread has them.
struct FloatMode {
#if defined(__x86_64__) || defined(_M_X64)
  unsigned bits = _mm_getcsr() & ~unsigned(_MM_EXCEPT_MASK);
  void apply() const { _mm_setcsr(bits); }
#elif defined(__aarch64__)
  uint64_t bits = __builtin_aarch64_get_fpcr64();
  void apply() const { __builtin_aarch64_set_fpcr64(bits); }
#else
  void apply() const {}
#endif
};

struct Job {
  Task task;
  void* context;
  Team* team;
  FloatMode mode;

  void run(int id) const {
    mode.apply();
    task(context, Member{id, team->size, team});
  }
};

void run_alone(Task task, void* context) {
  Team team(1);
  task(context, Member{0, 1, &team});
}

// ---- the team of an OpenMP runtime -----------------------------------------------------------------------------------

struct OpenMp {
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*thread_number)() = nullptr;
  int (*thread_count)() = nullptr;
  int (*in_parallel)() = nullptr;
  bool usable() const { return parallel && thread_number && thread_count && in_parallel; }
};

OpenMp openmp;
// A child of fork has none of its parent's threads: OpenMP would wait for them for ever.
std::atomic<bool> forked{false};

// The team may turn out smaller than asked; everybody learns its size before the first barrier.
void run_member(void* job) {
  Job* shared = static_cast<Job*>(job);
  Job mine = *shared;
  const FloatMode before;
  mine.mode.apply();
  mine.task(mine.context, Member{openmp.thread_number(), openmp.thread_count(), mine.team});
  before.apply();
}

void run_openmp(int threads, Task task, void* context) {
  Team team(threads);
  Job job{task, context, &team, FloatMode{}};
  openmp.parallel(run_member, &job, static_cast<unsigned>(threads), 0);
}

// ---- a pool of our own -----------------------------------------------------------------------------------------------

class Pool {
 public:
  // False when another call is using the pool: the caller then works alone rather than waiting.
  bool run(int threads, Task task, void* context) {
    std::unique_lock<std::mutex> busy(in_use_, std::try_to_lock);
    if (!busy.owns_lock()) return false;
    grow(threads - 1);
    Team team(threads);
    Job job{task, context, &team, FloatMode{}};
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      job_ = &job;
      members_ = threads;
      pending_ = threads - 1;
      round_++;
    }
    wake_.notify_all();
    job.run(0);
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return pending_ == 0; });
    return true;
  }

 private:
  void grow(int workers) {
    while (static_cast<int>(started_) < workers) {
      const int id = static_cast<int>(++started_);
      const uint64_t seen = round_;
      std::thread([this, id, seen] { work(id, seen); }).detach();
    }
  }

  void work(int id, uint64_t seen) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (id >= members_) continue;
      const Job job = *job_;
      lock.unlock();
      job.run(id);
      lock.lock();
      if (--pending_ == 0) done_.notify_one();
    }
  }

  std::mutex in_use_, mutex_;
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  int members_ = 0, pending_ = 0;
  uint64_t round_ = 0;
  size_t started_ = 0;
};

// Never destroyed: its threads may outlive the library's other statics. A child of fork gets a new one.
std::atomic<Pool*> pool{nullptr};

Pool& own_pool() {
  Pool* current = pool.load(std::memory_order_acquire);
  if (current) return *current;
  Pool* made = new Pool;
  if (pool.compare_exchange_strong(current, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *current;
}

void after_fork_in_child() {
  forked.store(true);
  pool.store(nullptr);
}

const int fork_handler = pthread_atfork(nullptr, nullptr, after_fork_in_child);

bool uses_openmp() { return openmp.usable() && !forked.load(); }

}  // namespace

void team_barrier(const Member& me) {
  if (me.count == 1) return;
  Team& team = *me.team;
  const int round = team.round.load(std::memory_order_acquire);
  if (team.arrived.fetch_add(1, std::memory_order_acq_rel) == me.count - 1) {
    team.arrived.store(0, std::memory_order_relaxed);
    team.round.store(round + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; team.round.load(std::memory_order_acquire) == round; spins++) {
    if (spins < spins_before_yield) pause_briefly();
    else sched_yield();
  }
}

void run_team(int threads, Task task, void* context) {
  if (threads <= 1) return run_alone(task, context);
  if (uses_openmp()) {
    if (openmp.in_parallel()) return run_alone(task, context);
    return run_openmp(threads, task, context);
  }
  if (!own_pool().run(threads, task, context)) run_alone(task, context);
}

bool adopt_openmp(const char* library) {
#ifndef _WIN32
  void* handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
  if (!handle) return false;
  OpenMp found;
  // A look-up through a library's handle goes on to what it depends on: the very runtime that it uses itself.
  found.parallel = reinterpret_cast<decltype(found.parallel)>(dlsym(handle, "GOMP_parallel"));
  found.thread_number = reinterpret_cast<decltype(found.thread_number)>(dlsym(handle, "omp_get_thread_num"));
  found.thread_count = reinterpret_cast<decltype(found.thread_count)>(dlsym(handle, "omp_get_num_threads"));
  found.in_parallel = reinterpret_cast<decltype(found.in_parallel)>(dlsym(handle, "omp_in_parallel"));
  if (found.usable()) openmp = found;
  return found.usable();
#else
  (void)library;
  return false;
#endif
}

const char* team_source() { return uses_openmp() ? "openmp" : "own"; }

}  // namespace lowtide
