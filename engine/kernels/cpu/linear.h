// y = x W^T + b, with weights packed once when a model is loaded: float, bfloat16, or int8 with one scale per output.
// Callers: steps.cpp and agon_linear_* (linear.cpp), which also has the layout of packed weights.
#pragma once

#include <cstdint>
#include <vector>

#include "activation.h"
#include "threads.h"
#include "vec.h"

namespace agon {

constexpr int kVectors = kLanes == 16 ? 3 : 4;  // vectors of outputs in a panel
constexpr int kPanel = kVectors * kLanes;       // 48 outputs with AVX-512, 32 with AVX2
constexpr int kStrip = kLanes == 16 ? 3 : 2;    // vectors that are adjacent in memory for each group of inputs

// Arguments of a product. T: type of bias and y. Input and Weight: types that are multiplied; T and T, or float for
// widened rows, or bytes if weights are int8. Strides count elements between rows.
template <typename T, typename Input = T, typename Weight = T>
struct LinearArgs {
  const Input* x;
  int64_t x_stride;
  const Weight* packed;  // whole panels
  const T* bias;  // may be null
  T* y;
  int64_t y_stride;
  int64_t num_rows, num_inputs, num_outputs;
  // int8 weights only: row_scales [rows]; output_scales and output_sums for whole panels of outputs
  const float *row_scales = nullptr, *output_scales = nullptr;
  const int32_t* output_sums = nullptr;  // sum of an output's weights: inputs have 128 added
};

// Activation of a product's outputs, applied by the thread that has just computed them, while they are in its cache.
template <typename T>
struct Activated {
  ActivationKind kind;
  T* y;          // [rows, size]
  int64_t size;  // num_outputs, or half of them if the activation is gated
};

constexpr int kFewRows = 2;  // up to so many rows the product is bound by reading weights, not by arithmetic

// The product, split over the team; a.y is written, and activated->y if there is an activation. floats: working memory
// [rows, inputs], used only if T is widened (kWidens) and there are more than kFewRows rows.
template <typename T>
void multiply(const LinearArgs<T>& a, float* floats, Team& team, const Activated<T>* activated = nullptr);
// The same with int8 weights, for rows quantised by quantize_rows().
template <typename T>
void multiply_int8(const LinearArgs<T, uint8_t, int8_t>& a, Team& team, const Activated<T>* activated = nullptr);

// Several products in one phase, those of kinds that multiply() and multiply_int8() have; bfloat16 rows that are
// widened (kWidens) are floats already. activated: null, or one for each product.
template <typename T, typename Input, typename Weight>
void multiply_each(const std::vector<LinearArgs<T, Input, Weight>>& products, Team& team,
                   const Activated<T>* activated);

// A row [size] as floats.
template <typename T>
void widen_row(const T* x, float* floats, int64_t size);
// quantize_rows() for one row; returns its scale.
template <typename T>
float quantize_row(const T* x, uint8_t* bytes, int64_t size);
// Quantises rows x [rows, size] with one scale each: x = (byte - 128) * scale; a row's largest magnitude is 127 away
// from 128. Writes bytes [rows, size] and scales [rows].
template <typename T>
void quantize_rows(const T* x, int64_t x_stride, uint8_t* bytes, float* scales, int64_t num_rows, int64_t size,
                   Team& team);

// Memory that a thread reads first in a later product: the panels of its share.
struct Expected {
  const char* from;
  int64_t bytes;
};
// That memory for the calling thread; output_bytes: packed bytes of one output. steps.cpp hands it to Team::expect.
Expected first_panels(const void* packed, int64_t output_bytes, int64_t num_outputs, Team& team);

}  // namespace agon
