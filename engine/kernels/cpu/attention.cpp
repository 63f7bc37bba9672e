// Causal attention over paged keys and values: any mix of prompts, chunks and decodes in one call.
//
// A work item is one key/value head of a sequence and all query rows that read it: the H / K heads of one token in a
// decode, those of up to kQueryTokens tokens in a prompt. Online softmax (Milakov and Gimelshein 2018); scores and sums
// in float.
//
// The context is split at fixed multiples of kSplit tokens. Each part is summed by itself and the parts are merged in
// order, no matter whether one thread computes them one after the other or several threads one each. So a row's result
// depends on its own query and context only: not on the other rows, the chunking of the prompt or the number of
// threads.

#include "attention.h"

#include <algorithm>
#include <cmath>

#include "layout.h"
#include "store.h"
#include "tile.h"
#include "vec.h"

namespace agon {

constexpr int64_t kSplit = 256;       // tokens of a part of the context; a multiple of kTile
constexpr int kQueryTokens = 32;      // query tokens of one work item, at most
constexpr int64_t kQueryRows = 512;   // likewise query heads of these tokens, unless one token has more
constexpr int64_t kDecodeTokens = 4;  // up to this many query tokens, each part of a context is its own work item
constexpr float kLog2E = 1.44269504f;
constexpr float kLowest = -1e30f;     // below any score, and finite: kLowest - kLowest is 0, not NaN
constexpr float kSlack = 12.0f;       // how far scores may be above the score that sums are relative to

// Register tile of a product: rows, and vectors of sums per row, that fit into registers. With widening there are more
// rows, because each widened factor is then used more often.
template <typename T>
constexpr int kRowTile = kLanes == 16 ? 6 : kWidens<T> ? 5 : 3;
template <typename T>
constexpr int kColumns = kLanes == 16 || !kWidens<T> ? 4 : 2;

// 32-bit words that hold one group (kGroup<T>) of a row's queries or weights: one float per element if T is widened.
template <typename T>
constexpr int64_t kInputWords = kWidens<T> ? kGroup<T> : 1;

using Item = AttentionItem;

// State of the online softmax of some rows: the score that weights are relative to, sum of weights, weighted sum of
// values. A view of memory that is owned by Scratch or AttentionArgs::partials. Scores are those to the base 2: weights
// are powers of two. The score is about the largest: at most kSlack below it, as rescaling the sums at every larger score
// would take longer than the weights themselves.
struct Sums {
  float* largest;  // [rows]
  float* weight;   // [rows]
  float* values;   // [rows, V]
};

// Working memory of one thread in attend(), for up to `rows` query rows.
template <typename T>
struct Scratch {
  std::vector<float> scores, part, total;
  std::vector<float> lanes;  // [rows, kLanes]: sums of weights in a part of the context, lane by lane
  std::vector<uint32_t> query, weights;  // words: one float or two bfloat16
  std::vector<T> rotated;                // one row's query after norm and rotation
  TileMemory<T> tile;
  Scratch(int64_t rows, int64_t head_dim, int64_t value_dim)
      : scores(rows * kTile),
        lanes(rows * kLanes),
        part(rows * (value_dim + 2)),
        total(rows * (value_dim + 2)),
        query(rows * head_dim),
        weights(rows * kTile),
        rotated(head_dim),
        tile(head_dim) {}
};

// Splits memory [rows * (V + 2)] into the three arrays of Sums.
static Sums sums_in(float* memory, int64_t rows) { return {memory, memory + rows, memory + 2 * rows}; }

static void clear(Sums s, int64_t rows, int64_t value_dim) {
  std::fill(s.largest, s.largest + rows, kLowest);
  std::fill(s.weight, s.weight + rows, 0.0f);
  std::fill(s.values, s.values + rows * value_dim, 0.0f);
}

// total = total joined with part: both become relative to the larger of their largest scores.
static void merge(Sums total, Sums part, int64_t rows, int64_t value_dim) {
  for (int64_t r = 0; r < rows; r++) {
    const float largest = std::max(total.largest[r], part.largest[r]);
    const float a = power_of_two(splat(total.largest[r] - largest))[0];
    const float b = power_of_two(splat(part.largest[r] - largest))[0];
    total.largest[r] = largest;
    total.weight[r] = total.weight[r] * a + part.weight[r] * b;
    float *to = total.values + r * value_dim, *from = part.values + r * value_dim;
    for (int64_t d = 0; d < value_dim; d++) to[d] = to[d] * a + from[d] * b;
  }
}

// sums[r][c] += the products of one group of row r's inputs (at x + r * x_stride words) and the vector of factors at
// y[c].
template <typename T, int kRows, int kCount>
AGON_INLINE void add_group(Floats (&sums)[kRows][kCount], const uint32_t* x, int64_t x_stride,
                           const uint32_t* const (&y)[kCount]) {
  if constexpr (kWidens<T>) {
    add_pairs(sums, reinterpret_cast<const float*>(x), x_stride, y);
  } else {
#pragma GCC unroll 4
    for (int c = 0; c < kCount; c++)
#pragma GCC unroll 8
      for (int r = 0; r < kRows; r++) {
        const Words input = splat_word_at(x + r * x_stride), factors = load_as<Words>(y[c]);
        if constexpr (sizeof(T) == 2) sums[r][c] = dot_pairs(sums[r][c], input, factors);
        else sums[r][c] += as_floats(input) * as_floats(factors);
      }
  }
}

// Calls work.run<count>(first) for rows [first, first + count), in groups of at most kMost rows.
template <int kMost, typename Work>
AGON_INLINE void in_row_tiles(int64_t rows, const Work& work, int64_t first = 0) {
  for (; rows - first >= kMost; first += kMost) work.template run<kMost>(first);
  if constexpr (kMost > 1) in_row_tiles<kMost - 1>(rows, work, first);
}

// Scores [rows, kTile] of a tile: query [rows, words] times keys. Prefetches the keys of the next tile (if it is read
// in place) into the second level cache, which allows more outstanding requests than the first level: 17 instead of 12
// GB/s.
template <typename T, typename S>
struct Score {
  static constexpr int kCount = kColumns<T>;
  const uint32_t* query;
  int64_t groups;  // of channels
  const Tile &tile, &next;
  float* scores;

  template <int kRows>
  AGON_INLINE void run(int64_t first) const {
    for (int v = 0; v < kTileVectors; v += kCount)
      if (first == 0 && !kHasScales<S>) run<kRows, true>(first, v);
      else run<kRows, false>(first, v);
  }

  template <int kRows, bool kFetches>
  AGON_INLINE void run(int64_t first, int first_vector) const {
    Floats acc[kRows][kCount];
    const uint32_t *keys[kCount], *ahead[kCount];
#pragma GCC unroll 4
    for (int c = 0; c < kCount; c++) {
      keys[c] = tile.keys[first_vector + c];
      ahead[c] = next.keys[first_vector + c];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; r++) acc[r][c] = splat(0.0f);
    }
    const int64_t words = groups * kInputWords<T>;
    const uint32_t* x = query + first * words;
#pragma GCC unroll 1
    for (int64_t g = 0; g < groups; g++, x += kInputWords<T>) {
#pragma GCC unroll 4
      for (int c = 0; c < kCount; c++) {
        if constexpr (kFetches) __builtin_prefetch(ahead[c], 0, 2);
        ahead[c] += next.key_stride;
      }
      add_group<T>(acc, x, words, keys);
#pragma GCC unroll 4
      for (int c = 0; c < kCount; c++) keys[c] += tile.key_stride;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
      for (int c = 0; c < kCount; c++) store(scores + (first + r) * kTile + (first_vector + c) * kLanes, acc[r][c]);
  }
};

// sums [rows, V] += weights [rows, kTile / G words] times the tile's values, for kCount vectors of channels from
// `column` on. Prefetches the values of the next tile in the same way.
template <typename T, typename S, int kCount>
struct AddValues {
  const uint32_t* weights;
  const Tile &tile, &next;
  int num_vectors;  // of tokens that any row reads; weights of the others are zero
  int64_t column, value_dim;
  float* sums;

  template <int kRows>
  AGON_INLINE void run(int64_t first) const {
    if (first == 0 && !kHasScales<S>) run<kRows, true>(first);
    else run<kRows, false>(first);
  }

  template <int kRows, bool kFetches>
  AGON_INLINE void run(int64_t first) const {
    constexpr int64_t kSteps = kLanes / kGroup<T>, kWords = kTile / kGroup<T> * kInputWords<T>;
    Floats acc[kRows][kCount];
    float* to = sums + first * value_dim + column;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
      for (int c = 0; c < kCount; c++) acc[r][c] = load(to + r * value_dim + c * kLanes);
    const uint32_t* w = weights + first * kWords;
#pragma GCC unroll 1
    for (int v = 0; v < num_vectors; v++) {
      const uint32_t *values = tile.values[v] + column, *ahead = next.values[v] + column;
#pragma GCC unroll 1
      for (int64_t i = 0; i < kSteps; i++, w += kInputWords<T>, values += value_dim, ahead += value_dim) {
        const uint32_t* columns[kCount];
#pragma GCC unroll 4
        for (int c = 0; c < kCount; c++) {
          if constexpr (kFetches) __builtin_prefetch(ahead + c * kLanes, 0, 2);
          columns[c] = values + c * kLanes;
        }
        add_group<T>(acc, w, kWords, columns);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
      for (int c = 0; c < kCount; c++) store(to + r * value_dim + c * kLanes, acc[r][c]);
  }
};

// AddValues for all V channels.
template <typename T, typename S>
static void add_values(int64_t rows, const uint32_t* weights, const Tile& tile, const Tile& next, int num_vectors,
                       int64_t value_dim, float* sums) {
  constexpr int kWide = kColumns<T>;
  int64_t column = 0;
  for (; column + kWide * kLanes <= value_dim; column += kWide * kLanes)
    in_row_tiles<kRowTile<T>>(rows, AddValues<T, S, kWide>{weights, tile, next, num_vectors, column, value_dim, sums});
  for (; column < value_dim; column += kLanes)
    in_row_tiles<kRowTile<T>>(rows, AddValues<T, S, 1>{weights, tile, next, num_vectors, column, value_dim, sums});
}

// One row and one tile: scores -> weights 2^(score - largest), rounded to T and times the values' scales; adds to the
// row's sum of weights, which is kept in `lanes`, and rescales its sums if scores have grown by more than kSlack. The row
// reads tokens [low, high) of the tile.
template <typename T, typename S>
static void soften(float* scores, const Tile& tile, uint32_t* weights, Sums sums, float* lanes, int64_t row,
                   int64_t value_dim, float scale, float softcap, int64_t low, int64_t high) {
  const bool is_whole = low <= 0 && high >= kTile;
  // A positive factor can be applied after the maximum is known, together with the subtraction.
  const float factor = (softcap != 0.0f ? softcap : scale) * kLog2E;
  Floats s[kTileVectors];
  Ints lane;
  for (int i = 0; i < kLanes; i++) lane[i] = i;
  Floats best = splat(-INFINITY);
#pragma GCC unroll 4
  for (int v = 0; v < kTileVectors; v++) {
    s[v] = load(scores + v * kLanes);
    if constexpr (kHasScales<S>) s[v] *= load(tile.key_scales[v]);
    if (softcap != 0.0f) s[v] = tanh(s[v] * (scale / softcap));
    if (!is_whole) {
      const Ints token = lane + v * kLanes;
      s[v] = ((token >= int32_t(low)) & (token < int32_t(high))) ? s[v] : splat(-INFINITY);
    }
    best = max(best, s[v]);
  }
  best *= factor;
  float largest = sums.largest[row];
  Floats weight = load(lanes + row * kLanes);
  if (any_above(best, largest + kSlack)) {  // seldom, after a row's first tile
    largest = agon::largest(best);
    if (sums.largest[row] != kLowest) {  // else there are no sums yet
      const float shrink = power_of_two(splat(sums.largest[row] - largest))[0];
      weight *= shrink;
      float* values = sums.values + row * value_dim;
      for (int64_t d = 0; d < value_dim; d++) values[d] *= shrink;
    }
    sums.largest[row] = largest;
  }
#pragma GCC unroll 4
  for (int v = 0; v < kTileVectors; v++) {
    Floats e = power_of_two<sizeof(T) == 2>(s[v] * factor - largest);
    if (!is_whole) e = s[v] == splat(-INFINITY) ? splat(0.0f) : e;
    weight += e;
    const Floats scaled = kHasScales<S> ? e * load(tile.value_scales[v]) : e;
    if constexpr (kWidens<T>) store(reinterpret_cast<float*>(weights) + v * kLanes, widen(narrow(scaled)));
    else store(reinterpret_cast<T*>(weights) + v * kLanes, scaled);
  }
  store(lanes + row * kLanes, weight);
}

// First token that the query at a position reads.
static int64_t first_visible(const AttentionLayer& layer, int64_t position) {
  if (layer.chunk > 0) return position / layer.chunk * layer.chunk;
  return layer.window > 0 ? std::max<int64_t>(0, position - layer.window + 1) : 0;
}

// First token that any row of the item reads.
static int64_t lowest_token(const AttentionLayer& layer, const Item& item) {
  return first_visible(layer, item.first_query);
}

// Adds the context's part [first_token, end_token) to the sums of the item's rows. following: the item that this thread
// does next, whose first tile is prefetched meanwhile; may be null.
template <typename T, typename S>
static void attend_part(const AttentionArgs<T>& a, const Item& item, int64_t first_token, int64_t end_token, Sums sums,
                        Scratch<T>& scratch, const Item* following) {
  const AttentionLayer& layer = a.layer;
  const int64_t D = layer.head_dim, V = layer.value_dim;
  const int64_t heads = layer.num_heads / layer.num_kv_heads, rows = heads * item.num_queries;
  const int64_t low = lowest_token(layer, item), high = std::min(item.first_query + item.num_queries, end_token);
  const bool has_vectors = layer.page_tokens % kLanes == 0;
  const bool is_direct = has_vectors && !kHasScales<S> && layer.stores_values;
  int64_t first = std::max(first_token, low / kTile * kTile);
  if (first >= high) return;
  std::fill_n(scratch.lanes.data(), rows * kLanes, 0.0f);
  const auto find = [&](int64_t token) { return find_tile<T, S>(a, item, token, low, high, scratch.tile); };
  Tile tile = find(first);
  for (; first < high; first += kTile) {
    const bool is_last = first + kTile >= high;
    const Item* owner = is_last ? following : &item;  // the item that the next tile belongs to
    Tile next = tile;
    if (owner != nullptr && has_vectors) {
      const int64_t lowest = lowest_token(layer, *owner);
      const int64_t start = is_last ? std::max(owner->first_token, lowest / kTile * kTile) : first + kTile;
      const HeadPages<T, S> pages(a, *owner, lowest, is_last ? owner->end_token : high);
      if constexpr (kHasScales<S>) fetch_bytes(pages, start);
      else next = tile_in_place(pages, start);
    }
    in_row_tiles<kRowTile<T>>(rows, Score<T, S>{scratch.query.data(), D / kGroup<T>, tile, next, scratch.scores.data()});
    for (int64_t row = 0; row < rows; row++) {
      const int64_t position = item.first_query + row / heads;
      const int64_t row_low = std::max(low, first_visible(layer, position));
      soften<T, S>(scratch.scores.data() + row * kTile, tile,
                   scratch.weights.data() + row * kTile / kGroup<T> * kInputWords<T>, sums,
                   scratch.lanes.data(), row, V, float(layer.scale), float(layer.softcap), row_low - first,
                   std::min(high, position + 1) - first);
    }
    const int num_vectors = int((std::min<int64_t>(kTile, high - first) + kLanes - 1) / kLanes);
    add_values<T, S>(rows, scratch.weights.data(), tile, next, num_vectors, V, sums.values);
    if (!is_last) tile = is_direct ? next : find(first + kTile);
  }
  for (int64_t row = 0; row < rows; row++) sums.weight[row] = sum(load(scratch.lanes.data() + row * kLanes));
}

// Weighted sums / sums of weights -> the item's rows of the output; sinks join the softmax here.
template <typename T>
static void write_output(const AttentionArgs<T>& a, const Item& item, Sums sums) {
  const AttentionLayer& layer = a.layer;
  const int64_t V = layer.value_dim, heads = layer.num_heads / layer.num_kv_heads;
  for (int64_t q = 0; q < item.num_queries; q++)
    for (int64_t h = 0; h < heads; h++) {
      const int64_t row = q * heads + h;
      T* to = a.output + ((item.first_row + q) * layer.num_heads + item.kv_head * heads + h) * V;
      float inverse = 1.0f / sums.weight[row];
      if (layer.sinks != nullptr) {
        const float sink = layer.sinks[item.kv_head * heads + h] * kLog2E;
        const float largest = std::max(sums.largest[row], sink);
        const float shrink = power_of_two(splat(sums.largest[row] - largest))[0];
        inverse = shrink / (sums.weight[row] * shrink + power_of_two(splat(sink - largest))[0]);
      }
      const float* from = sums.values + row * V;
      for (int64_t d = 0; d < V; d += kLanes) store(to + d, load(from + d) * inverse);
    }
}

AttentionPlan plan_attention(const AttentionLayer& layer, const StepSequences& sequences) {
  AttentionPlan plan;
  const int64_t query_tokens = std::clamp<int64_t>(kQueryRows * layer.num_kv_heads / layer.num_heads, 1, kQueryTokens);
  int64_t first_row = 0;
  for (int64_t b = 0; b < sequences.count; b++) {
    const int64_t start = sequences.starts[b], length = sequences.lengths[b], end = start + length;
    const int64_t begin = first_visible(layer, start) / kSplit * kSplit;
    for (int64_t token = start; (length > 1 || !layer.reads) && token < end;) {
      const int64_t last = std::min(end, (token / layer.page_tokens + 1) * layer.page_tokens);
      plan.runs.push_back({b, first_row + token - start, token, last - token});
      token = last;
    }
    for (int64_t k = 0; layer.reads && k < layer.num_kv_heads; k++) {
      if (length <= kDecodeTokens && end - begin > kSplit) {
        plan.merges.push_back({b, k, first_row, start, length, begin, end, plan.num_partials, false});
        for (int64_t token = begin; token < end; token += kSplit) {
          const bool is_last = token + kSplit >= end;
          plan.items.push_back({b, k, first_row, start, length, token, is_last ? end : token + kSplit,
                                plan.num_partials++, is_last && length == 1});
        }
        continue;
      }
      for (int64_t q = 0; q < length; q += query_tokens) {
        const int64_t count = std::min<int64_t>(query_tokens, length - q);
        plan.items.push_back({b, k, first_row + q, start + q, count, 0, start + q + count, -1, length == 1});
      }
    }
    first_row += length;
  }
  // The last chunks of a prompt read the longest context: they go first, so that no thread gets a long item at the end.
  if (!plan.runs.empty())
    std::stable_sort(plan.items.begin(), plan.items.end(), [](const Item& x, const Item& y) {
      return (x.end_token - x.first_token) * x.num_queries > (y.end_token - y.first_token) * y.num_queries;
    });
  for (const Item& item : plan.items) plan.most_queries = std::max(plan.most_queries, item.num_queries);
  return plan;
}

static int64_t partial_size(const AttentionLayer& layer) {
  return layer.num_heads / layer.num_kv_heads * kDecodeTokens * (layer.value_dim + 2);
}

int64_t attention_partials(const AttentionLayer& layer, const AttentionPlan& plan) {
  return plan.num_partials * partial_size(layer);
}

template <typename T, typename S>
static void attend_item(const AttentionArgs<T>& a, const Item& item, Scratch<T>& scratch, const Item* following) {
  const AttentionLayer& layer = a.layer;
  const int64_t D = layer.head_dim, V = layer.value_dim;
  const int64_t heads = layer.num_heads / layer.num_kv_heads, rows = heads * item.num_queries;
  const int64_t row_size = row_elements(layer);
  for (int64_t q = 0; q < item.num_queries; q++)
    for (int64_t h = 0; h < heads; h++) {
      const T* from = a.qkv + (item.first_row + q) * row_size + (item.kv_head * heads + h) * D;
      uint32_t* to = scratch.query.data() + (q * heads + h) * D / kGroup<T> * kInputWords<T>;
      T* rotated = kWidens<T> ? scratch.rotated.data() : reinterpret_cast<T*>(to);
      norm_and_rotate(layer, a.rotation, item.first_row + q, from, layer.query_norm, rotated);
      if constexpr (kWidens<T>)
        for (int64_t d = 0; d < D; d += kLanes) store(reinterpret_cast<float*>(to) + d, load(rotated + d));
    }
  if (item.partial >= 0) {
    const Sums sums = sums_in(a.partials + item.partial * partial_size(layer), rows);
    clear(sums, rows, V);
    attend_part<T, S>(a, item, item.first_token, item.end_token, sums, scratch, following);
    return;
  }
  const Sums total = sums_in(scratch.total.data(), rows), part = sums_in(scratch.part.data(), rows);
  const int64_t first = lowest_token(layer, item) / kSplit * kSplit;
  for (int64_t token = first; token < item.end_token; token += kSplit) {
    const Sums sums = token == first ? total : part;  // a part that is merged with nothing stays as it is
    clear(sums, rows, V);
    const bool is_last = token + kSplit >= item.end_token;
    attend_part<T, S>(a, item, token, token + kSplit, sums, scratch, is_last ? following : nullptr);
    if (token != first) merge(total, part, rows, V);
  }
  write_output(a, item, total);
}

template <typename T, typename S>
void attend(const AttentionArgs<T>& a, Team& team) {
  const AttentionLayer& layer = a.layer;
  const AttentionPlan& plan = a.plan;
  const int64_t V = layer.value_dim, heads = layer.num_heads / layer.num_kv_heads;
  const int64_t num_runs = layer.stores ? plan.runs.size() * layer.num_kv_heads : 0;
  team.each(num_runs, [&](int64_t i, int64_t) {
    store_run<T, S>(a, plan.runs[i / layer.num_kv_heads], i % layer.num_kv_heads);
  });
  Scratch<T> scratch(heads * plan.most_queries, layer.head_dim, V);
  team.each(plan.items.size(), [&](int64_t i, int64_t next) {
    const Item& item = plan.items[i];
    const Item* following = next < 0 ? nullptr : &plan.items[next];
    if (layer.stores && following != nullptr && following->stores_token)
      fetch_place<T, S>(a, following->sequence, following->first_query, following->kv_head);
    if (layer.stores && item.stores_token)
      store_run<T, S>(a, {item.sequence, item.first_row, item.first_query, 1}, item.kv_head);
    attend_item<T, S>(a, item, scratch, following);
  });
  team.each(plan.merges.size(), [&](int64_t i, int64_t) {
    const Item& item = plan.merges[i];
    const int64_t rows = heads * item.num_queries;
    std::vector<float> memory(rows * (V + 2));
    const Sums total = sums_in(memory.data(), rows);
    clear(total, rows, V);
    const int64_t count = (item.end_token - item.first_token + kSplit - 1) / kSplit;
    for (int64_t p = 0; p < count; p++)
      merge(total, sums_in(a.partials + (item.partial + p) * partial_size(layer), rows), rows, V);
    write_output(a, item, total);
  });
}

template void attend<float, float>(const AttentionArgs<float>&, Team&);
template void attend<float, int8_t>(const AttentionArgs<float>&, Team&);
template void attend<bf16, bf16>(const AttentionArgs<bf16>&, Team&);
template void attend<bf16, int8_t>(const AttentionArgs<bf16>&, Team&);

}  // namespace agon
