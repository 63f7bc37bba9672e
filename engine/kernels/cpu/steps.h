// A part of a network as data: a list of steps that one team of threads executes in one call. In a small model a call
// from Python costs as much as the work of a step, and so does starting threads.
//
// Rows of activations are in numbered buffers. Python passes the memory layout of these structs: the classes in
// engine/kernels/cpu/steps.py must have the same fields in the same order.
#pragma once

#include <cstdint>

#include "adapters.h"
#include "attention.h"
#include "grouped.h"

namespace agon {

// What a step computes; the same numbers as Kind in engine/kernels/cpu/steps.py.
enum StepKind : int64_t {
  kNorm = 0,      // output = norm(input + update); input becomes that sum
  kLinear = 1,    // output = input W^T + b
  kActivate = 2,  // output = activation(input)
  kAttention = 3,  // output = attention(input); rows of input are query, key and value heads
  kAdd = 4,       // output = output + input
  kAdapt = 5,     // output = output + the updates of the rows' adapters of input
};

// One step. CppRecorder (engine/kernels/cpu/recorder.py) records it once; the attention backend sets `attention`.
struct Step {
  int64_t kind;
  int64_t input, update, output;    // buffer numbers; update -1: none
  int64_t num_inputs, num_outputs;  // elements of a row
  const void* weight;               // packed panels, a norm's scales (float), or AdapterWeights by slot
  const void* bias;                 // or a norm's shifts (float); may be null
  const GroupedWeights* grouped;    // null unless weights have scales for groups; then weight is null
  double eps;
  int64_t activation;  // ActivationKind; a linear step also applies it to its outputs; -1: none
  int64_t activated;   // the buffer for those activated outputs
  const AttentionLayer* attention;
};

// The data of one call.
struct Inputs {
  int64_t num_rows;
  void* const* buffers;
  int8_t* bytes;         // [rows, widest input]: rows quantised for grouped weights
  RowBlock* row_blocks;  // [rows, blocks]
  StepSequences sequences;
  const PageTable* tables;         // [num_tables], by layer type
  const StepRotation* rotations;   // by AttentionLayer::rotation
  int64_t num_tables;
  const AdapterRun* runs;  // [num_runs]
  int64_t num_runs;
};

}  // namespace agon
