// RMS norm of groups of channels with a gate before or behind it, at the end of recurrent layers. A group is summed by
// one thread, in one order: its result does not depend on other rows or on the number of threads.

#include <cmath>
#include <vector>

#include "threads.h"
#include "vec.h"

namespace agon {

// Rows of type T; x and y are contiguous.
template <typename T>
struct GatedNormArgs {
  const T *x, *gate;  // [rows, groups, size]
  int64_t gate_stride;
  const float* weight;  // [groups, size]
  T* y;  // [rows, groups, size]
  int64_t num_rows, num_groups, size;
  float eps;
  bool is_gated_first;
};

// One group of one row. values [size, up to whole vectors]: space.
template <typename T>
static void norm_group(const GatedNormArgs<T>& a, int64_t row, int64_t group, Floats* values) {
  const int64_t first = group * a.size;
  const T* const x = a.x + row * a.num_groups * a.size + first;
  const T* const gate = a.gate + row * a.gate_stride + first;
  T* const y = a.y + row * a.num_groups * a.size + first;
  const int64_t num_whole = a.size / kLanes;
  const int rest = int(a.size % kLanes);
  Floats squares = splat(0.0f);
  for (int64_t v = 0; v < num_whole; v++) {
    values[v] = load(x + v * kLanes);
    if (a.is_gated_first) values[v] *= silu(load(gate + v * kLanes));
    squares += values[v] * values[v];
  }
  if (rest) {
    values[num_whole] = load_part(x + num_whole * kLanes, rest);
    if (a.is_gated_first) values[num_whole] *= silu(load_part(gate + num_whole * kLanes, rest));
    squares += values[num_whole] * values[num_whole];
  }
  const float scale = 1.0f / std::sqrt(sum(squares) / float(a.size) + a.eps);
  for (int64_t v = 0; v < num_whole; v++) {
    Floats result = values[v] * scale * load(a.weight + first + v * kLanes);
    if (!a.is_gated_first) result *= silu(load(gate + v * kLanes));
    store(y + v * kLanes, result);
  }
  if (rest) {
    Floats result = values[num_whole] * scale * load_part(a.weight + first + num_whole * kLanes, rest);
    if (!a.is_gated_first) result *= silu(load_part(gate + num_whole * kLanes, rest));
    store_part(y + num_whole * kLanes, result, rest);
  }
}

template <typename T>
static void gated_norm(const GatedNormArgs<T>& a, Team& team) {
  std::vector<Floats> values((a.size + kLanes - 1) / kLanes);
  team.each(a.num_rows, [&](int64_t row, int64_t) {
    for (int64_t group = 0; group < a.num_groups; group++) norm_group(a, row, group, values.data());
  });
}

}  // namespace agon

extern "C" {

// agon_gated_norm_{f32,bf16}: for Python (CppStateKernels in engine/kernels/cpu/state_kernels.py).
#define AGON_GATED_NORM(suffix, T)                                                                                    \
  void agon_gated_norm_##suffix(const T* x, const T* gate, int64_t gate_stride, const float* weight, T* y,            \
                                int64_t num_rows, int64_t num_groups, int64_t size, int64_t is_gated_first,           \
                                float eps, int num_threads) {                                                         \
    /* below some size, starting the threads costs more than they save */                                             \
    agon::with_team(num_rows * num_groups * size < (1 << 14) ? 1 : num_threads, [&](agon::Team& team) {               \
      agon::gated_norm<T>({x, gate, gate_stride, weight, y, num_rows, num_groups, size, eps, is_gated_first != 0},    \
                          team);                                                                                      \
    });                                                                                                               \
  }
AGON_GATED_NORM(f32, float)
AGON_GATED_NORM(bf16, agon::bf16)
}
