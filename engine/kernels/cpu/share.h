// The remaining items of a thread's share of a phase. Its owner takes items from the front, in order, so that it knows
// what it reads next; a thread that has finished its own share takes items from the back.
#pragma once

#include <atomic>
#include <cstdint>

namespace agon {

struct Range {
  int64_t first, last;  // [first, last)
};

// Part `which` of `count` nearly equal parts of [0, total).
inline Range part_of(int64_t total, int64_t which, int64_t count) {
  return {total * which / count, total * (which + 1) / count};
}

constexpr int64_t kMostItems = 1 << 20;  // in a share

class alignas(64) Share {
 public:
  // Takes an item of `whole`, the share in that phase; -1: all are taken. Phases are numbered in order.
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
  static uint64_t pack(Left left) { return uint64_t(left.phase) << 40 | uint64_t(left.first) << 20 | left.last; }
  static Left unpack(uint64_t word) {
    return {uint32_t(word >> 40), uint32_t(word >> 20) & 0xfffff, uint32_t(word) & 0xfffff};
  }

  std::atomic<uint64_t> left_{0};  // phase 0, no items: phases begin with 1
};

}  // namespace agon
