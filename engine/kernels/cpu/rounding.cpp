// Weights rounded to codes of few bits in groups, each with the scale and the minimum of the least error: the search of
// engine/kernels/quantised.py, which says how, for weights of a model that is loaded.

#include <algorithm>
#include <cmath>
#include <vector>

#include "threads.h"
#include "vec.h"

namespace agon {

// Steps of a group's range that are tried: as many as codes have, less one, and up to one fewer or more.
constexpr int kCandidates = 21;

// Codes of kLanes weights, as floats.
static AGON_INLINE Floats codes_of(Floats w, float low, float inverse, float largest) {
  const Floats steps = __builtin_convertvector(
      __builtin_convertvector((w - splat(low)) * splat(inverse) + splat(0.5f), Ints), Floats);
  return steps > splat(largest) ? splat(largest) : steps;
}

// One group: size weights, padded with weightless ones to whole vectors.
static void round_group(const float* w, const float* weights, int64_t size, float largest, uint8_t* codes, float* scale,
                        float* zero) {
  float low = w[0], high = w[0];
  for (int64_t i = 1; i < size; i++) low = std::min(low, w[i]), high = std::max(high, w[i]);
  const float range = high - low;
  float best_inverse = 0.0f;
  double best_step = std::max(std::fabs(low), 1e-30f), best_low = low, most = -1e300;
  Floats total{}, first{};
  for (int64_t i = 0; i < size; i += kLanes) {
    const Floats t = load(weights + i);
    total += t;
    first += t * load(w + i);
  }
  const double sum_t = sum(total), sum_w = sum(first);
  for (int c = 0; range > 1e-30f && c < kCandidates; c++) {
    const float inverse = (largest - 1.0f + 0.1f * c) / range;
    Floats q1{}, q2{}, qw{};
    for (int64_t i = 0; i < size; i += kLanes) {
      const Floats x = load(w + i), q = codes_of(x, low, inverse, largest), tq = load(weights + i) * q;
      q1 += tq;
      q2 += tq * q;
      qw += tq * x;
    }
    const double sum_q = sum(q1), sum_qq = sum(q2), sum_qw = sum(qw), spread = sum_t * sum_qq - sum_q * sum_q;
    if (!(spread > 0.0)) continue;
    const double step = (sum_t * sum_qw - sum_w * sum_q) / spread, bottom = (sum_qq * sum_w - sum_q * sum_qw) / spread;
    const double gained = step * sum_qw + bottom * sum_w;  // the error is that of zeros, less this
    if (step > 0.0 && gained > most) most = gained, best_inverse = inverse, best_step = step, best_low = bottom;
  }
  *scale = float(best_step);
  *zero = float(-best_low / best_step);
  for (int64_t i = 0; i < size; i += kLanes) {
    float found[kLanes];
    store(found, codes_of(load(w + i), low, best_inverse, largest));
    for (int64_t j = 0; j < kLanes && i + j < size; j++) codes[i + j] = uint8_t(found[j]);
  }
}

}  // namespace agon

extern "C" {

// weight [out, in] -> codes [out, in], scales and zeros [out, in / group]. importance [in], or null: all the same.
// Called by CppOperators (engine/kernels/cpu/operators.py) when a model is loaded.
void agon_round_groups(const float* weight, const float* importance, uint8_t* codes, float* scales, float* zeros,
                       int64_t num_outputs, int64_t num_inputs, int64_t group, int64_t bits, int num_threads) {
  using namespace agon;
  const int64_t groups = num_inputs / group, padded = (group + kLanes - 1) / kLanes * kLanes;
  parallel_for(num_outputs, num_threads, [&](int64_t output) {
    std::vector<float> own(padded), weights(padded);
    for (int64_t g = 0; g < groups; g++) {
      const int64_t at = output * num_inputs + g * group;
      double squares = 0.0;
      for (int64_t i = 0; i < group; i++) squares += double(weight[at + i]) * weight[at + i];
      const float mean = float(squares / double(group));
      for (int64_t i = 0; i < group; i++) {
        own[i] = weight[at + i];
        weights[i] = (importance == nullptr ? 1.0f : importance[g * group + i]) * std::sqrt(mean + own[i] * own[i]);
      }
      round_group(own.data(), weights.data(), group, float((1 << bits) - 1), codes + at, scales + output * groups + g,
                  zeros + output * groups + g);
    }
  });
}
}
