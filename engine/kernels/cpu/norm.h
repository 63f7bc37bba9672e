// RMS norm (Zhang and Sennrich 2019) and layer norm (Ba et al. 2016) of rows, after adding the update of the previous
// layer part to the residual stream. Sums in float.
#pragma once

#include <cstdint>

#include "threads.h"

namespace agon {

template <typename T>
struct NormArgs {
  T* residual;  // [rows, size]: the stream; becomes residual + x if x is not null
  const T* x;   // [rows, size] or null
  const float* weight;
  const float* bias;  // of layer norm; null: RMS norm
  T* y;
  int64_t num_rows, size;
  float eps;
};

template <typename T>
void norm(const NormArgs<T>& a, Team& team);

}  // namespace agon
