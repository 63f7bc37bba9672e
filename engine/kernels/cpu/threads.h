// Work split over OpenMP's threads: those that torch already keeps, so that no second pool competes for the cores.
#pragma once

#include <algorithm>
#include <cstdint>

#include "barrier.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace agon {

struct Range {
  int64_t first, last;  // [first, last)
};

// Part `which` of `count` nearly equal parts of [0, total).
inline Range part_of(int64_t total, int64_t which, int64_t count) {
  return {total * which / count, total * (which + 1) / count};
}

// body(item) for every item of [0, num_items), each thread a contiguous range.
template <typename Body>
inline void parallel_for(int64_t num_items, int num_threads, const Body& body) {
  if (num_threads <= 1 || num_items <= 1) {
    for (int64_t item = 0; item < num_items; item++) body(item);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(num_threads)
  for (int64_t item = 0; item < num_items; item++) body(item);
}

// One of the threads that go through a list of steps together: each takes its share of a step, then they meet.
class Team {
 public:
  Team(int thread, int num_threads, Barrier* barrier) : thread(thread), num_threads(num_threads), barrier_(barrier) {}

  const int thread, num_threads;

  Range share(int64_t total) const { return part_of(total, thread, num_threads); }

  // Memory that this thread reads in a later step, from its beginning on. Whoever has nothing better to do fetches it.
  void expect(const void* from, int64_t bytes) {
    ahead_ = static_cast<const char*>(from);
    ahead_end_ = ahead_ + std::min(bytes, kMostAhead);
  }

  // The next `bytes` of it for the caller to fetch on the way; `instead` where there is nothing left.
  const char* ahead(int64_t bytes, const void* instead) {
    if (ahead_ >= ahead_end_) return static_cast<const char*>(instead);
    const char* from = ahead_;
    ahead_ += bytes;
    return from;
  }

  // Until all have come here.
  void wait() {
    if (num_threads <= 1) return;
    barrier_->wait(num_threads, [this] {
      if (ahead_ < ahead_end_) __builtin_prefetch(ahead_, 0, 2);
      ahead_ += 64;
    });
  }

 private:
  static constexpr int64_t kMostAhead = 256 << 10;  // bytes: a quarter of a second level cache
  const char *ahead_ = nullptr, *ahead_end_ = nullptr;
  Barrier* barrier_;
};

// body(team) on every thread of a team.
template <typename Body>
inline void with_team(int num_threads, const Body& body) {
  Barrier barrier;
#if defined(_OPENMP)
  if (num_threads > 1) {
#pragma omp parallel num_threads(num_threads)
    {
      Team team(omp_get_thread_num(), omp_get_num_threads(), &barrier);
      body(team);
    }
    return;
  }
#endif
  Team alone(0, 1, &barrier);
  body(alone);
}

}  // namespace agon
