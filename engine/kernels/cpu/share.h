// One thread's share of a phase's work items (work stealing). The owner takes items from the front, in order, so that
// it knows which item to prefetch next; threads that have finished their own share take items from the back.
#pragma once

#include <atomic>
#include <cstdint>

namespace agon {

// A half-open range of items, rows or panels.
struct Range {
  int64_t first, last;  // [first, last)
};

// Part `which` of `count` nearly equal parts of [0, total).
inline Range part_of(int64_t total, int64_t which, int64_t count) {
  return {total * which / count, total * (which + 1) / count};
}

constexpr int64_t kMostItems = 1 << 20;  // in a share: 20 bits

// The items of a share that are left, in one atomic word. Used by Team (threads.h), one for every thread of a team.
class alignas(64) Share {
 public:
  // Takes an item of `whole`, the share's range in that phase; returns -1 if all are taken. Phase numbers only grow.
  int64_t take(uint32_t phase, Range whole, bool from_front) {
    if (whole.first >= whole.last) return -1;
    uint64_t seen = left_.load(std::memory_order_relaxed);
    while (true) {
      Left left = unpack(seen);
      if (left.phase > phase) return -1;  // the other threads are in a later phase
      if (left.phase < phase) left = {phase, 0, uint32_t(whole.last - whole.first)};
      if (left.first >= left.last) return -1;
      const int64_t item = whole.first + (from_front ? left.first++ : --left.last);
      if (left_.compare_exchange_weak(seen, pack(left), std::memory_order_relaxed)) return item;
    }
  }

 private:
  struct Left {
    uint32_t phase, first, last;
  };
  // The word: phase (24 bits), first and last (20 bits each).
  static uint64_t pack(Left left) { return uint64_t(left.phase) << 40 | uint64_t(left.first) << 20 | left.last; }
  static Left unpack(uint64_t word) {
    return {uint32_t(word >> 40), uint32_t(word >> 20) & 0xfffff, uint32_t(word) & 0xfffff};
  }

  std::atomic<uint64_t> left_{0};  // phase 0, nothing left; phases are numbered from 1
};

}  // namespace agon
