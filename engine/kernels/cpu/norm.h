// Root mean square norm (Zhang and Sennrich 2019) and layer norm (Ba et al. 2016) of rows, after adding what the last part
// of the network gave to the residual stream. Sums in float.
#pragma once

#include <cstdint>

#include "threads.h"

namespace agon {

template <typename T>
struct NormArgs {
  T* residual;  // [rows, size]: the stream; becomes residual + x where there is an x
  const T* x;   // [rows, size] or null
  const float* weight;
  const float* bias;  // layer norm's; null for the root mean square norm
  T* y;
  int64_t num_rows, size;
  float eps;
};

template <typename T>
void norm(const NormArgs<T>& a, Team& team);

}  // namespace agon
