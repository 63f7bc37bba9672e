// A token's heads on their way to attention: RMS norm of queries, keys (Qwen3, Gemma 3) and values (Gemma 4), rotary position embedding
// (Su et al. 2021, half-split form), and storing keys and values into their pages in the layout of layout.h. Called by
// attend() (attention.cpp).
#pragma once

#include "attention.h"
#include "layout.h"
#include "vec.h"

namespace agon {

constexpr int64_t kMaxHeadDim = 576;  // channels: size of buffers on the stack

// Head `from` [D] of a row of the step, normalised (norm [D]; null: no norm) and rotated -> to [D], rounded to To.
template <typename T, typename To>
void norm_and_rotate(const AttentionLayer& layer, const StepRotation& rotation, int64_t row, const T* from,
                     const float* norm, To* to);

// Stores keys and values of one key/value head for tokens of one page. S: the type in pages, T or int8_t; int8 keys and
// values get one scale per token.
template <typename T, typename S>
void store_run(const AttentionArgs<T>& a, const PageRun& run, int64_t kv_head);

// Prefetches the memory that store_run of a single token will write: every pair of a key's channels lies in another
// cache line.
template <typename T, typename S>
void fetch_place(const AttentionArgs<T>& a, int64_t sequence, int64_t token, int64_t kv_head);

}  // namespace agon
