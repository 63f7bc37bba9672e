// Activation functions, one vector at a time: float in, float out, T (float or bf16) in memory.

#include "activation.h"

#include "vec.h"

namespace agon {

// Each struct is one activation function; of() computes kLanes values.
struct Silu {
  static AGON_INLINE Floats of(Floats x) { return silu(x); }
};
// Gaussian error linear unit (Hendrycks and Gimpel 2016), tanh approximation.
struct GeluTanh {
  static AGON_INLINE Floats of(Floats x) {
    return 0.5f * x * (1.0f + tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
  }
};
// The same with the exact error function.
struct Gelu {
  static AGON_INLINE Floats of(Floats x) { return 0.5f * x * (1.0f + erf(x * 0.7071067812f)); }
};
// relu(x) = max(x, 0).
struct Relu {
  static AGON_INLINE Floats of(Floats x) { return max(x, splat(0.0f)); }
};

// y = Activation(x), times up if kIsGated. The last vector may be a part of one.
template <typename Activation, bool kIsGated, typename T>
static void apply(const T* x, const T* up, T* y, int64_t size) {
  for (int64_t i = 0; i < size; i += kLanes) {
    const int count = int(size - i < kLanes ? size - i : kLanes);
    const bool is_whole = count == kLanes;
    Floats v = Activation::of(is_whole ? load(x + i) : load_part(x + i, count));
    if (kIsGated) v *= is_whole ? load(up + i) : load_part(up + i, count);
    if (is_whole) store(y + i, v);
    else store_part(y + i, v, count);
  }
}

template <typename T>
void activate(ActivationKind kind, const T* x, const T* up, T* y, int64_t count) {
  switch (kind) {
    case kSiluMul: return apply<Silu, true>(x, up, y, count);
    case kGeluTanhMul: return apply<GeluTanh, true>(x, up, y, count);
    case kGeluTanh: return apply<GeluTanh, false>(x, up, y, count);
    case kGelu: return apply<Gelu, false>(x, up, y, count);
    case kRelu: return apply<Relu, false>(x, up, y, count);
  }
}

template void activate(ActivationKind, const float*, const float*, float*, int64_t);
template void activate(ActivationKind, const bf16*, const bf16*, bf16*, int64_t);

}  // namespace agon

extern "C" {

// agon_activation_{f32,bf16}: activate_rows for Python (CppActivation in engine/kernels/cpu/functions.py).
// kind: ActivationKind; size: elements of a row of y.
#define AGON_ACTIVATION(suffix, T)                                                                                    \
  void agon_activation_##suffix(int64_t kind, const T* x, T* y, int64_t num_rows, int64_t size, int num_threads) {    \
    /* below some size, starting the threads costs more than they save */                                             \
    agon::with_team(num_rows * size < (1 << 14) ? 1 : num_threads, [&](agon::Team& team) {                            \
      agon::activate_rows(agon::ActivationKind(kind), x, y, num_rows, size, team);                                    \
    });                                                                                                               \
  }
AGON_ACTIVATION(f32, float)
AGON_ACTIVATION(bf16, agon::bf16)
}
