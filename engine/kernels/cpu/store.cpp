// Keys and values of the step's tokens into their pages, with what precedes it in the same pass over them: the RMS norm
// of each query and key head (Qwen3, Gemma 3) and the rotation by position (Su et al. 2021, half-split form).

#include <cmath>

#include "layout.h"
#include "threads.h"
#include "vec.h"

namespace agon {

template <typename T>
struct StoreArgs {
  T* qkv;  // [T, H + 2 K, D]; query heads are normed and rotated in place
  int64_t qkv_stride;
  const float *cosines, *sines;  // [T, rotary_dim / 2]; null: no rotation
  const float *query_norm, *key_norm;  // [D]; null: no norm
  float norm_eps;
  T* pages;  // the layer's part of small page 0
  int64_t page_stride;
  const int64_t* page_tables;  // [B, ...]
  int64_t table_stride;
  const int64_t *sequences, *positions;  // [T]: row of the page tables, place in the sequence
  int64_t num_tokens, num_heads, num_kv_heads, head_dim, rotary_dim, page_tokens;
};

constexpr int64_t kMaxHeadDim = 512;

template <typename T>
static int64_t page_of(const StoreArgs<T>& a, int64_t token) {
  return a.page_tables[a.sequences[token] * a.table_stride + a.positions[token] / a.page_tokens];
}

template <typename T>
static void norm_and_rotate(const StoreArgs<T>& a, int64_t token, const T* from, const float* norm, float* head) {
  const int64_t D = a.head_dim;
  for (int64_t d = 0; d < D; d += kLanes) store(head + d, load(from + d));
  if (norm != nullptr) {
    Floats squares = splat(0.0f);
    for (int64_t d = 0; d < D; d += kLanes) squares += load(head + d) * load(head + d);
    const float scale = 1.0f / std::sqrt(sum(squares) / float(D) + a.norm_eps);
    for (int64_t d = 0; d < D; d += kLanes) store(head + d, load(head + d) * scale * load(norm + d));
  }
  if (a.cosines == nullptr) return;
  const int64_t half = a.rotary_dim / 2;
  const float *cosines = a.cosines + token * half, *sines = a.sines + token * half;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Floats x = load(head + i), y = load(head + half + i), c = load(cosines + i), s = load(sines + i);
    store(head + i, x * c - y * s);
    store(head + half + i, y * c + x * s);
  }
  for (; i < half; i++) {
    const float x = head[i], y = head[half + i];
    head[i] = x * cosines[i] - y * sines[i];
    head[half + i] = y * cosines[i] + x * sines[i];
  }
}

template <typename T>
static void store_token(const StoreArgs<T>& a, int64_t token) {
  constexpr int64_t G = kGroup<T>;
  const int64_t D = a.head_dim, offset = a.positions[token] % a.page_tokens;
  float head[kMaxHeadDim];
  T narrow_head[kMaxHeadDim];
  T* row = a.qkv + token * a.qkv_stride;
  if (a.cosines != nullptr || a.query_norm != nullptr)
    for (int64_t h = 0; h < a.num_heads; h++) {
      norm_and_rotate(a, token, row + h * D, a.query_norm, head);
      for (int64_t d = 0; d < D; d += kLanes) store(row + h * D + d, load(head + d));
    }
  T* page = a.pages + page_of(a, token) * a.page_stride;
  for (int64_t k = 0; k < a.num_kv_heads; k++) {
    const auto part = head_part(page, k, a.num_kv_heads, a.page_tokens, D);
    norm_and_rotate(a, token, row + (a.num_heads + k) * D, a.key_norm, head);
    for (int64_t d = 0; d < D; d += kLanes) store(narrow_head + d, load(head + d));
    for (int64_t d = 0; d < D; d += G) std::memcpy(part.keys + d * a.page_tokens + offset * G, narrow_head + d, 4);
    // What an earlier owner left behind the context would be multiplied by a weight of zero; a NaN would survive that.
    if (offset == 0) std::memset(part.values, 0, a.page_tokens * D * sizeof(T));
    const T* value = row + (a.num_heads + a.num_kv_heads + k) * D;
    T* to = part.values + offset / G * D * G + offset % G;
    for (int64_t d = 0; d < D; d++) to[d * G] = value[d];
  }
}

// Every channel of a key goes to a cache line of its own: those of the next token are asked for in advance.
template <typename T>
static void fetch_places(const StoreArgs<T>& a, int64_t token) {
  constexpr int64_t G = kGroup<T>;
  const int64_t D = a.head_dim, offset = a.positions[token] % a.page_tokens;
  T* page = a.pages + page_of(a, token) * a.page_stride;
  for (int64_t k = 0; k < a.num_kv_heads; k++) {
    const auto part = head_part(page, k, a.num_kv_heads, a.page_tokens, D);
    for (int64_t d = 0; d < D; d += G) __builtin_prefetch(part.keys + d * a.page_tokens + offset * G, 1, 2);
    for (int64_t d = 0; d < D * G; d += 64 / int64_t(sizeof(T)))
      __builtin_prefetch(part.values + offset / G * D * G + d, 1, 2);
  }
}

template <typename T>
static void store_all(const StoreArgs<T>& a, int num_threads) {
  // Two tokens of a pair lie in the same words, and the first of a page clears it: a page belongs to one thread. Tokens
  // of a sequence are adjacent, so a thread's range is moved to where the page changes.
  const int64_t num_parts = a.num_tokens < 16 ? 1 : num_threads;
  const auto boundary = [&](int64_t token) {
    while (token > 0 && token < a.num_tokens && page_of(a, token) == page_of(a, token - 1)) token++;
    return token;
  };
  parallel_for(num_parts, num_threads, [&](int64_t which) {
    const Range range = part_of(a.num_tokens, which, num_parts);
    const int64_t last = boundary(range.last);
    for (int64_t token = boundary(range.first); token < last; token++) {
      if (token + 1 < last) fetch_places(a, token + 1);
      store_token(a, token);
    }
  });
}

}  // namespace agon

extern "C" {

#define AGON_STORE(suffix, T)                                                                                         \
  void agon_store_##suffix(T* qkv, int64_t qkv_stride, const float* cosines, const float* sines,                      \
                           const float* query_norm, const float* key_norm, float norm_eps, T* pages,                  \
                           int64_t page_stride, const int64_t* page_tables, int64_t table_stride,                     \
                           const int64_t* sequences, const int64_t* positions, int64_t num_tokens, int64_t num_heads, \
                           int64_t num_kv_heads, int64_t head_dim, int64_t rotary_dim, int64_t page_tokens,           \
                           int num_threads) {                                                                         \
    agon::store_all<T>({qkv, qkv_stride, cosines, sines, query_norm, key_norm, norm_eps, pages, page_stride,          \
                        page_tables, table_stride, sequences, positions, num_tokens, num_heads, num_kv_heads,         \
                        head_dim, rotary_dim, page_tokens},                                                           \
                       num_threads);                                                                                  \
  }
AGON_STORE(f32, float)
AGON_STORE(bf16, agon::bf16)
}
