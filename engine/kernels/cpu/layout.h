// How the C++ operators keep keys and values inside a layer's part of a small page.
//
// The part has the size that engine/attention/layout.py gives it, [2 (key, value), K heads, page_tokens, D], but inside a
// head the elements stand as the dot product instruction takes them, with G = 2 for bfloat16 and 1 for float:
//   keys    [D / G, page_tokens, G]   one load: G channels of kLanes tokens
//   values  [page_tokens / G, D, G]   one load: kLanes channels of G tokens
// An odd page_tokens leaves no room for pairs of tokens: it must be even. Pages are copied and moved whole, so nobody else
// needs to know.
#pragma once

#include "vec.h"

namespace agon {

template <typename T>
constexpr int64_t kGroup = 4 / sizeof(T);

template <typename T>
struct HeadPart {
  T* keys;
  T* values;
};

// Part of one key/value head in one page.
template <typename T>
AGON_INLINE HeadPart<T> head_part(T* page, int64_t head, int64_t num_kv_heads, int64_t page_tokens, int64_t head_dim) {
  const int64_t size = page_tokens * head_dim;
  return {page + head * size, page + (num_kv_heads + head) * size};
}

}  // namespace agon
