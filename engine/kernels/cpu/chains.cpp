// Operators that always follow one another, in one call: in a small model a call from Python costs as much as the work.
// Nothing is computed here; the results are those of the single operators to the last bit.

#include <cstdint>
#include <vector>

#include "vec.h"

#define AGON_DECLARE(suffix, T)                                                                                     \
  void agon_norm_##suffix(T* residual, const T* x, const float* weight, const float* bias, T* y, int64_t num_rows,  \
                          int64_t size, float eps, int num_threads);                                                \
  void agon_linear_##suffix(const T* x, int64_t x_stride, const T* packed, const T* bias, T* y, int64_t y_stride,   \
                            int64_t num_rows, int64_t num_inputs, int64_t num_outputs, int num_threads);            \
  void agon_silu_mul_##suffix(const T* x, T* y, int64_t num_rows, int64_t size, int num_threads);                   \
  void agon_gelu_tanh_mul_##suffix(const T* x, T* y, int64_t num_rows, int64_t size, int num_threads);

extern "C" {
AGON_DECLARE(f32, float)
AGON_DECLARE(bf16, agon::bf16)
}

namespace agon {

// Room for what stands between two operators; kept, because a step needs it once for every layer.
template <typename T>
static T* room(int which, int64_t size) {
  thread_local std::vector<T> buffers[3];
  if (int64_t(buffers[which].size()) < size) buffers[which].resize(size);
  return buffers[which].data();
}

}  // namespace agon

extern "C" {

#define AGON_CHAINS(suffix, T)                                                                                        \
  /* linear(norm(stream + update)) */                                                                                 \
  void agon_norm_linear_##suffix(T* stream, const T* update, const float* norm_weight, const float* norm_bias,        \
                                 float eps, const T* packed, const T* bias, T* y, int64_t num_rows, int64_t size,     \
                                 int64_t num_outputs, int num_threads) {                                              \
    T* normed = agon::room<T>(0, num_rows * size);                                                                    \
    agon_norm_##suffix(stream, update, norm_weight, norm_bias, normed, num_rows, size, eps, num_threads);             \
    agon_linear_##suffix(normed, size, packed, bias, y, num_outputs, num_rows, size, num_outputs, num_threads);       \
  }                                                                                                                   \
  /* down(activation(gate) * up) of norm(stream + update) */                                                          \
  void agon_gated_mlp_##suffix(T* stream, const T* update, const float* norm_weight, const float* norm_bias,          \
                               float eps, const T* gate_up, const T* gate_up_bias, const T* down, const T* down_bias, \
                               T* y, int64_t num_rows, int64_t size, int64_t ffn_size, int64_t is_silu,               \
                               int num_threads) {                                                                     \
    T* both = agon::room<T>(1, num_rows * 2 * ffn_size);                                                              \
    agon_norm_linear_##suffix(stream, update, norm_weight, norm_bias, eps, gate_up, gate_up_bias, both, num_rows,     \
                              size, 2 * ffn_size, num_threads);                                                       \
    T* active = agon::room<T>(2, num_rows * ffn_size);                                                                \
    (is_silu ? agon_silu_mul_##suffix : agon_gelu_tanh_mul_##suffix)(both, active, num_rows, ffn_size, num_threads);  \
    agon_linear_##suffix(active, ffn_size, down, down_bias, y, size, num_rows, ffn_size, size, num_threads);          \
  }
AGON_CHAINS(f32, float)
AGON_CHAINS(bf16, agon::bf16)
}
