// The order of keys and values inside a layer's part of a small page.
//
// The part has the size that engine/attention/layout.py defines, [2 (key, value), K heads, page_tokens, D], or keys
// alone where values are channels of the keys. But within a head the elements have the order that the dot product
// instruction takes, with G = 2 if bfloat16 is computed with and G = 1 for float:
//   keys    [D / G, page_tokens, G]   one load: G channels of kLanes tokens
//   values  [page_tokens / G, D, G]   one load: kLanes channels of G tokens
// page_tokens must be even, because values are stored in pairs of tokens. Pages are copied and moved whole, so no other
// part of the engine depends on this order. Elements have the type that is computed with, or are int8; int8 elements
// are followed by their scales, float [2 (key, value), K heads, page_tokens].
#pragma once

#include <type_traits>

#include "attention.h"
#include "vec.h"

namespace agon {

// G: elements in a 32-bit word. T: the type that is computed with.
template <typename T>
constexpr int64_t kGroup = 4 / sizeof(T);

// True for int8 pages. S: the type in pages.
template <typename S>
constexpr bool kHasScales = std::is_same_v<S, int8_t>;

// Addresses of one key/value head in one page. Where values are channels of the keys, `values` are the keys.
template <typename S>
struct HeadPart {
  S* keys;
  S* values;
  float *key_scales, *value_scales;  // [page_tokens]; not valid unless S is int8_t
};

// Addresses of key/value head `head` in page `page_id` of the layer.
template <typename S>
AGON_INLINE HeadPart<S> head_part(const AttentionLayer& layer, int64_t page_id, int64_t head) {
  const int64_t size = layer.page_tokens * layer.head_dim, K = layer.num_kv_heads;
  S* page = static_cast<S*>(layer.pages) + page_id * layer.page_stride;
  float* scales = reinterpret_cast<float*>(page + (layer.stores_values ? 2 : 1) * K * size);
  const int64_t value_head = layer.stores_values ? K + head : head;
  return {page + head * size, page + value_head * size, scales + head * layer.page_tokens,
          scales + value_head * layer.page_tokens};
}

}  // namespace agon
