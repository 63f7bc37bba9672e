// The states of one recurrent layer in pages, for the sequences of a step: StatesInPlace in
// engine/kernels/state_kernels.py. Callers: causal_conv.cpp, selective_scan.cpp and head_scan.cpp.
#pragma once

#include <cstdint>

#include "share.h"

namespace agon {

// S: the type in pages.
template <typename S>
struct States {
  S* pages;
  int64_t page_stride;  // elements
  const int64_t* page_ids;      // [sequences]; -1: padding, whose output is zero
  const int32_t* starts;        // [sequences]; 0: the sequence has no state yet, whatever its page holds
  const int32_t* query_starts;  // [sequences + 1]
  int64_t num_sequences;

  // A sequence's state, or null if it is padding.
  S* state(int64_t sequence) const {
    return page_ids[sequence] < 0 ? nullptr : pages + page_ids[sequence] * page_stride;
  }
  bool is_new(int64_t sequence) const { return starts[sequence] == 0; }
  // Rows of a sequence's tokens.
  Range tokens(int64_t sequence) const { return {query_starts[sequence], query_starts[sequence + 1]}; }
  // Prefetches `count` elements of a sequence's state, from element `first` on; nothing if there is no such sequence. A
  // loop over sequences needs it: processors do not expect the next page.
  void fetch(int64_t sequence, int64_t first, int64_t count) const {
    if (sequence >= num_sequences || page_ids[sequence] < 0) return;
    const char* const from = reinterpret_cast<const char*>(state(sequence) + first);
    for (int64_t byte = 0; byte < count * int64_t(sizeof(S)); byte += 64) __builtin_prefetch(from + byte, 1, 2);
  }
  int64_t num_tokens() const { return query_starts[num_sequences]; }
};

}  // namespace agon
