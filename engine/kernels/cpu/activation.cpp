// Activations between the two halves of a feed-forward part: gated, activation(gate) * up, and plain. Computed in float.

#include "threads.h"
#include "vec.h"

namespace agon {

constexpr int64_t kSmallWork = 1 << 14;  // elements: below it, starting the threads costs more than they save

struct Silu {
  static AGON_INLINE Floats of(Floats x) { return x / (1.0f + exp(-x)); }
};
// The tanh form of the Gaussian error linear unit (Hendrycks and Gimpel 2016).
struct GeluTanh {
  static AGON_INLINE Floats of(Floats x) {
    return 0.5f * x * (1.0f + tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
  }
};

// x [rows, 2 * size] (gate, up) -> y [rows, size]; without a gate x [rows, size].
template <typename T, typename Activation, bool kIsGated>
static void activate(const T* x, T* y, int64_t num_rows, int64_t size, int num_threads) {
  const int threads = num_rows * size < kSmallWork ? 1 : num_threads;
  parallel_for(num_rows, threads, [&](int64_t row) {
    const T* gate = x + row * size * (kIsGated ? 2 : 1);
    T* to = y + row * size;
    for (int64_t i = 0; i < size; i += kLanes) {
      const int count = int(size - i < kLanes ? size - i : kLanes);
      const bool is_whole = count == kLanes;
      Floats v = Activation::of(is_whole ? load(gate + i) : load_part(gate + i, count));
      if (kIsGated) v *= is_whole ? load(gate + size + i) : load_part(gate + size + i, count);
      if (is_whole) store(to + i, v);
      else store_part(to + i, v, count);
    }
  });
}

}  // namespace agon

extern "C" {

#define AGON_ACTIVATION(suffix, T)                                                                                \
  void agon_silu_mul_##suffix(const T* x, T* y, int64_t num_rows, int64_t size, int num_threads) {                \
    agon::activate<T, agon::Silu, true>(x, y, num_rows, size, num_threads);                                       \
  }                                                                                                               \
  void agon_gelu_tanh_mul_##suffix(const T* x, T* y, int64_t num_rows, int64_t size, int num_threads) {           \
    agon::activate<T, agon::GeluTanh, true>(x, y, num_rows, size, num_threads);                                   \
  }                                                                                                               \
  void agon_gelu_tanh_##suffix(const T* x, T* y, int64_t num_rows, int64_t size, int num_threads) {               \
    agon::activate<T, agon::GeluTanh, false>(x, y, num_rows, size, num_threads);                                  \
  }
AGON_ACTIVATION(f32, float)
AGON_ACTIVATION(bf16, agon::bf16)
}
