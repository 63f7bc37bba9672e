// y = x W^T + b with quantised weights: codes of 4, 5, 6 or 8 bits, and a scale for every output and group of inputs.
// Callers: steps.cpp and agon_linear_grouped_* (grouped.cpp), which also has the layout.
//
// The weight of a code u is factor * (scale * (value(u) - zero) + zero * offset). value(u) is u itself, or an unsigned
// byte of a code book. zero is one number for the matrix; offset is another zero point of the group. Rows of x are
// quantised to 8 bits with one scale for every block of inputs, which lies inside a group. So sums within a block are
// exact integers, and a block costs two or three operations in float.
#pragma once

#include <cstdint>

#include "activation.h"
#include "linear.h"
#include "threads.h"

namespace agon {

// A packed matrix. GroupedWeights in engine/kernels/cpu/steps.py must have the same fields in the same order.
struct GroupedWeights {
  const uint8_t* packed;    // whole panels
  const uint16_t* scales;   // float16 [panels, groups, kPanel]
  const uint16_t* offsets;  // likewise; may be null
  const float* factors;     // [panels, kPanel]
  const int32_t* order;     // [columns]: the input of x that a column of weights takes, -1: none; null: the same
  const uint8_t* book;      // [16]: values of codes of 4 bits; null: the code itself
  int64_t bits;             // 4, 5, 6 or 8
  int64_t num_inputs;       // elements of a row of x
  int64_t num_columns;      // num_inputs, padded to whole blocks
  int64_t group, block;     // columns of a group and of a block
  int64_t zero;

  int64_t num_blocks() const { return num_columns / block; }
  int64_t bytes_per_output() const { return num_columns * bits / 8; }
};

// What a row's block of inputs was quantised with.
struct RowBlock {
  float scale;
  int32_t start;  // -zero * sum of the bytes: where the block's sums begin
};

constexpr int64_t kMostBlock = 128;  // inputs that share a scale of x

// A product of rows quantised by quantize_blocks().
template <typename T>
struct GroupedProduct {
  const GroupedWeights* weights;
  const int8_t* bytes;
  const RowBlock* blocks;
  const T* bias;  // may be null
  T* y;           // [rows, outputs]
  int64_t y_stride, num_rows, num_outputs;
};

// Quantises a row of x [inputs]: bytes [columns], blocks [num_blocks].
template <typename T>
void quantize_row_blocks(const GroupedWeights& w, const T* x, int8_t* bytes, RowBlock* blocks);
// The same for rows of x [rows, inputs].
template <typename T>
void quantize_blocks(const GroupedWeights& w, const T* x, int64_t x_stride, int8_t* bytes, RowBlock* blocks,
                     int64_t num_rows, Team& team);

// Products in one phase, split over the team, with weights that agree in their bits and in whether they have a book. y is
// written, and activated->y if there is an activation; activated: null, or one for each product.
template <typename T>
void multiply_grouped(const GroupedProduct<T>* products, int64_t count, Team& team,
                      const Activated<T>* activated = nullptr);

}  // namespace agon
