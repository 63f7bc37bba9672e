// The likeliest token of each row of logits; among equal logits the first. Independent of the number of threads.

#include <cmath>

#include "threads.h"
#include "vec.h"

namespace agon {

constexpr int64_t kNoToken = -1;  // NO_TOKEN in engine/batch.py

// Index of the first largest element of x [size]; kNoToken if one is NaN or the largest is infinite.
template <typename T>
static int64_t argmax_row(const T* x, int64_t size) {
  const int64_t whole = size / kLanes * kLanes;
  Floats best = splat(-__builtin_inff()), odd = splat(0.0f);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Floats v = load(x + i);
    best = max(v, best);
    odd = v == v ? odd : v;
  }
  float value = largest(best), odd_value = sum(odd);
  for (int64_t i = whole; i < size; i++) {
    const float v = to_float(x[i]);
    value = v > value ? v : value;
    odd_value = v == v ? odd_value : v;
  }
  if (std::isnan(odd_value) || std::isinf(value)) return kNoToken;
  for (int64_t i = 0; i < size; i++)
    if (to_float(x[i]) == value) return i;
  return kNoToken;  // unreachable: the largest is one of them
}

}  // namespace agon

extern "C" {

// agon_argmax_{f32,bf16}: x [rows, size], rows `stride` elements apart -> token_ids [rows]. Called by
// CppOperators.argmax (engine/kernels/cpu/operators.py) for greedy sampling.
#define AGON_ARGMAX(suffix, T)                                                                                     \
  void agon_argmax_##suffix(const T* x, int64_t stride, int64_t* token_ids, int64_t num_rows, int64_t size,        \
                            int num_threads) {                                                                     \
    agon::parallel_for(num_rows, num_threads,                                                                      \
                       [&](int64_t row) { token_ids[row] = agon::argmax_row(x + row * stride, size); });           \
  }
AGON_ARGMAX(f32, float)
AGON_ARGMAX(bf16, agon::bf16)
}
