// Low-rank adapters of a linear layer (LoRA): y = y + up (down x), for each row with the matrices of its own adapter.
// Callers: steps.cpp and agon_add_adapters_* (adapters.cpp).
//
// Python passes the memory layout of these structs: the classes in engine/kernels/cpu/adapters.py must have the same
// fields in the same order.
#pragma once

#include <cstdint>

#include "threads.h"
#include "vec.h"

namespace agon {

// The update of some adjacent outputs: one of the projections that the layer computes together.
struct AdapterPart {
  int64_t first_output, num_outputs;
  int64_t first_rank, num_ranks;  // its rows of `down`; both even
  const void* up;                 // packed panels [outputs, ranks] (linear.h)
  const float* gains;             // [outputs]: factor on y before the update (DoRA); null: 1
  const float* shifts;            // [outputs]: added to y times the gain; null where gains are
};

// What one adapter does to one layer.
struct AdapterWeights {
  const void* down;     // [ranks, stride], rows filled up with zeros
  int64_t down_stride;  // a multiple of the elements of a vector
  int64_t num_ranks;    // of all parts together; 0: the adapter leaves this layer as it is
  int64_t num_parts;
  const AdapterPart* parts;
};

// Adjacent rows of a step with the same adapter. Rows in no run have none.
struct AdapterRun {
  int64_t first_row, num_rows, slot;
};

template <typename T>
struct AdapterArgs {
  const T* x;
  int64_t x_stride;
  T* y;
  int64_t y_stride;
  int64_t num_inputs;
  const AdapterWeights* slots;
  const AdapterRun* runs;
  int64_t num_runs;
  T* ranks;  // working memory: [rows of the step, rank_stride]
  int64_t rank_stride;
};

// The largest num_ranks among the adapters of these runs.
int64_t widest_rank(const AdapterWeights* slots, const AdapterRun* runs, int64_t num_runs);

// Adds every run's update to y, on every thread of the team. A row's result depends on its own row and adapter only.
template <typename T>
void add_adapters(const AdapterArgs<T>& a, Team& team);

}  // namespace agon
