// Heads before attention: RMS norm (Qwen3, Gemma 3), rotation by position (Su et al. 2021, half-split form), and
// storing keys and values in their pages in the order of layout.h.
#pragma once

#include "attention.h"
#include "layout.h"
#include "vec.h"

namespace agon {

constexpr int64_t kMaxHeadDim = 512;

// Norms and rotates one head of one row of the step into `to` [D], rounded to its type.
template <typename T, typename To>
void norm_and_rotate(const AttentionLayer& layer, const StepRotation& rotation, int64_t row, const T* from,
                     const float* norm, To* to);

// Stores keys and values of one head for tokens of one page. S: type of elements in pages, T or int8_t; bytes have a
// scale per token.
template <typename T, typename S>
void store_run(const AttentionArgs<T>& a, const PageRun& run, int64_t kv_head);

// Prefetches the memory that store_run of a single token writes: every channel pair of a key lies in a different cache
// line.
template <typename T, typename S>
void fetch_place(const AttentionArgs<T>& a, int64_t sequence, int64_t token, int64_t kv_head);

}  // namespace agon
