// RMS norm (Zhang and Sennrich 2019) and layer norm (Ba et al. 2016) of rows, after the last layer's update has been
// added to the residual stream. Sums in float. Callers: steps.cpp and agon_norm_*.
#pragma once

#include <cstdint>

#include "threads.h"

namespace agon {

// Arguments of norm(): contiguous rows of type T, weight and bias [size].
template <typename T>
struct NormArgs {
  T* residual;  // [rows, size]: the residual stream; becomes residual + x if x is not null
  const T* x;   // [rows, size]: the update; or null
  const float* weight;
  const float* bias;  // null: RMS norm; else layer norm
  T* y;  // [rows, size]
  int64_t num_rows, size;
  float eps;
};

// Adds and normalises all rows, split over the team.
template <typename T>
void norm(const NormArgs<T>& a, Team& team);

}  // namespace agon
