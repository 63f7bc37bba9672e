// Lanes of several vectors: transpositions, and the sums of many vectors at once. Callers: selective_scan.cpp and
// head_scan.cpp.
#pragma once

#include <utility>

#include "vec.h"

namespace agon {

// Stage S of a transposition: of two rows that are S apart, one gets the lanes without bit S, the other those with it.
template <int S, int... I>
static AGON_INLINE void exchange(Floats& first, Floats& second, std::integer_sequence<int, I...>) {
  const Floats a = first, b = second;
#ifdef __clang__
  first = __builtin_shufflevector(a, b, (I & S ? kLanes + I - S : I)...);
  second = __builtin_shufflevector(a, b, (I & S ? kLanes + I : I + S)...);
#else  // GCC has the other function since version 12 only
  first = __builtin_shuffle(a, b, Ints{(I & S ? kLanes + I - S : I)...});
  second = __builtin_shuffle(a, b, Ints{(I & S ? kLanes + I : I + S)...});
#endif
}

// kLanes vectors become the columns of the square that they were the rows of.
template <int S = kLanes / 2>
static AGON_INLINE void transpose(Floats* rows) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i++)
    if ((i & S) == 0) exchange<S>(rows[i], rows[i + S], std::make_integer_sequence<int, kLanes>());
  if constexpr (S > 1) transpose<S / 2>(rows);
}

// sum() of each of kLanes vectors, with the same order of additions; overwrites them. Lane i: of rows[i].
template <int S = kLanes / 2>
static AGON_INLINE Floats sums(Floats* rows) {
#pragma GCC unroll 8
  for (int i = 0; i < S; i++) {
    exchange<S>(rows[i], rows[i + S], std::make_integer_sequence<int, kLanes>());
    rows[i] += rows[i + S];
  }
  if constexpr (S > 1) return sums<S / 2>(rows);
  return rows[0];
}

}  // namespace agon
