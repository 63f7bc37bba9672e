// The loops of a product with packed weights, for every kind of weights: linear.cpp (one scale per output or none) and
// grouped.cpp (scales per group of inputs). Packed weights are panels of kPanel outputs. A panel consists of strips of
// kStrip vectors, each [depth / G, vectors, kLanes, G], so that one load brings G elements of kLanes outputs. Panels are
// read front to back, once from memory and then from the caches for all row tiles of the input.
//
// A Kind states what is multiplied:
//   Args, Weight           what is multiplied (x, packed, sizes), type of a packed element
//   kGroup, kInputs        packed elements, and inputs, of an output that one step multiplies
//   kTileRows              rows of a tile: their sums take most of the registers
//   depth(args)            packed elements of an output
//   step()                 adds the products of one group of inputs of kRows rows to their sums
//   finish()               turns a sum into an output before the bias, in float
//   Sum, Total             type of a sum within a block of steps, and over all blocks; the same if !kHasBlocks
//   begin(), end()         kHasBlocks: the first sums of a block, and its sums added to the totals
//
// Only what writes the outputs depends on their type: the tiles, whose code is long, exist once for all types.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "linear.h"

namespace agon {

// Where the outputs of a product go. T: type of bias and y.
template <typename T>
struct Target {
  const T* bias;  // may be null
  T* y;
  int64_t y_stride;
};

constexpr int64_t kRowBlock = 64;    // least rows of a work item if there are few panels
constexpr int64_t kStripTiles = 6;   // row tiles multiplied in turn by a strip, which is then in the first level cache

// Vectors of a panel that are multiplied at a time: one strip, which is what fits into registers beside the rows. With
// few rows all vectors of the panel, because the latency of so few chains of additions would dominate.
constexpr int width_for(int num_rows) { return num_rows <= kFewRows ? kVectors : kStrip; }

// Offset in a panel of vector v's first group of inputs, in elements. depth: elements of one output. group: G.
AGON_INLINE int64_t vector_at(int v, int64_t depth, int64_t group) {
  return v / kStrip * depth * kStrip * kLanes + v % kStrip * kLanes * group;
}

// Offset of an output's first weight in the panels, in elements.
static int64_t output_at(int64_t output, int64_t depth, int64_t group) {
  const int64_t o = output % kPanel;
  return output / kPanel * kPanel * depth + vector_at(int(o / kLanes), depth, group) + o % kLanes * group;
}

// The steps [first, last) of kRows rows times kWidth vectors of a panel: products of one group of inputs each.
template <typename Kind, int kRows, int kWidth, int kLines, typename Input>
static AGON_INLINE void add_steps(typename Kind::Sum (&sums)[kRows][kWidth], const typename Kind::Args& a, const Input* x,
                                  const typename Kind::Weight* weights, int64_t first, int64_t last,
                                  const char* ahead) {
  const int64_t depth = Kind::depth(a);
#pragma GCC unroll 1
  for (int64_t k = first; k < last; k++) {
    const typename Kind::Weight* vectors[kWidth];
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; v++)
      vectors[v] = weights + vector_at(v, depth, Kind::kGroup) + k * kStrip * kLanes * Kind::kGroup;
#pragma GCC unroll 3
    for (int line = 0; line < kLines; line++) __builtin_prefetch(ahead + (k * kLines + line) * 64, 0, 2);
    Kind::template step<kRows, kWidth>(sums, a, x + k * Kind::kInputs, a.x_stride, vectors);
  }
}

// kRows rows of x from `row` on, times width_for(kRows) vectors of a panel from `first_output` on -> outputs [kRows,
// vectors] before the bias; vectors behind the last output are left out. `ahead` is memory that will be read soon:
// kLines cache lines of it per step are prefetched into the second level cache.
template <typename Kind, int kRows, int kLines>
static void tile(const typename Kind::Args& a, const typename Kind::Weight* weights, int64_t row, int64_t first_output,
                 const char* ahead, Floats* outputs) {
  constexpr int kWidth = width_for(kRows);
  typename Kind::Total sums[kRows][kWidth];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; v++) sums[r][v] = typename Kind::Total{};
  const auto* x = a.x + row * a.x_stride;
  const int64_t steps = Kind::depth(a) / Kind::kGroup;
  if constexpr (Kind::kHasBlocks) {
    for (int64_t block = 0, first = 0; first < steps; block++, first += Kind::block_steps(a)) {
      typename Kind::Sum parts[kRows][kWidth];
      Kind::template begin<kRows, kWidth>(parts, a, row, block);
      add_steps<Kind, kRows, kWidth, kLines>(parts, a, x, weights, first, first + Kind::block_steps(a), ahead);
      Kind::template end<kRows, kWidth>(sums, parts, a, row, block, first_output);
    }
  } else {
    add_steps<Kind, kRows, kWidth, kLines>(sums, a, x, weights, 0, steps, ahead);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kWidth; v++) {
    const int64_t output = first_output + v * kLanes;
    if (output >= a.num_outputs) break;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++) outputs[r * kWidth + v] = Kind::finish(a, sums[r][v], row + r, output);
  }
}

// Adds the bias to the outputs of a tile of num_rows rows and writes them.
template <typename T>
static void write_tile(const Target<T>& to, const Floats* outputs, int64_t row, int num_rows, int64_t first_output,
                       int64_t num_outputs) {
  const int width = width_for(num_rows);
  for (int v = 0; v < width; v++) {
    const int64_t output = first_output + v * kLanes;
    const int64_t count = num_outputs - output;
    if (count <= 0) break;
    const Floats bias = to.bias == nullptr ? splat(0.0f)
                        : count >= kLanes  ? load(to.bias + output)
                                           : load_part(to.bias + output, int(count));
    for (int r = 0; r < num_rows; r++) {
      T* y = to.y + (row + r) * to.y_stride + output;
      const Floats result = outputs[r * width + v] + bias;
      if (count >= kLanes) store(y, result);
      else store_part(y, result, int(count));
    }
  }
}

template <typename Kind>
using Tile = void (*)(const typename Kind::Args&, const typename Kind::Weight*, int64_t, int64_t, const char*, Floats*);
// Vectors of outputs that a tile has at most.
template <typename Kind>
constexpr int kTileVectors = std::max(Kind::kTileRows * kStrip, kFewRows * kVectors);

// The instance of tile() for num_rows rows.
template <typename Kind, int kLines, size_t... kRows>
static Tile<Kind> tile_of(int64_t num_rows, std::index_sequence<kRows...>) {
  static constexpr Tile<Kind> tiles[] = {tile<Kind, int(kRows) + 1, kLines>...};
  return tiles[num_rows - 1];
}

// Cache lines of a panel that a step reads.
template <typename Kind>
constexpr int kStepLines = std::max(1, int(kPanel * Kind::kGroup * sizeof(typename Kind::Weight)) / 64);

// The instance of tile() for num_rows rows if a panel is read num_passes times: each pass prefetches its share of the
// next panel.
template <typename Kind>
static Tile<Kind> tile_of(int64_t num_rows, int64_t num_passes) {
  constexpr std::make_index_sequence<Kind::kTileRows> rows;
  if constexpr (Kind::kHasBlocks)  // fewer instances: their code is long, and with several passes memory is no bound
    return num_passes == 1 ? tile_of<Kind, kStepLines<Kind>>(num_rows, rows) : tile_of<Kind, 1>(num_rows, rows);
  else
    return num_passes == 1   ? tile_of<Kind, kStepLines<Kind>>(num_rows, rows)
           : num_passes == 2 ? tile_of<Kind, (kStepLines<Kind> + 1) / 2>(num_rows, rows)
                             : tile_of<Kind, (kStepLines<Kind> + 2) / 3>(num_rows, rows);
}

// Some rows times panel p. `ahead`: what the thread reads next, as many bytes as a panel has.
template <typename Kind, typename T>
static void multiply_panel(const typename Kind::Args& a, const Target<T>& to, int64_t p, Range rows, const char* ahead) {
  static_assert(Kind::kTileRows > 2 * kFewRows, "either all tiles have few rows or none");
  const int64_t num_rows = rows.last - rows.first, num_tiles = (num_rows + Kind::kTileRows - 1) / Kind::kTileRows;
  const int width = width_for(int(num_rows / num_tiles));
  const int64_t num_passes = num_tiles * (kVectors / width), most = std::min<int64_t>(num_passes, kStepLines<Kind>);
  const auto* panel = a.packed + p * Kind::depth(a) * kPanel;
  const int64_t share = Kind::depth(a) * kPanel * int64_t(sizeof(*panel)) / most;
  int64_t pass = 0;
  Floats outputs[kTileVectors<Kind>];
  for (int64_t tiles = 0; tiles < num_tiles; tiles += kStripTiles)
    for (int v = 0; v < kVectors; v += width)
      for (int64_t t = tiles; t < std::min(tiles + kStripTiles, num_tiles); t++, pass++) {
        const Range r = part_of(num_rows, t, num_tiles);
        const int64_t first = rows.first + r.first, output = p * kPanel + v * kLanes;
        tile_of<Kind>(r.last - r.first, num_passes)(a, panel + vector_at(v, Kind::depth(a), Kind::kGroup), first, output,
                                                    ahead + std::min(pass, most - 1) * share, outputs);
        write_tile(to, outputs, first, int(r.last - r.first), output, a.num_outputs);
      }
}

// The number of work items of a product: one per panel; if these are few, one per panel and block of rows, at the price
// of reading a panel several times.
struct Items {
  int64_t num_panels, row_blocks;
  Items(int64_t panels, int64_t num_rows, int num_threads) : num_panels(panels), row_blocks(1) {
    while (num_panels * row_blocks < 2 * num_threads && num_rows / (row_blocks + 1) >= kRowBlock) row_blocks++;
  }
};

static int64_t panels_for(int64_t num_outputs) { return (num_outputs + kPanel - 1) / kPanel; }

// A product as work items, with the activation of its outputs if there is one.
template <typename Kind, typename T>
class Product {
 public:
  Product(const typename Kind::Args& a, const Target<T>& to, const Activated<T>* activated, int num_threads)
      : a_(a),
        to_(to),
        activated_(activated),
        has_pairs_(activated != nullptr && is_gated(activated->kind)),
        panel_size_(Kind::depth(a) * kPanel),
        items_(panels_for(has_pairs_ ? activated->size : a.num_outputs), a.num_rows, num_threads) {}

  int64_t num_items() const { return items_.num_panels * items_.row_blocks; }
  int64_t panel_bytes() const { return panel_size_ * int64_t(sizeof(*a_.packed)); }
  // The panel that an item reads first.
  const char* first_panel(int64_t item) const { return panel(item / items_.row_blocks); }

  // Computes an item; next: a panel that the thread reads next, for prefetching.
  void compute(int64_t item, const char* next) const {
    const int64_t p = item / items_.row_blocks;
    const Range rows = part_of(a_.num_rows, item % items_.row_blocks, items_.row_blocks);
    // A panel of gates and the panel of their ups are one item, so that one thread has both for the activation.
    const int64_t up = p + items_.num_panels;
    multiply_panel<Kind>(a_, to_, p, rows, has_pairs_ ? panel(up) : next);
    if (has_pairs_) multiply_panel<Kind>(a_, to_, up, rows, next);
    if (activated_ == nullptr) return;
    const int64_t first = p * kPanel, size = activated_->size, count = std::min<int64_t>(kPanel, size - first);
    for (int64_t row = rows.first; row < rows.last; row++) {
      const T* x = to_.y + row * to_.y_stride + first;
      activate(activated_->kind, x, x + size, activated_->y + row * size + first, count);
    }
  }

 private:
  const char* panel(int64_t p) const { return reinterpret_cast<const char*>(a_.packed + p * panel_size_); }

  typename Kind::Args a_;
  Target<T> to_;
  const Activated<T>* activated_;
  bool has_pairs_;
  int64_t panel_size_;
  Items items_;
};

// The product of one kind on every thread of the team.
template <typename Kind, typename T>
static void multiply_share(const typename Kind::Args& a, const Target<T>& to, Team& team, const Activated<T>* activated) {
  const Product<Kind, T> product(a, to, activated, team.num_threads);
  team.each(product.num_items(), [&](int64_t item, int64_t next) {
    product.compute(item, next < 0 ? team.ahead(product.panel_bytes(), product.first_panel(item))
                                   : product.first_panel(next));
  });
}

// Several products of one kind in one phase; args_of and target_of: of each of them. activated: null, or one for each.
template <typename Kind, typename Each, typename T>
static void multiply_shares(const Each* all, int64_t num_products, Team& team, const Activated<T>* activated) {
  if (num_products == 1) return multiply_share<Kind>(args_of(*all), target_of(*all), team, activated);
  std::vector<Product<Kind, T>> products;
  std::vector<int64_t> ends;  // of the items of each product
  products.reserve(num_products);
  for (int64_t i = 0; i < num_products; i++) {
    products.emplace_back(args_of(all[i]), target_of(all[i]), activated == nullptr ? nullptr : activated + i,
                          team.num_threads);
    ends.push_back((ends.empty() ? 0 : ends.back()) + products.back().num_items());
  }
  if (products.empty()) return;
  const auto find = [&](int64_t item) { return std::upper_bound(ends.begin(), ends.end(), item) - ends.begin(); };
  const auto within = [&](int64_t which, int64_t item) { return which == 0 ? item : item - ends[which - 1]; };
  team.each(ends.back(), [&](int64_t item, int64_t next) {
    const int64_t which = find(item), then = next < 0 ? which : find(next);
    const Product<Kind, T>& product = products[which];
    const char* panel = products[then].first_panel(within(then, next < 0 ? item : next));
    product.compute(within(which, item), next < 0 ? team.ahead(product.panel_bytes(), panel) : panel);
  });
}

}  // namespace agon
