// The gated delta rule with its gated norm. Callers: agon_gated_delta_*.
#pragma once

#include <cstdint>

#include "threads.h"

namespace agon {

// Arguments of gated_delta(): H value heads, G key heads, D channels of a key, V of a value. T rows in all, of B
// sequences. A stride is the number of elements from one token's row to the next.
template <typename T>
struct GatedDeltaArgs {
  const T* qkv;        // [T, 2 G D + H V]: queries, keys, values
  const T* gate;       // [T, H V]
  const T* steps;      // [T, H]: a state decays by exp(rate * softplus(step + step_bias))
  const T* strengths;  // [T, H], before the sigmoid
  int64_t qkv_stride, gate_stride, steps_stride, strengths_stride;
  const float *rates, *step_bias;  // [H]
  const float* norm;               // [V]
  float* pages;                    // of each page the state [H, D, V]
  int64_t page_stride;
  const int64_t* page_ids;      // [B], -1: padding
  const int32_t* starts;        // [B], 0: the sequence has no state yet
  const int32_t* query_starts;  // [B + 1]
  T* y;                         // [T, H V], contiguous
  int64_t num_rows;             // B
  int64_t num_heads, num_key_heads, key_dim, value_dim;
  float eps;
};

// Computes all sequences and heads, split over the team.
template <typename T>
void gated_delta(const GatedDeltaArgs<T>& a, Team& team);

}  // namespace agon
