// The likeliest token of each row of logits; among equal logits the first. Independent of the number of threads.

#include "threads.h"
#include "vec.h"

namespace agon {

// Index of the first largest element of x [size].
template <typename T>
static int64_t argmax_row(const T* x, int64_t size) {
  const int64_t whole = size / kLanes * kLanes;
  Floats best = splat(-__builtin_inff());
  for (int64_t i = 0; i < whole; i += kLanes) best = max(load(x + i), best);
  float value = largest(best);
  for (int64_t i = whole; i < size; i++) value = to_float(x[i]) > value ? to_float(x[i]) : value;
  for (int64_t i = 0; i < size; i++)
    if (to_float(x[i]) == value) return i;
  return 0;  // all elements are NaN
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
