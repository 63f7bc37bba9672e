// y = x W^T + b, with weights packed once when a model is loaded: float or bfloat16.
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

// Arguments of a product. T: type of weights, bias and y. Input: that of rows; T, or float for widened rows. Strides
// count elements between rows.
template <typename T, typename Input = T>
struct LinearArgs {
  const Input* x;
  int64_t x_stride;
  const T* packed;  // whole panels
  const T* bias;  // may be null
  T* y;
  int64_t y_stride;
  int64_t num_rows, num_inputs, num_outputs;
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

// Several products in one phase, of the kinds that multiply() has; bfloat16 rows that are widened (kWidens) are floats
// already. activated: null, or one for each product.
template <typename T, typename Input>
void multiply_each(const std::vector<LinearArgs<T, Input>>& products, Team& team, const Activated<T>* activated);

// A row [size] as floats.
template <typename T>
void widen_row(const T* x, float* floats, int64_t size);

// Memory that a thread reads first in a later product: the panels of its share.
struct Expected {
  const char* from;
  int64_t bytes;
};
// That memory for the calling thread; output_bytes: packed bytes of one output. steps.cpp hands it to Team::expect.
Expected first_panels(const void* packed, int64_t output_bytes, int64_t num_outputs, Team& team);

}  // namespace agon
