// How the C++ operators keep keys and values inside a layer's part of a small page.
//
// The part has the size that engine/attention/layout.py gives it, [2 (key, value), K heads, page_tokens, D], but inside a
// head the elements stand as the dot product instruction takes them, with G = 2 where bfloat16 is computed with and 1 where
// float is:
//   keys    [D / G, page_tokens, G]   one load: G channels of kLanes tokens
//   values  [page_tokens / G, D, G]   one load: kLanes channels of G tokens
// An odd page_tokens leaves no room for pairs of tokens: it must be even. Pages are copied and moved whole, so nobody else
// needs to know. Elements are of the type that is computed with, or bytes; behind those lie their scales, float
// [2 (key, value), K heads, page_tokens].
#pragma once

#include <type_traits>

#include "attention.h"
#include "vec.h"

namespace agon {

// T: what is computed with.
template <typename T>
constexpr int64_t kGroup = 4 / sizeof(T);

// S: what pages hold.
template <typename S>
constexpr bool kHasScales = std::is_same_v<S, int8_t>;

template <typename S>
struct HeadPart {
  S* keys;
  S* values;
  float *key_scales, *value_scales;  // [page_tokens]; nothing where S is no byte
};

// Part of one key/value head in one page.
template <typename S>
AGON_INLINE HeadPart<S> head_part(const AttentionLayer& layer, int64_t page_id, int64_t head) {
  const int64_t size = layer.page_tokens * layer.head_dim, K = layer.num_kv_heads;
  S* page = static_cast<S*>(layer.pages) + page_id * layer.page_stride;
  float* scales = reinterpret_cast<float*>(page + 2 * K * size);
  return {page + head * size, page + (K + head) * size, scales + head * layer.page_tokens,
          scales + (K + head) * layer.page_tokens};
}

}  // namespace agon
