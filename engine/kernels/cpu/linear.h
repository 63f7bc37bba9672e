// y = x W^T + b with weights packed once at load: float, bfloat16, or int8 with a scale for each output.
#pragma once

#include <cstdint>

#include "activation.h"
#include "threads.h"
#include "vec.h"

namespace agon {

constexpr int kVectors = kLanes == 16 ? 3 : 4;  // vectors of outputs in a panel
constexpr int kPanel = kVectors * kLanes;       // 48 outputs with AVX-512, 32 with AVX2
constexpr int kStrip = kLanes == 16 ? 3 : 2;    // vectors that are adjacent for each group of inputs

// T: type of x, bias and y. Input and Weight: types of the factors; bytes if weights are int8.
template <typename T, typename Input = T, typename Weight = T>
struct LinearArgs {
  const Input* x;
  int64_t x_stride;
  const Weight* packed;
  const T* bias;  // may be null
  T* y;
  int64_t y_stride;
  int64_t num_rows, num_inputs, num_outputs;
  // int8 only
  const float *row_scales = nullptr, *output_scales = nullptr;
  const int32_t* output_sums = nullptr;  // sum of each output's weights, since inputs are stored with 128 added
};

// Activation of the outputs, computed by the thread that has just computed them.
template <typename T>
struct Activated {
  ActivationKind kind;
  T* y;          // [rows, size]
  int64_t size;  // num_outputs, or half of it if the activation is gated
};

constexpr int kFewRows = 2;  // with so few rows, reading weights takes longer than arithmetic

// floats: workspace [rows, inputs], used only if T is widened and there are more than kFewRows rows.
template <typename T>
void multiply(const LinearArgs<T>& a, float* floats, Team& team, const Activated<T>* activated = nullptr);
template <typename T>
void multiply_int8(const LinearArgs<T, uint8_t, int8_t>& a, Team& team, const Activated<T>* activated = nullptr);

// Quantises rows to bytes around 128: x = (byte - 128) * scale; the largest magnitude becomes 127.
template <typename T>
void quantize_rows(const T* x, int64_t x_stride, uint8_t* bytes, float* scales, int64_t num_rows, int64_t size,
                   Team& team);

// The memory that the team's thread reads first in a product: its panels.
struct Expected {
  const char* from;
  int64_t bytes;
};
Expected first_panels(const void* packed, int64_t num_inputs, int64_t num_outputs, int64_t weight_bytes, Team& team);

}  // namespace agon
