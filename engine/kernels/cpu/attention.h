// Causal attention over paged keys and values: the description of a layer, the description of a step, the plan that
// splits the work, and the function that runs it on a team of threads. Called by steps.cpp.
//
// T = tokens (rows) of the step, B = sequences, H = query heads, K = key/value heads (H / K query heads share one),
// D = channels of a head.
#pragma once

#include <cstdint>
#include <vector>

#include "threads.h"

namespace agon {

// One attention layer; does not change between steps. Python passes this memory layout: AttentionLayer in
// engine/kernels/cpu/steps.py must have the same fields in the same order.
struct AttentionLayer {
  int64_t type;       // layer type: index of its page table among those of the step
  int64_t rotation;   // index among the step's rotations; -1: none
  int64_t num_heads, num_kv_heads, head_dim;
  int64_t value_dim;      // V: channels of a value, head_dim unless values are a part of the keys
  int64_t stores_values;  // 0: values are the last V channels of the keys, which alone are stored
  int64_t page_tokens;
  void* pages;         // the layer's part of small page 0
  int64_t page_stride;  // elements of the type in pages
  int64_t has_int8_pages;  // 0: pages hold the type that is computed with
  int64_t stores;          // 0: keys and values have been stored, by this or another layer; rows are query heads alone
  int64_t reads;           // 0: keys and values are stored and no query reads them; there is no output
  int64_t window;       // tokens that a query reads, its own included; 0: all
  int64_t chunk;        // a query reads its own chunk of that many tokens, up to itself; 0: all
  int64_t normalizes_values;           // value heads have a norm without weights
  const float *query_norm, *key_norm;  // [D]; null: no norm
  const float* sinks;                  // [H]: a score without a value that takes part in the softmax; null: none
  double norm_eps, scale, softcap;     // softcap 0: none
};

// Elements of a row of a layer's input.
inline int64_t row_elements(const AttentionLayer& layer) {
  const int64_t parts = layer.stores ? (layer.stores_values ? 2 : 1) : 0;
  return (layer.num_heads + parts * layer.num_kv_heads) * layer.head_dim;
}

// Page table of one layer type: page ids of every sequence of the step, in the order of their tokens.
struct PageTable {
  const int64_t* pages;  // [B, entries]
  int64_t stride;        // elements between rows
};

// Rotary position embedding of the step's tokens, half-split form (store.h).
struct StepRotation {
  const float *cosines, *sines;  // [T, size / 2]
  int64_t size;                  // channels of a head that are rotated; the others stay
};

// The step's sequences: the step computes tokens [start, start + length) of each; their rows are adjacent, sequence
// after sequence.
struct StepSequences {
  int64_t count;
  const int64_t *starts, *lengths;
};

// A work item of one layer: some queries of a sequence, one key/value head, all or a part of the context.
struct AttentionItem {
  int64_t sequence, kv_head;
  int64_t first_row;                // row of the step with the item's first query token
  int64_t first_query;              // its position in the sequence
  int64_t num_queries;
  int64_t first_token, end_token;   // the part of the context that is read
  int64_t partial;                  // index of this part's sums in `partials`; -1: whole context, written to the output
  bool stores_token;                // its one query is its sequence's only token in this step; this item stores its key
};

// Tokens of one page whose keys and values are stored together.
struct PageRun {
  int64_t sequence, first_row, first_token, count;
};

// How the attention of a step is split into work items; the same for all layers of a type. `merges` join the partial
// sums of split contexts.
struct AttentionPlan {
  std::vector<AttentionItem> items, merges;
  std::vector<PageRun> runs;  // where no item stores them: work items store the single tokens of sequences
  int64_t num_partials = 0, most_queries = 0;

  bool is_empty() const { return items.empty() && runs.empty(); }
};

// The plan for one step and all layers of this layer's type. Called once per step and type.
AttentionPlan plan_attention(const AttentionLayer& layer, const StepSequences& sequences);

// Arguments of attend() for one layer and step. T: the type that is computed with.
template <typename T>
struct AttentionArgs {
  const AttentionLayer& layer;
  const AttentionPlan& plan;
  const T* qkv;  // [T, H + 2 K, D]: a row's query, key and value heads, before norm and rotation; or [T, H, D]
  T* output;     // [T, H * V]
  PageTable table;
  StepRotation rotation;
  float* partials;  // [attention_partials()]
};

// Number of floats in `partials` that a plan needs.
int64_t attention_partials(const AttentionLayer& layer, const AttentionPlan& plan);

// Normalises and rotates queries and keys, stores keys and values into their pages, and writes the attention output.
// Every thread of the team calls it. S: the type in pages, T itself or int8_t.
template <typename T, typename S>
void attend(const AttentionArgs<T>& a, Team& team);

}  // namespace agon
