// Parallel loops on OpenMP threads. torch keeps these threads anyway, so no second pool competes for the cores.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

#include "barrier.h"
#include "share.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace agon {

// Calls body(item) for every item of [0, num_items); each thread gets one contiguous range.
template <typename Body>
inline void parallel_for(int64_t num_items, int num_threads, const Body& body) {
  if (num_threads <= 1 || num_items <= 1) {
    for (int64_t item = 0; item < num_items; item++) body(item);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(num_threads)
  for (int64_t item = 0; item < num_items; item++) body(item);
}

// One thread of a team. All threads of a team execute the same phases of work in the same order; each has its own Team
// object, made by with_team().
class Team {
 public:
  Team(int thread, int num_threads, Barrier* barrier, Share* shares)
      : thread(thread), num_threads(num_threads), barrier_(barrier), shares_(shares) {}

  const int thread, num_threads;

  // Runs one phase: body(item, next) is called once for every item of [0, total), on one of the threads. next: the item
  // that the thread most likely does next in this phase, for prefetching; -1: none. Returns when all items are done.
  //
  // Every thread starts with its own share, the same part of the range in every phase, and then takes items from the
  // shares of other threads. So if the operating system takes a thread off its core, the others wait for at most the
  // item that it holds.
  template <typename Body>
  void each(int64_t total, const Body& body) {
    if (num_threads <= 1) {
      for (int64_t item = 0; item < total; item++) body(item, item + 1 < total ? item + 1 : -1);
      return;
    }
    if (total == 0) return;
    assert(total / num_threads < kMostItems);
    const uint32_t phase = phase_++;
    int64_t num_done = 0;
    for (int helped = 0; helped < num_threads && !barrier_->is_behind(phase); helped++) {
      const int owner = (thread + helped) % num_threads;
      const bool is_own = helped == 0;
      const Range whole = part_of(total, owner, num_threads);
      for (int64_t item; (item = shares_[owner].take(phase, whole, is_own)) >= 0; num_done++)
        body(item, is_own ? (item + 1 < whole.last ? item + 1 : -1) : (item > whole.first ? item - 1 : -1));
    }
    if (num_done > 0 && barrier_->finish(phase, num_done, total)) return;
    barrier_->wait(phase, [this] {
      if (ahead_ < ahead_end_) __builtin_prefetch(ahead_, 0, 2);
      ahead_ += 64;
    });
  }

  // This thread's own share of a phase of `total` items.
  Range share(int64_t total) const { return part_of(total, thread, num_threads); }

  // Names memory that this thread reads in a later phase, from its beginning on (at most kMostAhead bytes are used). It
  // is prefetched while the thread waits at the end of a phase, or by callers of ahead().
  void expect(const void* from, int64_t bytes) {
    ahead_ = static_cast<const char*>(from);
    ahead_end_ = ahead_ + std::min(bytes, kMostAhead);
  }

  // The next `bytes` of that memory, for the caller to prefetch while it computes; `instead` if nothing is left.
  const char* ahead(int64_t bytes, const void* instead) {
    if (ahead_ >= ahead_end_) return static_cast<const char*>(instead);
    const char* from = ahead_;
    ahead_ += bytes;
    return from;
  }

 private:
  static constexpr int64_t kMostAhead = 256 << 10;  // bytes: a quarter of a second level cache
  const char *ahead_ = nullptr, *ahead_end_ = nullptr;
  uint32_t phase_ = 1;
  Barrier* barrier_;
  Share* shares_;  // one per thread
};

// Runs body(team) on every thread of a new team; on the calling thread alone if num_threads is 1 or without OpenMP.
// Called by the exported functions.
template <typename Body>
inline void with_team(int num_threads, const Body& body) {
#if defined(_OPENMP)
  if (num_threads > 1) {
    Barrier barrier;
    std::vector<Share> shares(num_threads);
#pragma omp parallel num_threads(num_threads)
    {
      Team team(omp_get_thread_num(), omp_get_num_threads(), &barrier, shares.data());
      body(team);
    }
    return;
  }
#endif
  Team alone(0, 1, nullptr, nullptr);
  body(alone);
}

}  // namespace agon
