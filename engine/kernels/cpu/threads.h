// Work split over OpenMP's threads: those that torch already keeps, so that no second pool competes for the cores.
#pragma once

#include <cstdint>

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

}  // namespace agon
