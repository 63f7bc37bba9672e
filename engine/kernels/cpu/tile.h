// A tile of a context: the keys and values of kTile tokens of one head, in the form that the products of attention.cpp
// take.
//
// T: the type that is computed with. S: the type in pages, T itself or int8_t. Pages of T are read in place if a page
// holds whole vectors of tokens. int8 is converted to T in a buffer that stays in the first two cache levels. Every
// int8 number is a bfloat16 or a float exactly, so the products are those of the int8 numbers; a token's two scales are
// applied to its score and to its weight, which is one multiplication instead of D. Decodes take 1.2 to 2 times as long
// as over bfloat16 pages. Products of int8 (VNNI) would avoid that, but need queries and weights in int8 as well, at a
// cost in accuracy.
#pragma once

#include <algorithm>
#include <vector>

#include "attention.h"
#include "layout.h"
#include "vec.h"

namespace agon {

constexpr int kTile = 64;  // tokens whose scores are computed at once
constexpr int kTileVectors = kTile / kLanes;

// Addresses of a tile's keys and values: for each vector of kLanes tokens its first word. key_stride: words from one
// group of a key's channels to the next. Scales of each vector of tokens; not set unless pages are int8.
struct Tile {
  const uint32_t* keys[kTileVectors];
  const uint32_t* values[kTileVectors];
  int64_t key_stride;
  const float* key_scales[kTileVectors];
  const float* value_scales[kTileVectors];
};

// A buffer for a tile that cannot be read in place, or for its values where pages hold keys alone; part of Scratch
// (attention.cpp).
template <typename T>
struct TileMemory {
  std::vector<T> keys, values;
  std::vector<float> key_scales, value_scales;
  explicit TileMemory(int64_t head_dim)
      : keys(kTile * head_dim), values(kTile * head_dim), key_scales(kTile), value_scales(kTile) {}
};

// Looks up one head in the pages of one sequence, for the tokens [low, high) that are read. Pages outside that range
// are replaced by the null page, which is zero. (A page's own tokens behind the context are zero too: store.cpp clears
// a page when it stores the page's first token.)
template <typename T, typename S>
class HeadPages {
 public:
  HeadPages(const AttentionArgs<T>& a, const AttentionItem& item, int64_t low, int64_t high)
      : layer_(a.layer), table_(a.table.pages + item.sequence * a.table.stride), head_(item.kv_head), low_(low), high_(high) {}

  // Addresses of the head in the page whose first token is `token`.
  AGON_INLINE HeadPart<S> part(int64_t token) const {
    const bool is_inside = token < high_ && token + layer_.page_tokens > low_;
    const int64_t page = is_inside ? table_[token / layer_.page_tokens] : 0;
    return head_part<S>(layer_, page, head_);
  }

  // True if a page holds whole vectors of tokens.
  bool has_vectors() const { return layer_.page_tokens % kLanes == 0; }
  int64_t page_tokens() const { return layer_.page_tokens; }
  int64_t head_dim() const { return layer_.head_dim; }
  const AttentionLayer& layer() const { return layer_; }

 private:
  const AttentionLayer& layer_;
  const int64_t* table_;
  const int64_t head_, low_, high_;
};

// The tile from token `first` on, in place: pages hold T, in whole vectors.
template <typename T>
static Tile tile_in_place(const HeadPages<T, T>& pages, int64_t first) {
  constexpr int64_t G = kGroup<T>;
  Tile tile;
  tile.key_stride = pages.page_tokens();
  for (int v = 0; v < kTileVectors; v++) {
    const int64_t token = first + v * kLanes, offset = token % pages.page_tokens();
    const auto head = pages.part(token - offset);
    tile.keys[v] = reinterpret_cast<const uint32_t*>(head.keys + offset * G);
    const int64_t value_offset = pages.layer().stores_values ? offset * pages.head_dim() : 0;
    tile.values[v] = reinterpret_cast<const uint32_t*>(head.values + value_offset);
  }
  return tile;
}

// Copies a tile's values, the last channels of its keys, into the buffer, in the order of values.
template <typename T>
static void take_values_of_keys(const AttentionLayer& layer, Tile& tile, TileMemory<T>& memory) {
  constexpr int64_t G = kGroup<T>;
  const int64_t V = layer.value_dim, first = (layer.head_dim - V) / G;
  for (int v = 0; v < kTileVectors; v++) {
    const uint32_t* keys = tile.keys[v] + first * tile.key_stride;
    T* values = memory.values.data() + v * kLanes * V;
    for (int64_t g = 0; g < V / G; g++, keys += tile.key_stride) {
      const T* from = reinterpret_cast<const T*>(keys);
      T* to = values + g * G * G;
      for (int64_t t = 0; t < kLanes; t += G, from += G * G, to += V * G)
        for (int64_t c = 0; c < G; c++)
          for (int64_t i = 0; i < G; i++) to[c * G + i] = from[i * G + c];
    }
    tile.values[v] = reinterpret_cast<const uint32_t*>(values);
    tile.value_scales[v] = tile.key_scales[v];
  }
}

// The tile in the buffer.
template <typename T>
static Tile tile_in(const TileMemory<T>& memory, int64_t head_dim) {
  Tile tile;
  tile.key_stride = kTile;
  for (int v = 0; v < kTileVectors; v++) {
    tile.keys[v] = reinterpret_cast<const uint32_t*>(memory.keys.data() + v * kLanes * kGroup<T>);
    tile.values[v] = reinterpret_cast<const uint32_t*>(memory.values.data() + v * kLanes * head_dim);
    tile.key_scales[v] = memory.key_scales.data() + v * kLanes;
    tile.value_scales[v] = memory.value_scales.data() + v * kLanes;
  }
  return tile;
}

// The tile copied into the buffer element by element: for pages of any size.
template <typename T, typename S>
static Tile tile_by_elements(const HeadPages<T, S>& pages, int64_t first, TileMemory<T>& memory) {
  constexpr int64_t G = kGroup<T>;
  const int64_t page_tokens = pages.page_tokens(), D = pages.head_dim();
  const bool has_values = pages.layer().stores_values;
  for (int64_t t = 0; t < kTile; t++) {
    const int64_t offset = (first + t) % page_tokens;
    const auto head = pages.part(first + t - offset);
    for (int64_t d = 0; d < D; d++) {
      copy_one(&memory.keys[(d / G * kTile + t) * G + d % G], head.keys[(d / G * page_tokens + offset) * G + d % G]);
      if (has_values) copy_one(&memory.values[(t / G * D + d) * G + t % G], head.values[(offset / G * D + d) * G + offset % G]);
    }
    if constexpr (kHasScales<S>) {
      memory.key_scales[t] = head.key_scales[offset];
      memory.value_scales[t] = head.value_scales[offset];
    }
  }
  return tile_in(memory, D);
}

// The tile of int8 pages converted into the buffer; pages hold whole vectors.
template <typename T>
static Tile tile_of_bytes(const HeadPages<T, int8_t>& pages, int64_t first, TileMemory<T>& memory) {
  constexpr int64_t G = kGroup<T>;
  const int64_t page_tokens = pages.page_tokens(), D = pages.head_dim();
  Tile tile = tile_in(memory, D);
  const bool has_values = pages.layer().stores_values;
  for (int v = 0; v < kTileVectors; v++) {
    const int64_t token = first + v * kLanes, offset = token % page_tokens;
    const auto head = pages.part(token - offset);
    const int8_t *keys = head.keys + offset * G, *values = head.values + offset * D;
    T *to = memory.keys.data() + v * kLanes * G, *to_values = memory.values.data() + v * kLanes * D;
    for (int64_t g = 0; g < D / G; g++, keys += page_tokens * G, to += kTile * G) widen(to, keys);
    for (int64_t i = 0; has_values && i < kLanes * D; i += kLanes * G) widen(to_values + i, values + i);
    tile.key_scales[v] = head.key_scales + offset;
    tile.value_scales[v] = head.value_scales + offset;
  }
  return tile;
}

// Prefetches the int8 numbers that tile_of_bytes will read for the tile from token `first` on.
template <typename T>
static void fetch_bytes(const HeadPages<T, int8_t>& pages, int64_t first) {
  constexpr int64_t kLine = 64, G = kGroup<T>;
  const int64_t D = pages.head_dim(), page_tokens = pages.page_tokens(), step = std::min<int64_t>(page_tokens, kTile);
  for (int64_t token = first; token < first + kTile; token += step) {
    const int64_t offset = token % page_tokens;
    const auto head = pages.part(token - offset);
    for (int64_t i = 0; i < step * D; i += kLine) {
      __builtin_prefetch(head.keys + (step == page_tokens ? i : i / (step * G) * page_tokens * G + offset * G), 0, 2);
      __builtin_prefetch(head.values + offset * D + i, 0, 2);
    }
    for (int64_t i = 0; i < step; i += kLine / 4) {
      __builtin_prefetch(head.key_scales + offset + i, 0, 2);
      __builtin_prefetch(head.value_scales + offset + i, 0, 2);
    }
  }
}

// The tile of an item's context from token `first` on, a multiple of kTile, by the fastest of the three ways. Tokens
// outside [low, high) are not read. `memory` may be overwritten.
template <typename T, typename S>
static Tile find_stored_tile(const AttentionArgs<T>& a, const AttentionItem& item, int64_t first, int64_t low, int64_t high,
                      TileMemory<T>& memory) {
  const HeadPages<T, S> pages(a, item, low, high);
  if (!pages.has_vectors()) return tile_by_elements(pages, first, memory);
  if constexpr (kHasScales<S>) return tile_of_bytes(pages, first, memory);
  else return tile_in_place(pages, first);
}

// The same; values that are not stored are taken from the keys.
template <typename T, typename S>
static Tile find_tile(const AttentionArgs<T>& a, const AttentionItem& item, int64_t first, int64_t low, int64_t high,
                      TileMemory<T>& memory) {
  Tile tile = find_stored_tile<T, S>(a, item, first, low, high, memory);
  if (!a.layer.stores_values) take_values_of_keys(a.layer, tile, memory);
  return tile;
}

}  // namespace agon
