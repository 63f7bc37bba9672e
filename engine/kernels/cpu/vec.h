// Vectors of floats as wide as the target has them, in GCC's and Clang's vector extensions: one source for AVX-512, AVX2
// and everything else. Instructions are named by hand only where compilers do not find them: dot products of bfloat16 and
// of bytes, and bytes to floats, which GCC 12 takes one by one (7 times as slow).
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

using bf16 = uint16_t;  // the upper half of a float

typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));
typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));
typedef int8_t Bytes __attribute__((vector_size(kLanes)));

#define AGON_INLINE inline __attribute__((always_inline))

AGON_INLINE Floats splat(float x) { return Floats{} + x; }
AGON_INLINE Words splat_word(uint32_t x) { return Words{} + x; }

template <typename Vector, typename T>
AGON_INLINE Vector load_as(const T* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

AGON_INLINE Floats as_floats(Words w) { return (Floats)w; }
AGON_INLINE Words as_words(Floats f) { return (Words)f; }

AGON_INLINE Floats load(const float* from) { return load_as<Floats>(from); }
AGON_INLINE void store(float* to, Floats v) { std::memcpy(to, &v, sizeof v); }

AGON_INLINE Floats widen(Halves h) { return as_floats(__builtin_convertvector(h, Words) << 16); }
AGON_INLINE Floats load(const bf16* from) { return widen(load_as<Halves>(from)); }

// To the nearest bfloat16, ties to even; a NaN stays one.
AGON_INLINE Halves narrow(Floats v) {
#if defined(__AVX512BF16__)
  return (Halves)_mm512_cvtneps_pbh((__m512)v);
#else
  Words w = as_words(v);
  Words rounded = (w + 0x7fff + ((w >> 16) & 1)) >> 16;
  Words is_nan = (Words)(v != v);
  return __builtin_convertvector((rounded & ~is_nan) | (splat_word(0x7fc0) & is_nan), Halves);
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
// kLanes words' worth of bytes as what is computed with: every byte is a bfloat16 exactly, so nothing is rounded.
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
// To the nearest integers, halves upwards; they must be bytes.
AGON_INLINE void store(int8_t* to, Floats v) {
  v += 0.5f;
  Ints whole = __builtin_convertvector(v, Ints);
  whole += (Ints)(__builtin_convertvector(whole, Floats) > v);  // a true lane is -1: down, not towards zero
  const Bytes bytes = __builtin_convertvector(whole, Bytes);
  std::memcpy(to, &bytes, sizeof bytes);
}

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

// An element of pages as what is computed with.
template <typename T>
AGON_INLINE void copy_one(T* to, T x) { *to = x; }
template <typename T>
AGON_INLINE void copy_one(T* to, int8_t x) { store_one(to, to_float(x)); }

// Part of a vector: the first n elements; the others are zero, and not touched in memory.
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

// Sum of a vector: halves folded until one is left.
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

AGON_INLINE Floats max(Floats a, Floats b) { return a > b ? a : b; }
AGON_INLINE float largest(Floats v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)v);
#else
  float best = v[0];
  for (int i = 1; i < kLanes; i++) best = v[i] > best ? v[i] : best;
  return best;
#endif
}

// Pairs of bfloat16, one pair a lane: sum + a.low * b.low + a.high * b.high.
AGON_INLINE Floats dot_pairs(Floats sum, Words a, Words b) {
#if defined(__AVX512BF16__)
  return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
  const Words high = splat_word(0xffff0000u);
  sum += as_floats(a << 16) * as_floats(b << 16);
  return sum + as_floats(a & high) * as_floats(b & high);
#endif
}

// Quadruples of bytes, one a lane: sum + the dot product of unsigned a and signed b.
AGON_INLINE Ints dot_quads(Ints sum, Words a, Words b) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#else
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) sum += (Ints)(a << (24 - 8 * i) >> 24) * ((Ints)(b << (24 - 8 * i)) >> 24);
  return sum;
#endif
}

// e^x within 2 units in the last place for x in [-87, 88]; 0 below, infinite above.
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
