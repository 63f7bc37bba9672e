// Products with packed weights. Packed weights are panels of kPanel outputs. A panel consists of strips of kStrip
// vectors, each [in / G, vectors, kLanes, G], so that one load brings G inputs of kLanes outputs: G = 1 for float, 2
// for bfloat16 (one dot product instruction), 4 for int8. Panels are read front to back, once from memory and then from
// the caches for all row tiles of the input.
//
// Every output is one chain of additions over the inputs in order, for any number of rows: a row's result does not
// depend on the other rows. With int8 weights each row of x is quantised with its own scale, so this holds there too.

#include "linear.h"

#include <cmath>
#include <vector>

#include "panels.h"
#include "plain.h"

namespace agon {

// The kinds of products beside Plain (plain.h): Widened and Int8. weights[v]: the group's weights of vector v.

// bfloat16 weights and rows of x converted to float beforehand: for processors without bfloat16 dot products. The
// products are those of Plain<bf16>, in the same order.
struct Widened {
  using Args = LinearArgs<bf16, float>;
  using Weight = bf16;
  using Sum = Floats;
  using Total = Sum;
  static constexpr int kGroup = 2;
  static constexpr int kInputs = kGroup;
  static constexpr bool kHasBlocks = false;
  static constexpr int kTileRows = kLanes == 16 ? 8 : 5;
  static int64_t depth(const Args& a) { return a.num_inputs; }
  template <int kRows, int kWidth>
  static AGON_INLINE void step(Sum (&sums)[kRows][kWidth], const Args&, const float* x, int64_t x_stride,
                               const bf16* const* weights) {
    add_pairs(sums, x, x_stride, weights);
  }
  static AGON_INLINE Floats finish(const Args&, Sum sum, int64_t, int64_t) { return sum; }
};

struct Int8Args {
  const uint8_t* x;
  int64_t x_stride;
  const int8_t* packed;
  int64_t num_rows, num_inputs, num_outputs;
  const float *row_scales, *output_scales;  // as in LinearArgs
  const int32_t* output_sums;
};

// int8 weights, rows of x quantised to bytes; sums in int32, exact up to 130,000 inputs.
struct Int8 {
  using Args = Int8Args;
  using Weight = int8_t;
  using Sum = Ints;
  using Total = Sum;
  static constexpr int kGroup = 4;
  static constexpr int kInputs = kGroup;
  static constexpr bool kHasBlocks = false;
  static constexpr int kTileRows = kLanes == 16 ? 8 : 5;
  static int64_t depth(const Args& a) { return a.num_inputs; }
  template <int kRows, int kWidth>
  static AGON_INLINE void step(Sum (&sums)[kRows][kWidth], const Args&, const uint8_t* x, int64_t x_stride,
                               const int8_t* const* weights) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++) {
      const Words input = splat_word_at(x + r * x_stride);
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; v++) sums[r][v] = dot_quads(sums[r][v], input, load_as<Words>(weights[v]));
    }
  }
  static AGON_INLINE Floats finish(const Args& a, Sum sum, int64_t row, int64_t output) {
    const Ints exact = sum - 128 * load_as<Ints>(a.output_sums + output);
    return __builtin_convertvector(exact, Floats) * a.row_scales[row] * load(a.output_scales + output);
  }
};

template <typename T, typename Input, typename Weight>
static Target<T> target_of(const LinearArgs<T, Input, Weight>& a) { return {a.bias, a.y, a.y_stride}; }

// What a kind of products reads of its arguments.
template <typename T, typename Input, typename Weight>
static const LinearArgs<T, Input, Weight>& args_of(const LinearArgs<T, Input, Weight>& a) { return a; }
template <typename T>
static Int8Args args_of(const LinearArgs<T, uint8_t, int8_t>& a) {
  return {a.x,           a.x_stride,   a.packed,        a.num_rows,   a.num_inputs,
          a.num_outputs, a.row_scales, a.output_scales, a.output_sums};
}

template <typename T>
void widen_row(const T* x, float* floats, int64_t size) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) store(floats + i, load(x + i));
  for (; i < size; i++) floats[i] = to_float(x[i]);
}

// Rows of a.x as floats [rows, inputs].
static void widen_rows(const LinearArgs<bf16>& a, float* floats, Team& team) {
  team.each(a.num_rows, [&](int64_t row, int64_t) {
    widen_row(a.x + row * a.x_stride, floats + row * a.num_inputs, a.num_inputs);
  });
}

template <typename T>
void multiply(const LinearArgs<T>& a, float* floats, Team& team, const Activated<T>* activated) {
  if constexpr (kWidens<T>) {
    if (a.num_rows > kFewRows) {
      widen_rows(a, floats, team);
      const LinearArgs<T, float> widened{floats,     a.num_inputs, a.packed,     a.bias,       a.y,
                                         a.y_stride, a.num_rows,   a.num_inputs, a.num_outputs};
      return multiply_share<Widened>(widened, target_of(widened), team, activated);
    }
  }
  multiply_share<Plain<T>>(a, target_of(a), team, activated);
}

template <typename T>
void multiply_int8(const LinearArgs<T, uint8_t, int8_t>& a, Team& team, const Activated<T>* activated) {
  multiply_share<Int8>(args_of(a), target_of(a), team, activated);
}

template <typename T, typename Input, typename Weight>
void multiply_each(const std::vector<LinearArgs<T, Input, Weight>>& products, Team& team,
                   const Activated<T>* activated) {
  const auto* all = products.data();
  const auto count = int64_t(products.size());
  if constexpr (sizeof(Weight) == 1) multiply_shares<Int8>(all, count, team, activated);
  else if constexpr (sizeof(Input) == sizeof(T)) multiply_shares<Plain<T>>(all, count, team, activated);
  else multiply_shares<Widened>(all, count, team, activated);
}

Expected first_panels(const void* packed, int64_t output_bytes, int64_t num_outputs, Team& team) {
  const int64_t panel_bytes = output_bytes * kPanel;
  const Range mine = team.share(panels_for(num_outputs));
  return {static_cast<const char*>(packed) + mine.first * panel_bytes, (mine.last - mine.first) * panel_bytes};
}

// weight [out, in] -> panels; zeros fill the last panel.
template <int G, typename T>
static void pack(const T* weight, T* packed, int64_t num_outputs, int64_t num_inputs, int num_threads) {
  parallel_for(panels_for(num_outputs), num_threads, [&](int64_t p) {
    for (int64_t k = 0; k < num_inputs; k += G)
      for (int64_t output = p * kPanel; output < (p + 1) * kPanel; output++) {
        T* to = packed + output_at(output, num_inputs, G) + k * kStrip * kLanes;
        for (int64_t g = 0; g < G; g++) to[g] = output < num_outputs ? weight[output * num_inputs + k + g] : T(0);
      }
  });
}

// Rows of the weight, by output: token embeddings from the packed weights of a tied output head. outputs [rows] ->
// rows [rows, inputs].
template <typename T>
static void unpack_rows(const int64_t* outputs, const T* packed, T* rows, int64_t num_rows, int64_t num_inputs,
                        int num_threads) {
  constexpr int G = Plain<T>::kGroup;
  parallel_for(num_rows, num_rows < 32 ? 1 : num_threads, [&](int64_t row) {
    const T* from = packed + output_at(outputs[row], num_inputs, G);
    for (int64_t k = 0; k < num_inputs; k += G)
      std::memcpy(rows + row * num_inputs + k, from + k * kStrip * kLanes, G * sizeof(T));
  });
}

template <typename T>
float quantize_row(const T* x, uint8_t* bytes, int64_t size) {
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
  template void multiply(const LinearArgs<T>&, float*, Team&, const Activated<T>*);                             \
  template void multiply_int8(const LinearArgs<T, uint8_t, int8_t>&, Team&, const Activated<T>*);               \
  template void quantize_rows(const T*, int64_t, uint8_t*, float*, int64_t, int64_t, Team&);                    \
  template float quantize_row(const T*, uint8_t*, int64_t);                                                     \
  template void widen_row(const T*, float*, int64_t);                                                           \
  template void multiply_each(const std::vector<LinearArgs<T>>&, Team&, const Activated<T>*);                   \
  template void multiply_each(const std::vector<LinearArgs<T, uint8_t, int8_t>>&, Team&, const Activated<T>*);
AGON_INSTANTIATE(float)
AGON_INSTANTIATE(bf16)
template void multiply_each(const std::vector<LinearArgs<bf16, float, bf16>>&, Team&, const Activated<bf16>*);

}  // namespace agon

extern "C" {

// Outputs in a panel: what Python must know of the layout (engine/kernels/cpu/library.py).
int64_t agon_panel_outputs() { return agon::kPanel; }

// agon_pack_linear_{int8,f32,bf16}: weight [out, in] -> packed, which has room for whole panels. Called once for every
// matrix when a model is loaded (CppOperators in engine/kernels/cpu/operators.py).
void agon_pack_linear_int8(const int8_t* weight, int8_t* packed, int64_t num_outputs, int64_t num_inputs,
                           int num_threads) {
  agon::pack<4>(weight, packed, num_outputs, num_inputs, num_threads);
}

// For float and bfloat16 rows, called by CppLinear (engine/kernels/cpu/functions.py) and CppOperators.tied_embedding:
//   agon_linear_*       x [rows, in] times packed weights of the same type -> y [rows, out]; bias [out] or null
//   agon_linear_int8_*  the same with int8 weights; quantises rows of x first
//   agon_unpack_rows_*  outputs [rows] -> rows [rows, in] of the packed weight
#define AGON_LINEAR(suffix, T)                                                                                        \
  void agon_pack_linear_##suffix(const T* weight, T* packed, int64_t num_outputs, int64_t num_inputs,                 \
                                 int num_threads) {                                                                   \
    agon::pack<agon::Plain<T>::kGroup>(weight, packed, num_outputs, num_inputs, num_threads);                         \
  }                                                                                                                   \
  void agon_linear_##suffix(const T* x, int64_t x_stride, const T* packed, const T* bias, T* y, int64_t y_stride,     \
                            int64_t num_rows, int64_t num_inputs, int64_t num_outputs, int num_threads) {             \
    std::vector<float> floats(agon::kWidens<T> && num_rows > agon::kFewRows ? num_rows * num_inputs : 0);             \
    agon::with_team(num_threads, [&](agon::Team& team) {                                                              \
      agon::multiply<T>({x, x_stride, packed, bias, y, y_stride, num_rows, num_inputs, num_outputs}, floats.data(),   \
                        team);                                                                                        \
    });                                                                                                               \
  }                                                                                                                   \
  void agon_unpack_rows_##suffix(const int64_t* outputs, const T* packed, T* rows, int64_t num_rows,                  \
                                 int64_t num_inputs, int num_threads) {                                               \
    agon::unpack_rows<T>(outputs, packed, rows, num_rows, num_inputs, num_threads);                                   \
  }                                                                                                                   \
  /* output_scales and output_sums are those of whole panels */                                                       \
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
