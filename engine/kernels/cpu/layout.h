// The order of keys and values inside a layer's part of a small page.
//
// The part has the size that engine/attention/layout.py gives it, [2 (key, value), K heads, page_tokens, D], but inside
// a head the elements have the order that the dot product instruction reads, with G = 2 for products of bfloat16 and G
// = 1 for products of float:
//   keys    [D / G, page_tokens, G]   one load: G channels of kLanes tokens
//   values  [page_tokens / G, D, G]   one load: kLanes channels of G tokens
// For pairs of tokens, page_tokens must be even. Pages are copied and moved as a whole, so no other code depends on
// this order. Elements have the type of the products, or are bytes; after bytes lie their scales, float [2 (key,
// value), K heads, page_tokens].
#pragma once

#include <type_traits>

#include "attention.h"
#include "vec.h"

namespace agon {

// T: type of activations.
template <typename T>
constexpr int64_t kGroup = 4 / sizeof(T);

// S: type of elements in pages.
template <typename S>
constexpr bool kHasScales = std::is_same_v<S, int8_t>;

template <typename S>
struct HeadPart {
  S* keys;
  S* values;
  float *key_scales, *value_scales;  // [page_tokens]; only if S is a byte
};

// Keys and values of one head in one page.
template <typename S>
AGON_INLINE HeadPart<S> head_part(const AttentionLayer& layer, int64_t page_id, int64_t head) {
  const int64_t size = layer.page_tokens * layer.head_dim, K = layer.num_kv_heads;
  S* page = static_cast<S*>(layer.pages) + page_id * layer.page_stride;
  float* scales = reinterpret_cast<float*>(page + 2 * K * size);
  return {page + head * size, page + (K + head) * size, scales + head * layer.page_tokens,
          scales + (K + head) * layer.page_tokens};
}

}  // namespace agon
