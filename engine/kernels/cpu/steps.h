// A part of a network as data: a list of steps that a team of threads runs in one call. In a small model a call from
// Python costs as much as the work of a step, and so does starting threads.
//
// Rows of activations lie in numbered buffers. The structures are filled in by Python: engine/kernels/cpu/steps.py has
// the same fields in the same order.
#pragma once

#include <cstdint>

#include "attention.h"

namespace agon {

enum StepKind : int64_t {
  kNorm = 0,      // output = norm(input + update); input becomes that sum
  kLinear = 1,    // output = input W^T + b
  kActivate = 2,  // output = activation(input)
  kAttention = 3,  // output = attention of input, which has query, key and value heads
  kAdd = 4,       // output = output + input
};

struct Step {
  int64_t kind;
  int64_t input, update, output;    // numbers of buffers; update -1: none
  int64_t num_inputs, num_outputs;  // elements of a row
  const void* weight;               // packed panels, or a norm's scales (float)
  const void* bias;                 // or a norm's shifts (float); may be null
  const float* output_scales;       // null unless weights are int8
  const int32_t* output_sums;
  double eps;
  int64_t activation;  // ActivationKind; in a linear: of its outputs, written to the buffer `activated`; -1: none
  int64_t activated;
  const AttentionLayer* attention;
};

// The inputs of one call.
struct Inputs {
  int64_t num_rows;
  void* const* buffers;
  uint8_t* bytes;     // [rows, the widest input]: rows in 8 bits, for int8 weights
  float* row_scales;  // [rows]
  StepSequences sequences;
  const PageTable* tables;         // by type
  const StepRotation* rotations;
  int64_t num_tables;
};

}  // namespace agon
