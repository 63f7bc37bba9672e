// Vectors of floats of the target's width, in GCC's and Clang's vector extensions: one source for AVX-512, AVX2 and
// everything else. Intrinsics are used only where compilers do not find the instruction: dot products of bfloat16 and
// of bytes, and the conversion of bytes to floats, which GCC 12 does one by one (7 times as slow).
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace agon {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using bf16 = uint16_t;  // bfloat16: the upper half of a float

// One vector of kLanes floats or 32-bit integers; Halves and Bytes: kLanes narrower ones; Shorts: 2 kLanes of them.
typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));
typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));
typedef int16_t Shorts __attribute__((vector_size(kLanes * 4)));
typedef int8_t Bytes __attribute__((vector_size(kLanes)));

#define AGON_INLINE inline __attribute__((always_inline))

// A vector from memory of any alignment, without conversion.
template <typename Vector, typename T>
AGON_INLINE Vector load_as(const T* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// x in all lanes.
AGON_INLINE Words splat_word(uint32_t x) { return Words{} + x; }
AGON_INLINE Floats splat(float x) {  // by its bits: Floats{} + x would compile to an addition, as -0.0 + 0.0 is 0.0
  uint32_t w;
  std::memcpy(&w, &x, 4);
  return (Floats)splat_word(w);
}
// The word at that address (any alignment) in all lanes: one broadcasting load, without a detour by a scalar register.
AGON_INLINE Words splat_word_at(const void* from) {
#if defined(__AVX512F__)
  return (Words)_mm512_set1_ps(load_as<float>(static_cast<const float*>(from)));
#elif defined(__AVX2__)
  return (Words)_mm256_broadcast_ss(static_cast<const float*>(from));
#else
  return splat_word(load_as<uint32_t>(static_cast<const uint32_t*>(from)));
#endif
}

// The same bits as another type.
AGON_INLINE Floats as_floats(Words w) { return (Floats)w; }
AGON_INLINE Words as_words(Floats f) { return (Words)f; }

// load and store: kLanes elements in memory, of any alignment, from and to floats.
AGON_INLINE Floats load(const float* from) { return load_as<Floats>(from); }
AGON_INLINE void store(float* to, Floats v) { std::memcpy(to, &v, sizeof v); }

// bfloat16 to float, exactly.
AGON_INLINE Floats widen(Halves h) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return as_floats((Words)_mm256_cvtepu16_epi32((__m128i)h) << 16);
#else
  return as_floats(__builtin_convertvector(h, Words) << 16);
#endif
}
AGON_INLINE Floats load(const bf16* from) { return widen(load_as<Halves>(from)); }

// float16 to float, exactly. Infinity and NaN do not occur.
AGON_INLINE Floats load_half(const uint16_t* from) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(load_as<__m256i>(from));
#elif defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(load_as<__m128i>(from));
#else
  const Words h = __builtin_convertvector(load_as<Halves>(from), Words);
  const Floats magnitude = as_floats((h & splat_word(0x7fff)) << 13) * 5.192296858534828e33f;  // 2^112
  return as_floats(as_words(magnitude) | (h & splat_word(0x8000)) << 16);
#endif
}

// float to the nearest bfloat16, ties to even; NaN stays NaN.
AGON_INLINE Halves narrow(Floats v) {
#if defined(__AVX512BF16__)
  return (Halves)_mm512_cvtneps_pbh((__m512)v);
#else
  Words w = as_words(v);
  Words rounded = (w + 0x7fff + ((w >> 16) & 1)) >> 16;
  Words is_nan = (Words)(v != v);
  rounded = (rounded & ~is_nan) | (splat_word(0x7fc0) & is_nan);
#if defined(__AVX2__) && !defined(__AVX512F__)
  return (Halves)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)rounded), _mm256_extracti128_si256((__m256i)rounded, 1));
#else
  return __builtin_convertvector(rounded, Halves);
#endif
#endif
}
AGON_INLINE void store(bf16* to, Floats v) {
  Halves h = narrow(v);
  std::memcpy(to, &h, sizeof h);
}

AGON_INLINE Floats load(const int8_t* from) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_as<__m128i>(from)));
#elif defined(__AVX2__)
  return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  return __builtin_convertvector(__builtin_convertvector(load_as<Bytes>(from), Ints), Floats);
#endif
}
// int8 numbers for kLanes words of T: kLanes floats or 2 kLanes bfloat16. Every int8 number is a bfloat16 exactly, so
// nothing is rounded.
AGON_INLINE void widen(float* to, const int8_t* from) { store(to, load(from)); }
AGON_INLINE void widen(bf16* to, const int8_t* from) {
#if defined(__AVX512BF16__)
  const __m512i pairs = (__m512i)_mm512_cvtne2ps_pbh((__m512)load(from + kLanes), (__m512)load(from));
  std::memcpy(to, &pairs, sizeof pairs);
#else
  for (int half = 0; half < 2; half++) {
    const Halves upper = __builtin_convertvector(as_words(load(from + half * kLanes)) >> 16, Halves);
    std::memcpy(to + half * kLanes, &upper, sizeof upper);
  }
#endif
}
// Rounds to the nearest integers, halves upwards; they must fit into int8.
AGON_INLINE void store(int8_t* to, Floats v) {
  v += 0.5f;
  Ints whole = __builtin_convertvector(v, Ints);
  whole += (Ints)(__builtin_convertvector(whole, Floats) > v);  // a true lane is -1: rounds down, not towards zero
  const Bytes bytes = __builtin_convertvector(whole, Bytes);
  std::memcpy(to, &bytes, sizeof bytes);
}

// Single elements.
AGON_INLINE float to_float(float x) { return x; }
AGON_INLINE float to_float(int8_t x) { return float(x); }
AGON_INLINE float to_float(bf16 x) {
  uint32_t w = uint32_t(x) << 16;
  float f;
  std::memcpy(&f, &w, 4);
  return f;
}
AGON_INLINE void store_one(float* to, float x) { *to = x; }
AGON_INLINE void store_one(bf16* to, float x) {
  uint32_t w;
  std::memcpy(&w, &x, 4);
  *to = x != x ? 0x7fc0 : bf16((w + 0x7fff + ((w >> 16) & 1)) >> 16);
}

// Copies an element of a page, converted to the type that is computed with.
template <typename T>
AGON_INLINE void copy_one(T* to, T x) { *to = x; }
template <typename T>
AGON_INLINE void copy_one(T* to, int8_t x) { store_one(to, to_float(x)); }

// The first n elements of a vector. load_part sets the other lanes to zero; neither function touches memory behind
// them.
template <typename T>
AGON_INLINE Floats load_part(const T* from, int n) {
  T buffer[kLanes] = {};
  std::memcpy(buffer, from, n * sizeof(T));
  return load(buffer);
}
template <typename T>
AGON_INLINE void store_part(T* to, Floats v, int n) {
  T buffer[kLanes];
  store(buffer, v);
  std::memcpy(to, buffer, n * sizeof(T));
}

// Sum of all lanes, by folding halves: the order of additions is fixed.
AGON_INLINE float sum(Floats v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)v);
#else
  float lanes[kLanes];
  store(lanes, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
#endif
}

// The larger of each pair of lanes.
AGON_INLINE Floats max(Floats a, Floats b) { return a > b ? a : b; }
// Whether some lane is above the limit.
AGON_INLINE bool any_above(Floats v, float limit) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps((__m256)v, _mm256_set1_ps(limit), _CMP_GT_OQ)) != 0;
#else
  bool is_above = false;
  for (int i = 0; i < kLanes; i++) is_above |= v[i] > limit;
  return is_above;
#endif
}
// The largest lane.
AGON_INLINE float largest(Floats v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)v);
#else
  float best = v[0];
  for (int i = 1; i < kLanes; i++) best = v[i] > best ? v[i] : best;
  return best;
#endif
}

// The first and the second members of pairs of bfloat16, one pair per lane, as floats.
AGON_INLINE Floats first_of_pairs(Words pairs) { return as_floats(pairs << 16); }
AGON_INLINE Floats second_of_pairs(Words pairs) { return as_floats(pairs & splat_word(0xffff0000u)); }

// A product as it is rounded: the compiler may not fuse it with the sum that it becomes a part of. For code that has to
// have the bits of other code, in which the two are apart.
AGON_INLINE Floats unfused(Floats product) {
#if defined(__AVX512F__)
  asm("" : "+v"(product));
#elif defined(__x86_64__)
  asm("" : "+x"(product));
#elif defined(__aarch64__)
  asm("" : "+w"(product));
#else
  asm("" : "+m"(product));
#endif
  return product;
}

// sum + the dot product of pairs of bfloat16, lane by lane.
#if defined(__AVX512BF16__)
constexpr bool kHasDotPairs = true;
AGON_INLINE Floats dot_pairs(Floats sum, Words a, Words b) {
  return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#else
constexpr bool kHasDotPairs = false;
AGON_INLINE Floats dot_pairs(Floats sum, Words a, Words b) {
  sum += first_of_pairs(a) * first_of_pairs(b);
  return sum + second_of_pairs(a) * second_of_pairs(b);
}
#endif

// True if inputs of type T are converted to float before they are multiplied, because the processor cannot multiply T.
template <typename T>
constexpr bool kWidens = sizeof(T) == 2 && !kHasDotPairs;

// sums[r][c] += row r's input, at x + r * x_stride, times the vector factors[c].
template <int kRows, int kCount>
AGON_INLINE void add_products(Floats (&sums)[kRows][kCount], const float* x, int64_t x_stride, const Floats* factors) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; r++) {
    const Floats input = as_floats(splat_word_at(x + r * x_stride));
#pragma GCC unroll 4
    for (int c = 0; c < kCount; c++) sums[r][c] += input * factors[c];
  }
}

// The same with two inputs of each row (floats) and with vectors of pairs of bfloat16 at y[c]. The first members of all
// pairs are done before the second ones, because registers have no room for both. The products of dot_pairs, in its
// order.
template <int kRows, int kCount, typename T>
AGON_INLINE void add_pairs(Floats (&sums)[kRows][kCount], const float* x, int64_t x_stride, const T* const* y) {
  Floats factors[kCount];
#pragma GCC unroll 4
  for (int c = 0; c < kCount; c++) factors[c] = first_of_pairs(load_as<Words>(y[c]));
  add_products(sums, x, x_stride, factors);
#pragma GCC unroll 4
  for (int c = 0; c < kCount; c++) factors[c] = second_of_pairs(load_as<Words>(y[c]));
  add_products(sums, x + 1, x_stride, factors);
}

// Pairs of 16-bit integers, one pair per lane: the sum of the two products.
AGON_INLINE Ints dot_shorts(Shorts a, Shorts b) {
#if defined(__AVX512BW__)
  return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  const Ints x = (Ints)a, y = (Ints)b;
  return (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}

// sum + the dot product of four unsigned bytes of a and four signed bytes of b, lane by lane.
AGON_INLINE Ints dot_quads(Ints sum, Words a, Words b) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#else
  const Words even = splat_word(0x00ff00ffu);
  sum += dot_shorts((Shorts)(a & even), (Shorts)b << 8 >> 8);
  return sum + dot_shorts((Shorts)(a >> 8 & even), (Shorts)b >> 8);
#endif
}

// e^x within 2 units in the last place for x in [-87, 88]; 0 below, infinity above.
AGON_INLINE Floats exp(Floats x) {
  const Floats lowest = splat(-87.33654f), highest = splat(88.0f);
  const Words is_tiny = (Words)(x < lowest);
  const auto is_huge = x > highest;
  x = x > highest ? highest : x;
  x = x < lowest ? lowest : x;
  const Floats magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to the nearest integer
  Floats n = (x * 1.44269504f + magic) - magic;
  Floats r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Floats p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
  const Floats y = as_floats(as_words(p * (Floats)exponent) & ~is_tiny);
  return is_huge ? splat(__builtin_inff()) : y;
}

// 2^x within 2 units in the last place for x in [-126, 126]; below it, next to nothing or zero. Half the work of exp.
// kIsRounded: within 2^-18 of it, for results that are rounded to 16 bits.
template <bool kIsRounded = false>
AGON_INLINE Floats power_of_two(Floats x) {
#if defined(__AVX512F__)
  const Floats n = (Floats)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  x = max(x, splat(-126.0f));
  const Floats magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to the nearest integer
  const Floats n = (x + magic) - magic;
#endif
  const Floats r = x - n;  // exact
  // Least squares at Chebyshev nodes of [-1/2, 1/2], with p(0) = 1.
  Floats p;
  if constexpr (kIsRounded) {
    p = splat(0.009600395517f);
    p = p * r + 0.05591689383f;
    p = p * r + 0.2402371846f;
    p = p * r + 0.6931219948f;
  } else {
    p = splat(0.0001537070482f);
    p = p * r + 0.001339984829f;
    p = p * r + 0.009618373251f;
    p = p * r + 0.05550329035f;
    p = p * r + 0.2402264846f;
    p = p * r + 0.6931472056f;
  }
  p = p * r + 1.0f;
#if defined(__AVX512F__)
  return (Floats)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  return p * as_floats((Words)((__builtin_convertvector(n, Ints) + 127) << 23));
#endif
}

// 1 + e^-x; infinity above 2^126. NaN stays NaN.
AGON_INLINE Floats one_plus_exp_minus(Floats x) {
  const Floats lowest = splat(-126.0f), highest = splat(126.0f);
  Floats exponent = x * -1.44269504f;
  const auto is_huge = exponent > highest;
  exponent = is_huge ? highest : exponent;
  exponent = exponent < lowest ? lowest : exponent;
  return is_huge ? splat(__builtin_inff()) : 1.0f + power_of_two(exponent);
}
// The logistic function.
AGON_INLINE Floats sigmoid(Floats x) { return 1.0f / one_plus_exp_minus(x); }
// x sigmoid(x).
AGON_INLINE Floats silu(Floats x) { return x / one_plus_exp_minus(x); }

// log(1 + e^x), within some units in the last place.
AGON_INLINE Floats softplus(Floats x) {
  // log(1 + y) = 2 artanh(z) with z = y / (2 + y): a series in z^2 <= 1/9, as 0 <= y <= 1.
  const Floats y = exp(-max(x, -x));
  const Floats z = y / (2.0f + y), square = z * z;
  Floats p = splat(1.0f / 17);
  p = p * square + 1.0f / 15;
  p = p * square + 1.0f / 13;
  p = p * square + 1.0f / 11;
  p = p * square + 1.0f / 9;
  p = p * square + 1.0f / 7;
  p = p * square + 1.0f / 5;
  p = p * square + 1.0f / 3;
  p = p * square + 1.0f;
  return max(x, splat(0.0f)) + 2.0f * z * p;
}

AGON_INLINE Floats tanh(Floats x) {
  // 1 - 2 / (e^2x + 1): exact at both ends, absolute error below 2e-7 between them.
  return 1.0f - 2.0f / (exp(x + x) + 1.0f);
}

// The error function within 2e-7 (Abramowitz and Stegun 1964, 7.1.26).
AGON_INLINE Floats erf(Floats x) {
  const Floats size = max(x, -x);
  const Floats t = 1.0f / (1.0f + 0.3275911f * size);
  Floats p = splat(1.061405429f);
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const Floats y = 1.0f - p * t * exp(-(size * size));
  return x < 0.0f ? -y : y;
}

}  // namespace agon
