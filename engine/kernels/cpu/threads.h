// Work on OpenMP's threads, which are the ones that torch uses, so that no second thread pool competes for the cores.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

#include "gate.h"
#include "share.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace agon {

// Calls body(item) for every item of [0, num_items); each thread has a contiguous range.
template <typename Body>
inline void parallel_for(int64_t num_items, int num_threads, const Body& body) {
  if (num_threads <= 1 || num_items <= 1) {
    for (int64_t item = 0; item < num_items; item++) body(item);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(num_threads)
  for (int64_t item = 0; item < num_items; item++) body(item);
}

// One thread of a team. All threads of a team go through the same phases of work in the same order.
class Team {
 public:
  Team(int thread, int num_threads, Gate* gate, Share* shares)
      : thread(thread), num_threads(num_threads), gate_(gate), shares_(shares) {}

  const int thread, num_threads;

  // A phase: body(item, next) is called once for every item of [0, total), by any thread. next: the item that this
  // thread most likely does next in this phase; -1: none. Returns when all items are done.
  //
  // Every thread begins with its own share, which is the same in every phase, and then helps the others with theirs. So
  // if the system takes a thread off its core, the others wait only for the item that it holds.
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
    for (int helped = 0; helped < num_threads && !gate_->is_behind(phase); helped++) {
      const int owner = (thread + helped) % num_threads;
      const bool is_own = helped == 0;
      const Range whole = part_of(total, owner, num_threads);
      for (int64_t item; (item = shares_[owner].take(phase, whole, is_own)) >= 0; num_done++)
        body(item, is_own ? (item + 1 < whole.last ? item + 1 : -1) : (item > whole.first ? item - 1 : -1));
    }
    if (num_done > 0 && gate_->finish(phase, num_done, total)) return;
    gate_->wait(phase, [this] {
      if (ahead_ < ahead_end_) __builtin_prefetch(ahead_, 0, 2);
      ahead_ += 64;
    });
  }

  // This thread's own share of a phase.
  Range share(int64_t total) const { return part_of(total, thread, num_threads); }

  // Announces memory that this thread reads in a later phase, from its beginning on. It is prefetched while the thread
  // waits.
  void expect(const void* from, int64_t bytes) {
    ahead_ = static_cast<const char*>(from);
    ahead_end_ = ahead_ + std::min(bytes, kMostAhead);
  }

  // The next `bytes` of that memory, for the caller to prefetch; `instead` if all of it has been fetched.
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
  Gate* gate_;
  Share* shares_;  // by thread
};

// Calls body(team) on every thread of a team.
template <typename Body>
inline void with_team(int num_threads, const Body& body) {
#if defined(_OPENMP)
  if (num_threads > 1) {
    Gate gate;
    std::vector<Share> shares(num_threads);
#pragma omp parallel num_threads(num_threads)
    {
      Team team(omp_get_thread_num(), omp_get_num_threads(), &gate, shares.data());
      body(team);
    }
    return;
  }
#endif
  Team alone(0, 1, nullptr, nullptr);
  body(alone);
}

}  // namespace agon
