// RMS norm and layer norm. A row is summed by one thread, in one order: its result does not depend on the other rows or
// on the number of threads.

#include "norm.h"

#include <cmath>

#include "vec.h"

namespace agon {

template <typename T>
static void norm_row(const NormArgs<T>& a, int64_t row) {
  T* stream = a.residual + row * a.size;
  T* y = a.y + row * a.size;
  const int64_t whole = a.size / kLanes * kLanes;
  const int rest = int(a.size - whole);
  if (a.x != nullptr) {
    const T* x = a.x + row * a.size;
    for (int64_t i = 0; i < whole; i += kLanes) store(stream + i, load(stream + i) + load(x + i));
    if (rest) store_part(stream + whole, load_part(stream + whole, rest) + load_part(x + whole, rest), rest);
  }
  float mean = 0.0f;
  if (a.bias != nullptr) {
    Floats sums = splat(0.0f);
    for (int64_t i = 0; i < whole; i += kLanes) sums += load(stream + i);
    if (rest) sums += load_part(stream + whole, rest);
    mean = sum(sums) / float(a.size);
  }
  Floats squares = splat(0.0f);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Floats v = load(stream + i) - mean;
    squares += v * v;
  }
  float total = sum(squares);
  for (int64_t i = whole; i < a.size; i++) total += (to_float(stream[i]) - mean) * (to_float(stream[i]) - mean);
  const float scale = 1.0f / std::sqrt(total / float(a.size) + a.eps);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Floats v = (load(stream + i) - mean) * scale * load(a.weight + i);
    store(y + i, a.bias == nullptr ? v : v + load(a.bias + i));
  }
  for (int64_t i = whole; i < a.size; i++) {
    const float v = (to_float(stream[i]) - mean) * scale * a.weight[i];
    store_one(y + i, a.bias == nullptr ? v : v + a.bias[i]);
  }
}

template <typename T>
void norm(const NormArgs<T>& a, Team& team) {
  team.each(a.num_rows, [&](int64_t row, int64_t) { norm_row(a, row); });
}

template void norm(const NormArgs<float>&, Team&);
template void norm(const NormArgs<bf16>&, Team&);

}  // namespace agon

extern "C" {

// agon_norm_{f32,bf16}: norm() for Python (CppNorm in engine/kernels/cpu/functions.py).
#define AGON_NORM(suffix, T)                                                                                        \
  void agon_norm_##suffix(T* residual, const T* x, const float* weight, const float* bias, T* y, int64_t num_rows,  \
                          int64_t size, float eps, int num_threads) {                                               \
    /* below some size, starting the threads costs more than they save */                                           \
    agon::with_team(num_rows * size < (1 << 15) ? 1 : num_threads, [&](agon::Team& team) {                          \
      agon::norm<T>({residual, x, weight, bias, y, num_rows, size, eps}, team);                                     \
    });                                                                                                             \
  }
AGON_NORM(f32, float)
AGON_NORM(bf16, agon::bf16)
}
