// Products with packed weights. Packed weights are panels of kPanel outputs. A panel consists of strips of kStrip
// vectors, each [in / G, vectors, kLanes, G], so that one load brings G inputs of kLanes outputs: G = 1 for float, 2
// for bfloat16 (one dot product instruction). Panels are read front to back, once from memory and then from the caches
// for all row tiles of the input.
//
// Every output is one chain of additions over the inputs in order, for any number of rows: a row's result does not
// depend on the other rows.

#include "linear.h"

#include <vector>

#include "panels.h"
#include "plain.h"

namespace agon {

// A kind of products beside Plain (plain.h): bfloat16 weights and rows of x converted to float beforehand, for processors
// without bfloat16 dot products. weights[v]: the group's weights of vector v. The products are those of Plain<bf16>, in the same order.
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

template <typename T, typename Input>
static Target<T> target_of(const LinearArgs<T, Input>& a) { return {a.bias, a.y, a.y_stride}; }

// What a kind of products reads of its arguments.
template <typename T, typename Input>
static const LinearArgs<T, Input>& args_of(const LinearArgs<T, Input>& a) { return a; }

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

template <typename T, typename Input>
void multiply_each(const std::vector<LinearArgs<T, Input>>& products, Team& team, const Activated<T>* activated) {
  using Product = std::conditional_t<sizeof(Input) == sizeof(T), Plain<T>, Widened>;
  multiply_shares<Product>(products.data(), int64_t(products.size()), team, activated);
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

#define AGON_INSTANTIATE(T)                                                         \
  template void multiply(const LinearArgs<T>&, float*, Team&, const Activated<T>*); \
  template void widen_row(const T*, float*, int64_t);                               \
  template void multiply_each(const std::vector<LinearArgs<T>>&, Team&, const Activated<T>*);
AGON_INSTANTIATE(float)
AGON_INSTANTIATE(bf16)
template void multiply_each(const std::vector<LinearArgs<bf16, float>>&, Team&, const Activated<bf16>*);

}  // namespace agon

extern "C" {

// Outputs in a panel: what Python must know of the layout (engine/kernels/cpu/library.py).
int64_t agon_panel_outputs() { return agon::kPanel; }

// For float and bfloat16 rows, called by CppLinear (engine/kernels/cpu/functions.py) and CppOperators.tied_embedding:
//   agon_pack_linear_*  weight [out, in] -> packed, which has room for whole panels: when a model is loaded
//   agon_linear_*       x [rows, in] times packed weights of the same type -> y [rows, out]; bias [out] or null
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
  }
AGON_LINEAR(f32, float)
AGON_LINEAR(bf16, agon::bf16)
}
