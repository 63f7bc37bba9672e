// The plain Kind of product (panels.h): rows and weights as they are, float or bfloat16. For linear.cpp and adapters.cpp.
#pragma once

#include "panels.h"

namespace agon {

// x and weights have the same type; sums in float.
template <typename T>
struct Plain {
  using Args = LinearArgs<T>;
  using Weight = T;
  using Sum = Floats;
  using Total = Sum;
  static constexpr int kGroup = 4 / sizeof(T);
  static constexpr int kInputs = kGroup;
  static constexpr bool kHasBlocks = false;
  static constexpr int kTileRows = kLanes == 16 ? 8 : 6;  // their sums take most of the registers
  static int64_t depth(const Args& a) { return a.num_inputs; }
  template <int kRows, int kWidth>
  static AGON_INLINE void step(Sum (&sums)[kRows][kWidth], const Args&, const T* x, int64_t x_stride,
                               const T* const* weights) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++) {
      const Words input = splat_word_at(x + r * x_stride);
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; v++) {
        const Words factors = load_as<Words>(weights[v]);
        if constexpr (sizeof(T) == 4) sums[r][v] += as_floats(input) * as_floats(factors);
        else sums[r][v] = dot_pairs(sums[r][v], input, factors);
      }
    }
  }
  static AGON_INLINE Floats finish(const Args&, Sum sum, int64_t, int64_t) { return sum; }
};

}  // namespace agon
