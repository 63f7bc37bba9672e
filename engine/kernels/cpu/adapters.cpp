// Updates by low-rank adapters in two phases over all runs of a step: down x, then up of that added to y. Work items of
// all adapters are in one phase, so that many adapters with a row each cost two barriers, not two each.
//
// `down` has few outputs, so its rows are read as they are, each a dot product over the lanes of vectors. `up` has few
// inputs and many outputs: packed panels and the tiles of panels.h. Sums are in float. Every sum is one chain in a fixed
// order, for any number of rows.

#include "adapters.h"

#include <algorithm>
#include <vector>

#include "plain.h"

namespace agon {

constexpr int64_t kItemRows = 16, kItemRanks = 8;   // of a work item of the first phase
constexpr int64_t kUpRows = 64, kUpPanels = 8;      // of the second
constexpr int kDotRows = 4, kDotRanks = 4;          // of a tile of dot products: 16 sums in registers

template <typename T>
constexpr int64_t kVectorElements = kLanes * 4 / int64_t(sizeof(T));

AGON_INLINE Floats add_products(Floats sum, const float* x, const float* weights) {
  return sum + load(x) * load(weights);
}
AGON_INLINE Floats add_products(Floats sum, const bf16* x, const bf16* weights) {
  return dot_pairs(sum, load_as<Words>(x), load_as<Words>(weights));
}

// kRows rows of x times kRanks rows of down; writes ranks [kRows, kRanks].
template <typename T, int kRows, int kRanks>
static void dot_tile(const T* x, int64_t x_stride, const T* down, int64_t down_stride, int64_t num_inputs, T* ranks,
                     int64_t rank_stride) {
  constexpr int64_t E = kVectorElements<T>;
  Floats sums[kRows][kRanks];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; r++)
#pragma GCC unroll 8
    for (int n = 0; n < kRanks; n++) sums[r][n] = Floats{};
  const int64_t whole = num_inputs / E * E;
  for (int64_t k = 0; k < whole; k += E)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 8
      for (int n = 0; n < kRanks; n++) sums[r][n] = add_products(sums[r][n], x + r * x_stride + k, down + n * down_stride + k);
  if (whole < num_inputs) {
    for (int r = 0; r < kRows; r++) {
      T rest[E] = {};
      std::memcpy(rest, x + r * x_stride + whole, (num_inputs - whole) * sizeof(T));
      for (int n = 0; n < kRanks; n++) sums[r][n] = add_products(sums[r][n], rest, down + n * down_stride + whole);
    }
  }
  for (int r = 0; r < kRows; r++)
    for (int n = 0; n < kRanks; n++) store_one(ranks + r * rank_stride + n, sum(sums[r][n]));
}

// Rows [rows) of a run times ranks [first, last) of its adapter.
template <typename T>
static void multiply_down(const AdapterArgs<T>& a, const AdapterWeights& weights, Range rows, int64_t first, int64_t last) {
  const T* down = static_cast<const T*>(weights.down);
  const int64_t stride = weights.down_stride;
  int64_t row = rows.first;
  for (; row + kDotRows <= rows.last; row += kDotRows)
    for (int64_t n = first; n < last; n += n + kDotRanks <= last ? kDotRanks : 1) {
      const T* x = a.x + row * a.x_stride;
      T* ranks = a.ranks + row * a.rank_stride + n;
      if (n + kDotRanks <= last)
        dot_tile<T, kDotRows, kDotRanks>(x, a.x_stride, down + n * stride, stride, a.num_inputs, ranks, a.rank_stride);
      else dot_tile<T, kDotRows, 1>(x, a.x_stride, down + n * stride, stride, a.num_inputs, ranks, a.rank_stride);
    }
  for (; row < rows.last; row++)
    for (int64_t n = first; n < last; n += n + kItemRanks <= last ? kItemRanks : 1) {
      const T* x = a.x + row * a.x_stride;
      T* ranks = a.ranks + row * a.rank_stride + n;
      if (n + kItemRanks <= last)
        dot_tile<T, 1, kItemRanks>(x, a.x_stride, down + n * stride, stride, a.num_inputs, ranks, a.rank_stride);
      else dot_tile<T, 1, 1>(x, a.x_stride, down + n * stride, stride, a.num_inputs, ranks, a.rank_stride);
    }
}

template <typename T>
struct UpArgs : LinearArgs<T> {
  const float *gains, *shifts;  // of the part, or null
};

// A Kind of panels.h: the product is added to what y holds, times the gain.
template <typename T>
struct Added : Plain<T> {
  using Args = UpArgs<T>;
  static AGON_INLINE Floats finish(const Args& a, Floats sum, int64_t row, int64_t output) {
    const int64_t count = a.num_outputs - output;
    const T* y = a.y + row * a.y_stride + output;
    if (count >= kLanes) {
      const Floats base = load(y);
      return sum + (a.gains == nullptr ? base : base * load(a.gains + output) + load(a.shifts + output));
    }
    const int n = int(count);
    const Floats base = load_part(y, n);
    return sum + (a.gains == nullptr ? base : base * load_part(a.gains + output, n) + load_part(a.shifts + output, n));
  }
};

// Rows of a run times panels [first, last) of a part, added to y.
template <typename T>
static void add_up(const AdapterArgs<T>& a, const AdapterPart& part, Range rows, int64_t first, int64_t last) {
  using Kind = Added<T>;
  UpArgs<T> args;
  static_cast<LinearArgs<T>&>(args) = {a.ranks + part.first_rank, a.rank_stride, static_cast<const T*>(part.up), nullptr,
                                       a.y + part.first_output,   a.y_stride,    rows.last, part.num_ranks,
                                       part.num_outputs};
  args.gains = part.gains, args.shifts = part.shifts;
  const Target<T> to{nullptr, args.y, args.y_stride};
  Floats outputs[kTileVectors<Kind>];
  constexpr std::make_index_sequence<Kind::kTileRows> instances;
  const int64_t num_rows = rows.last - rows.first, num_tiles = (num_rows + Kind::kTileRows - 1) / Kind::kTileRows;
  for (int64_t p = first; p < last; p++) {
    const T* panel = args.packed + p * part.num_ranks * kPanel;
    for (int64_t t = 0; t < num_tiles; t++) {
      const Range r = part_of(num_rows, t, num_tiles);
      const int64_t count = r.last - r.first, row = rows.first + r.first;
      for (int v = 0; v < kVectors; v += width_for(int(count))) {
        const int64_t output = p * kPanel + v * kLanes;
        tile_of<Kind, 1>(count, instances)(args, panel + vector_at(v, part.num_ranks, Kind::kGroup), row, output,
                                           reinterpret_cast<const char*>(panel), outputs);
        write_tile(to, outputs, row, int(count), output, part.num_outputs);
      }
    }
  }
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t up_items(const AdapterPart& part) { return ceil_div(panels_for(part.num_outputs), kUpPanels); }

int64_t widest_rank(const AdapterWeights* slots, const AdapterRun* runs, int64_t num_runs) {
  int64_t widest = 0;
  for (int64_t i = 0; i < num_runs; i++) widest = std::max(widest, slots[runs[i].slot].num_ranks);
  return widest;
}

// The block of at most `size` rows of a run.
static Range block_of(const AdapterRun& run, int64_t block, int64_t size) {
  const int64_t first = run.first_row + block * size;
  return {first, std::min(first + size, run.first_row + run.num_rows)};
}

template <typename T>
void add_adapters(const AdapterArgs<T>& a, Team& team) {
  int64_t num_down = 0, num_up = 0;
  for (int64_t i = 0; i < a.num_runs; i++) {
    const AdapterWeights& weights = a.slots[a.runs[i].slot];
    num_down += ceil_div(a.runs[i].num_rows, kItemRows) * ceil_div(weights.num_ranks, kItemRanks);
    for (int64_t p = 0; p < weights.num_parts; p++)
      num_up += ceil_div(a.runs[i].num_rows, kUpRows) * up_items(weights.parts[p]);
  }
  team.each(num_down, [&](int64_t item, int64_t) {
    for (int64_t i = 0;; i++) {
      const AdapterRun& run = a.runs[i];
      const AdapterWeights& weights = a.slots[run.slot];
      const int64_t row_blocks = ceil_div(run.num_rows, kItemRows), count = row_blocks * ceil_div(weights.num_ranks, kItemRanks);
      if (item >= count) {
        item -= count;
        continue;
      }
      const int64_t first = item / row_blocks * kItemRanks;
      return multiply_down(a, weights, block_of(run, item % row_blocks, kItemRows), first,
                           std::min(first + kItemRanks, weights.num_ranks));
    }
  });
  team.each(num_up, [&](int64_t item, int64_t) {
    for (int64_t i = 0;; i++) {
      const AdapterRun& run = a.runs[i];
      const AdapterWeights& weights = a.slots[run.slot];
      const int64_t row_blocks = ceil_div(run.num_rows, kUpRows);
      for (int64_t p = 0; p < weights.num_parts; p++) {
        const AdapterPart& part = weights.parts[p];
        const int64_t count = row_blocks * up_items(part);
        if (item >= count) {
          item -= count;
          continue;
        }
        const int64_t first = item / row_blocks * kUpPanels;
        return add_up(a, part, block_of(run, item % row_blocks, kUpRows), first,
                      std::min(first + kUpPanels, panels_for(part.num_outputs)));
      }
    }
  });
}

template void add_adapters(const AdapterArgs<float>&, Team&);
template void add_adapters(const AdapterArgs<bf16>&, Team&);

}  // namespace agon

extern "C" {

// agon_add_adapters_{f32,bf16}: y [rows, outputs] += the updates of the adapters of x [rows, inputs]. Called by
// CppAdapterProduct (engine/kernels/cpu/adapters.py).
#define AGON_ADAPTERS(suffix, T)                                                                                    \
  void agon_add_adapters_##suffix(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t num_rows,           \
                                  int64_t num_inputs, const agon::AdapterWeights* slots,                            \
                                  const agon::AdapterRun* runs, int64_t num_runs, int num_threads) {                \
    const int64_t rank_stride = agon::widest_rank(slots, runs, num_runs);                                           \
    if (rank_stride == 0) return;                                                                                   \
    std::vector<T> ranks(num_rows * rank_stride);                                                                   \
    agon::with_team(num_threads, [&](agon::Team& team) {                                                            \
      agon::add_adapters<T>({x, x_stride, y, y_stride, num_inputs, slots, runs, num_runs, ranks.data(), rank_stride}, \
                            team);                                                                                  \
    });                                                                                                             \
  }
AGON_ADAPTERS(f32, float)
AGON_ADAPTERS(bf16, agon::bf16)
}
