// A token's heads: RMS norm (Qwen3, Gemma 3), rotation by position (Su et al. 2021, half-split form), and keys and values
// into their pages as layout.h lays them out.
#pragma once

#include "attention.h"
#include "layout.h"
#include "vec.h"

namespace agon {

constexpr int64_t kMaxHeadDim = 512;

// One head of one row of the step -> to [D], rounded to what it is kept in.
template <typename T, typename To>
void norm_and_rotate(const AttentionLayer& layer, const StepRotation& rotation, int64_t row, const T* from,
                     const float* norm, To* to);

// Keys and values of one head for tokens of one page. S: what pages hold, T or int8_t; bytes have a scale for each token.
template <typename T, typename S>
void store_run(const AttentionArgs<T>& a, const PageRun& run, int64_t kv_head);

// Asks for the memory that store_run of a single token writes: every channel pair of a key has a cache line of its own.
template <typename T, typename S>
void fetch_place(const AttentionArgs<T>& a, int64_t sequence, int64_t token, int64_t kv_head);

}  // namespace agon
