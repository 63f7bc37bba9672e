// Packed weights are panels of kPanel outputs, each [in / G, kPanel, G] so that one load brings G inputs of kLanes
// outputs: G = 1 for float, 2 for bfloat16 (one dot product instruction), 4 for int8. Panels are read front to back,
// each once from memory and then from the caches for all row tiles of the input.
//
// Every output is one chain of additions over the inputs in order, whatever the number of rows: a row's result does not
// depend on the rows beside it. int8 rows of x are quantised with a scale of their own, so this holds there too.

#include "linear.h"

#include <cmath>
#include <vector>

namespace agon {

constexpr int kTileRows = kLanes == 16 ? 8 : 4;  // 24 (or 12) accumulators: most of the 32 (16) registers
constexpr int64_t kRowBlock = 64;                // rows of one work item where there are few panels

// x and weights of the same type, sums in float.
template <typename T>
struct Plain {
  using Args = LinearArgs<T>;
  using Weight = T;
  using Output = T;
  using Sum = Floats;
  static constexpr int kGroup = 4 / sizeof(T);
  static AGON_INLINE Sum add(Sum sum, uint32_t x, const T* weights) {
    if constexpr (sizeof(T) == 4) return sum + as_floats(splat_word(x)) * load(weights);
    else return dot_pairs(sum, splat_word(x), load_as<Words>(weights));
  }
  static AGON_INLINE Floats finish(const Args&, Sum sum, int64_t, int64_t) { return sum; }
};

// int8 weights, rows of x quantised to bytes, sums in int32 (exact up to 130,000 inputs).
template <typename T>
struct Int8 {
  using Args = LinearArgs<T, uint8_t, int8_t>;
  using Weight = int8_t;
  using Output = T;
  using Sum = Ints;
  static constexpr int kGroup = 4;
  static AGON_INLINE Sum add(Sum sum, uint32_t x, const int8_t* weights) {
    return dot_quads(sum, splat_word(x), load_as<Words>(weights));
  }
  static AGON_INLINE Floats finish(const Args& a, Sum sum, int64_t row, int64_t output) {
    const Ints exact = sum - 128 * load_as<Ints>(a.output_sums + output);
    return __builtin_convertvector(exact, Floats) * a.row_scales[row] * load(a.output_scales + output);
  }
};

// kRows rows of x times one panel. `ahead` is memory that will be read soon: kLines cache lines for each step are
// fetched into the second level cache.
template <typename Kind, int kRows, int kLines>
static void tile(const typename Kind::Args& a, const typename Kind::Weight* panel, int64_t row, int64_t first_output,
                 const char* ahead) {
  typename Kind::Sum sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; r++)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; v++) sums[r][v] = typename Kind::Sum{};
  const auto* x = a.x + row * a.x_stride;
  const int64_t steps = a.num_inputs / Kind::kGroup;
#pragma GCC unroll 1
  for (int64_t k = 0; k < steps; k++) {
#pragma GCC unroll 3
    for (int line = 0; line < kLines; line++) __builtin_prefetch(ahead + (k * kLines + line) * 64, 0, 2);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++) {
      uint32_t inputs;
      std::memcpy(&inputs, x + r * a.x_stride + k * Kind::kGroup, 4);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; v++)
        sums[r][v] = Kind::add(sums[r][v], inputs, panel + (k * kPanel + v * kLanes) * Kind::kGroup);
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
      auto* y = a.y + (row + r) * a.y_stride + output;
      const Floats result = Kind::finish(a, sums[r][v], row + r, output) + bias;
      if (count >= kLanes) store(y, result);
      else store_part(y, result, int(count));
    }
  }
}

template <typename Kind>
using Tile = void (*)(const typename Kind::Args&, const typename Kind::Weight*, int64_t, int64_t, const char*);

template <typename Kind, int kLines>
static Tile<Kind> tile_of(int64_t num_rows) {
  static constexpr Tile<Kind> tiles[] = {tile<Kind, 1, kLines>, tile<Kind, 2, kLines>, tile<Kind, 3, kLines>,
                                         tile<Kind, 4, kLines>, tile<Kind, 5, kLines>, tile<Kind, 6, kLines>,
                                         tile<Kind, 7, kLines>, tile<Kind, 8, kLines>};
  return tiles[num_rows - 1];
}

// A panel has kVectors cache lines for each step; its tiles share the work of fetching the next one.
template <typename Kind>
static Tile<Kind> tile_of(int64_t num_rows, int64_t num_tiles) {
  return num_tiles == 1   ? tile_of<Kind, 3>(num_rows)
         : num_tiles == 2 ? tile_of<Kind, 2>(num_rows)
                          : tile_of<Kind, 1>(num_rows);
}

// Some rows times one panel. `ahead`: what the thread reads next, as much as a panel has.
template <typename Kind>
static void multiply_panel(const typename Kind::Args& a, int64_t p, Range rows, const char* ahead) {
  const int64_t panel_size = a.num_inputs * kPanel;
  const int64_t num_tiles = (rows.last - rows.first + kTileRows - 1) / kTileRows;
  const int64_t share = panel_size * int64_t(sizeof(typename Kind::Weight)) / std::min<int64_t>(num_tiles, 3);
  for (int64_t t = 0; t < num_tiles; t++) {
    const Range r = part_of(rows.last - rows.first, t, num_tiles);
    tile_of<Kind>(r.last - r.first, num_tiles)(a, a.packed + p * panel_size, rows.first + r.first, p * kPanel,
                                               ahead + std::min<int64_t>(t, 2) * share);
  }
}

// Work items in order: panels, and where there are few of them parts of the rows of each, at the price of reading a panel
// several times.
struct Items {
  int64_t num_panels, row_blocks;
  Items(int64_t panels, int64_t num_rows, int num_threads) : num_panels(panels), row_blocks(1) {
    while (num_panels * row_blocks < 2 * num_threads && num_rows / (row_blocks + 1) >= kRowBlock) row_blocks++;
  }
};

static int64_t panels_for(int64_t num_outputs) { return (num_outputs + kPanel - 1) / kPanel; }

template <typename Kind>
static void multiply_share(const typename Kind::Args& a, Team& team, const Activated<typename Kind::Output>* activated) {
  using T = typename Kind::Output;
  const int64_t panel_size = a.num_inputs * kPanel, panel_bytes = panel_size * int64_t(sizeof(*a.packed));
  const bool has_pairs = activated != nullptr && is_gated(activated->kind);
  // The panel of some gates and that of their ups are one item, so that the thread has both for the activation.
  const int64_t num_panels = panels_for(has_pairs ? activated->size : a.num_outputs), up = has_pairs ? num_panels : 0;
  const Items items(num_panels, a.num_rows, team.num_threads);
  team.each(num_panels * items.row_blocks, [&](int64_t item, int64_t next_item) {
    const int64_t p = item / items.row_blocks;
    const Range rows = part_of(a.num_rows, item % items.row_blocks, items.row_blocks);
    const auto* panel = a.packed + p * panel_size;
    const char* next = next_item < 0
                           ? team.ahead(panel_bytes, panel)
                           : reinterpret_cast<const char*>(a.packed + next_item / items.row_blocks * panel_size);
    multiply_panel<Kind>(a, p, rows, has_pairs ? reinterpret_cast<const char*>(panel + up * panel_size) : next);
    if (has_pairs) multiply_panel<Kind>(a, p + up, rows, next);
    if (activated == nullptr) return;
    const int64_t first = p * kPanel, count = std::min<int64_t>(kPanel, activated->size - first);
    for (int64_t row = rows.first; row < rows.last; row++) {
      const T* x = a.y + row * a.y_stride + first;
      activate(activated->kind, x, x + activated->size, activated->y + row * activated->size + first, count);
    }
  });
}

template <typename T>
void multiply(const LinearArgs<T>& a, Team& team, const Activated<T>* activated) {
  multiply_share<Plain<T>>(a, team, activated);
}

template <typename T>
void multiply_int8(const LinearArgs<T, uint8_t, int8_t>& a, Team& team, const Activated<T>* activated) {
  multiply_share<Int8<T>>(a, team, activated);
}

Expected first_panels(const void* packed, int64_t num_inputs, int64_t num_outputs, int64_t weight_bytes, Team& team) {
  const int64_t panel_bytes = num_inputs * kPanel * weight_bytes;
  const Range mine = team.share(panels_for(num_outputs));
  return {static_cast<const char*>(packed) + mine.first * panel_bytes, (mine.last - mine.first) * panel_bytes};
}

// weight [out, in] -> panels; outputs beyond the last are zero.
template <int G, typename T>
static void pack(const T* weight, T* packed, int64_t num_outputs, int64_t num_inputs, int num_threads) {
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

// Rows of the weight, by output: token embeddings out of the head's own panels.
template <typename T>
static void unpack_rows(const int64_t* outputs, const T* packed, T* rows, int64_t num_rows, int64_t num_inputs,
                        int num_threads) {
  constexpr int G = Plain<T>::kGroup;
  parallel_for(num_rows, num_rows < 32 ? 1 : num_threads, [&](int64_t row) {
    const T* from = packed + outputs[row] / kPanel * kPanel * num_inputs + outputs[row] % kPanel * G;
    for (int64_t k = 0; k < num_inputs; k += G) std::memcpy(rows + row * num_inputs + k, from + k * kPanel, G * sizeof(T));
  });
}

// A row to bytes around 128: x = (byte - 128) * scale, the largest magnitude at 127.
template <typename T>
static float quantize_row(const T* x, uint8_t* bytes, int64_t size) {
  float largest_magnitude = 0.0f;
  for (int64_t i = 0; i < size; i++) largest_magnitude = std::max(largest_magnitude, std::fabs(to_float(x[i])));
  const float scale = largest_magnitude / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  for (int64_t i = 0; i < size; i++) bytes[i] = uint8_t(int(std::nearbyint(to_float(x[i]) * inverse)) + 128);
  return scale;
}

template <typename T>
void quantize_rows(const T* x, int64_t x_stride, uint8_t* bytes, float* scales, int64_t num_rows, int64_t size,
                   Team& team) {
  team.each(num_rows, [&](int64_t row, int64_t) {
    scales[row] = quantize_row(x + row * x_stride, bytes + row * size, size);
  });
}

#define AGON_INSTANTIATE(T)                                                                                     \
  template void multiply(const LinearArgs<T>&, Team&, const Activated<T>*);                                     \
  template void multiply_int8(const LinearArgs<T, uint8_t, int8_t>&, Team&, const Activated<T>*);               \
  template void quantize_rows(const T*, int64_t, uint8_t*, float*, int64_t, int64_t, Team&);
AGON_INSTANTIATE(float)
AGON_INSTANTIATE(bf16)

}  // namespace agon

extern "C" {

int64_t agon_panel_outputs() { return agon::kPanel; }

void agon_pack_linear_int8(const int8_t* weight, int8_t* packed, int64_t num_outputs, int64_t num_inputs,
                           int num_threads) {
  agon::pack<4>(weight, packed, num_outputs, num_inputs, num_threads);
}

#define AGON_LINEAR(suffix, T)                                                                                        \
  void agon_pack_linear_##suffix(const T* weight, T* packed, int64_t num_outputs, int64_t num_inputs,                 \
                                 int num_threads) {                                                                   \
    agon::pack<agon::Plain<T>::kGroup>(weight, packed, num_outputs, num_inputs, num_threads);                         \
  }                                                                                                                   \
  void agon_linear_##suffix(const T* x, int64_t x_stride, const T* packed, const T* bias, T* y, int64_t y_stride,     \
                            int64_t num_rows, int64_t num_inputs, int64_t num_outputs, int num_threads) {             \
    agon::with_team(num_threads, [&](agon::Team& team) {                                                              \
      agon::multiply<T>({x, x_stride, packed, bias, y, y_stride, num_rows, num_inputs, num_outputs}, team);           \
    });                                                                                                               \
  }                                                                                                                   \
  void agon_unpack_rows_##suffix(const int64_t* outputs, const T* packed, T* rows, int64_t num_rows,                  \
                                 int64_t num_inputs, int num_threads) {                                               \
    agon::unpack_rows<T>(outputs, packed, rows, num_rows, num_inputs, num_threads);                                   \
  }                                                                                                                   \
  /* output_scales and output_sums have room for whole panels. */                                                     \
  void agon_linear_int8_##suffix(const T* x, int64_t x_stride, const int8_t* packed, const float* output_scales,      \
                                 const int32_t* output_sums, const T* bias, T* y, int64_t y_stride, int64_t num_rows, \
                                 int64_t num_inputs, int64_t num_outputs, int num_threads) {                          \
    std::vector<uint8_t> bytes(num_rows * num_inputs);                                                                \
    std::vector<float> scales(num_rows);                                                                              \
    agon::with_team(num_threads, [&](agon::Team& team) {                                                              \
      agon::quantize_rows<T>(x, x_stride, bytes.data(), scales.data(), num_rows, num_inputs, team);                   \
      agon::multiply_int8<T>({bytes.data(), num_inputs, packed, bias, y, y_stride, num_rows, num_inputs, num_outputs, \
                              scales.data(), output_scales, output_sums},                                             \
                             team);                                                                                   \
    });                                                                                                               \
  }
AGON_LINEAR(f32, float)
AGON_LINEAR(bf16, agon::bf16)
}
