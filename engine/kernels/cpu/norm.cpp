// Root mean square norm (Zhang and Sennrich 2019) and layer norm (Ba et al. 2016) of rows, after adding what the last part
// of the network gave to the residual stream. Sums in float.

#include <cmath>

#include "threads.h"
#include "vec.h"

namespace agon {

constexpr int64_t kSmallWork = 1 << 15;  // elements: below it, starting the threads costs more than they save

template <typename T>
struct NormArgs {
  T* residual;     // [rows, size]: the stream; becomes residual + x where there is an x
  const T* x;      // [rows, size] or null
  const float* weight;
  const float* bias;  // layer norm's; null for the root mean square norm
  T* y;
  int64_t num_rows, size;
  float eps;
};

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
static void norm(const NormArgs<T>& a, int num_threads) {
  const int threads = a.num_rows * a.size < kSmallWork ? 1 : num_threads;
  parallel_for(a.num_rows, threads, [&](int64_t row) { norm_row(a, row); });
}

}  // namespace agon

extern "C" {

#define AGON_NORM(suffix, T)                                                                                        \
  void agon_norm_##suffix(T* residual, const T* x, const float* weight, const float* bias, T* y, int64_t num_rows,  \
                          int64_t size, float eps, int num_threads) {                                               \
    agon::norm<T>({residual, x, weight, bias, y, num_rows, size, eps}, num_threads);                                \
  }
AGON_NORM(f32, float)
AGON_NORM(bf16, agon::bf16)
}
