// y = x W^T + b with weights packed once at load.
//
// Packed weights are panels of kPanel outputs, each [in / G, kPanel, G] so that one load brings G inputs of kLanes
// outputs: G = 1 for float, 2 for bfloat16 (one dot product instruction), 4 for int8. Panels are read front to back,
// each once from memory and then from the caches for all row tiles of the input.
//
// Every output is one chain of additions over the inputs in order, whatever the number of rows: a row's result does not
// depend on the rows beside it.

#include "threads.h"
#include "vec.h"

namespace agon {

constexpr int kVectors = 3;                  // vectors of outputs in a panel
constexpr int kPanel = kVectors * kLanes;    // 48 outputs with AVX-512
constexpr int kTileRows = kLanes == 16 ? 8 : 4;  // 24 (or 12) accumulators: most of the 32 (16) registers
constexpr int64_t kRowBlock = 64;            // rows of one work item where there are few panels

template <typename T>
struct Group;
template <>
struct Group<float> {
  static constexpr int size = 1;
  using Weights = Floats;
  using Inputs = Floats;
  static AGON_INLINE Inputs inputs(const float* x) { return splat(*x); }
  static AGON_INLINE Floats add(Floats sum, Inputs x, Weights w) { return sum + x * w; }
};
template <>
struct Group<bf16> {
  static constexpr int size = 2;
  using Weights = Words;
  using Inputs = Words;
  static AGON_INLINE Inputs inputs(const bf16* x) {
    uint32_t pair;
    std::memcpy(&pair, x, 4);
    return splat_word(pair);
  }
  static AGON_INLINE Floats add(Floats sum, Inputs x, Weights w) { return dot_pairs(sum, x, w); }
};

template <typename T>
struct LinearArgs {
  const T* x;
  int64_t x_stride;
  const T* packed;
  const T* bias;  // may be null
  T* y;
  int64_t y_stride;
  int64_t num_rows, num_inputs, num_outputs;
};

// kRows rows of x times one panel. `ahead` is memory that will be read soon: one cache line for each step is fetched.
template <typename T, int kRows>
static void tile(const LinearArgs<T>& a, const T* panel, int64_t row, int64_t first_output, const char* ahead) {
  using G = Group<T>;
  Floats sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; r++)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; v++) sums[r][v] = splat(0.0f);
  const T* x = a.x + row * a.x_stride;
  const int64_t steps = a.num_inputs / G::size;
  for (int64_t k = 0; k < steps; k++) {
    __builtin_prefetch(ahead + k * 64);
    typename G::Weights w[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; v++) w[v] = load_as<typename G::Weights>(panel + (k * kPanel + v * kLanes) * G::size);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++) {
      const auto inputs = G::inputs(x + r * a.x_stride + k * G::size);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; v++) sums[r][v] = G::add(sums[r][v], inputs, w[v]);
    }
  }
#pragma GCC unroll 3
  for (int v = 0; v < kVectors; v++) {
    const int64_t output = first_output + v * kLanes;
    const int64_t count = a.num_outputs - output;
    if (count <= 0) break;
    const Floats bias = a.bias == nullptr ? splat(0.0f)
                        : count >= kLanes ? load(a.bias + output)
                                          : load_part(a.bias + output, int(count));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++) {
      T* y = a.y + (row + r) * a.y_stride + output;
      if (count >= kLanes) store(y, sums[r][v] + bias);
      else store_part(y, sums[r][v] + bias, int(count));
    }
  }
}

template <typename T>
using Tile = void (*)(const LinearArgs<T>&, const T*, int64_t, int64_t, const char*);

template <typename T>
static Tile<T> tile_of(int64_t num_rows) {
  static constexpr Tile<T> tiles[] = {tile<T, 1>, tile<T, 2>, tile<T, 3>, tile<T, 4>,
                                      tile<T, 5>, tile<T, 6>, tile<T, 7>, tile<T, 8>};
  return tiles[num_rows - 1];
}

template <typename T>
static void linear(const LinearArgs<T>& a, int num_threads) {
  const int64_t num_panels = (a.num_outputs + kPanel - 1) / kPanel;
  const int64_t panel_size = a.num_inputs * kPanel;
  // Few panels for many threads: rows are split too, at the price of reading a panel several times.
  int64_t row_blocks = 1;
  while (num_panels * row_blocks < 2 * num_threads && a.num_rows / (row_blocks + 1) >= kRowBlock) row_blocks++;
  parallel_for(num_panels * row_blocks, num_threads, [&](int64_t item) {
    const int64_t p = item / row_blocks;
    const Range rows = part_of(a.num_rows, item % row_blocks, row_blocks);
    const T* panel = a.packed + p * panel_size;
    const int64_t num_tiles = (rows.last - rows.first + kTileRows - 1) / kTileRows;
    // The next panel is fetched while this one is computed on, a third by each of the first three tiles.
    const char* next = reinterpret_cast<const char*>(panel + (p + 1 < num_panels ? panel_size : 0));
    const int64_t third = panel_size * int64_t(sizeof(T)) / 3;
    for (int64_t t = 0; t < num_tiles; t++) {
      const Range r = part_of(rows.last - rows.first, t, num_tiles);
      const char* ahead = num_tiles == 1 ? reinterpret_cast<const char*>(panel) + 2048 : next + (t < 3 ? t : 2) * third;
      tile_of<T>(r.last - r.first)(a, panel, rows.first + r.first, p * kPanel, ahead);
    }
  });
}

// weight [out, in] -> panels; outputs beyond the last are zero.
template <typename T>
static void pack(const T* weight, T* packed, int64_t num_outputs, int64_t num_inputs, int num_threads) {
  constexpr int G = Group<T>::size;
  const int64_t num_panels = (num_outputs + kPanel - 1) / kPanel;
  parallel_for(num_panels, num_threads, [&](int64_t p) {
    T* panel = packed + p * num_inputs * kPanel;
    for (int64_t k = 0; k < num_inputs / G; k++)
      for (int64_t o = 0; o < kPanel; o++)
        for (int64_t g = 0; g < G; g++) {
          const int64_t output = p * kPanel + o;
          panel[(k * kPanel + o) * G + g] = output < num_outputs ? weight[output * num_inputs + k * G + g] : T(0);
        }
  });
}

}  // namespace agon

extern "C" {

int64_t agon_panel_outputs() { return agon::kPanel; }

#define AGON_LINEAR(suffix, T)                                                                                        \
  void agon_pack_linear_##suffix(const T* weight, T* packed, int64_t num_outputs, int64_t num_inputs,                 \
                                 int num_threads) {                                                                   \
    agon::pack<T>(weight, packed, num_outputs, num_inputs, num_threads);                                              \
  }                                                                                                                   \
  void agon_linear_##suffix(const T* x, int64_t x_stride, const T* packed, const T* bias, T* y, int64_t y_stride,     \
                            int64_t num_rows, int64_t num_inputs, int64_t num_outputs, int num_threads) {             \
    agon::linear<T>({x, x_stride, packed, bias, y, y_stride, num_rows, num_inputs, num_outputs}, num_threads);        \
  }
AGON_LINEAR(f32, float)
AGON_LINEAR(bf16, agon::bf16)
}
