// Forbids tokens: scores become minus infinity where a row's mask has no bit. Independent of the number of threads.

#include <algorithm>

#include "threads.h"
#include "vec.h"

namespace agon {

// Minus infinity of each type of scores.
template <typename T>
constexpr T kForbidden;
template <>
constexpr float kForbidden<float> = -__builtin_inff();
template <>
constexpr bf16 kForbidden<bf16> = 0xff80;

// Scores [count] of the tokens of one word of a mask. A whole word has a constant count, for which this is vectorised.
template <typename T>
static AGON_INLINE void forbid_word(T* scores, uint32_t allowed, int64_t count) {
  for (int64_t i = 0; i < count; i++) scores[i] = allowed >> i & 1 ? scores[i] : kForbidden<T>;
}

template <typename T>
static void forbid_row(T* scores, const uint32_t* words, int64_t size) {
  const int64_t whole = size / 32;
  for (int64_t w = 0; w < whole; w++)
    if (words[w] != ~0u) forbid_word(scores + 32 * w, words[w], 32);
  if (size % 32) forbid_word(scores + 32 * whole, words[whole], size % 32);
}

}  // namespace agon

extern "C" {

// agon_forbid_{f32,bf16}: row index[i] of scores (rows `stride` elements apart, `size` scores each) under mask i of words
// [num_masks, ceil(size / 32)], bit t % 32 of word t / 32 for token t. Called by CppOperators.forbid
// (engine/kernels/cpu/operators.py).
#define AGON_FORBID(suffix, T)                                                                                     \
  void agon_forbid_##suffix(T* scores, int64_t stride, const int64_t* index, const uint32_t* words,                \
                            int64_t num_masks, int64_t size, int num_threads) {                                    \
    agon::parallel_for(num_masks, num_threads, [&](int64_t i) {                                                    \
      agon::forbid_row(scores + index[i] * stride, words + i * ((size + 31) / 32), size);                          \
    });                                                                                                            \
  }
AGON_FORBID(f32, float)
AGON_FORBID(bf16, agon::bf16)
}
