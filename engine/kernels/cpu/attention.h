// Causal attention over paged keys and values: the description of a layer, the inputs of a step, and the work that a
// team of threads does on them. H query heads, K key/value heads (H / K query heads share one), D channels.
#pragma once

#include <cstdint>
#include <vector>

#include "threads.h"

namespace agon {

// One layer. Filled in by Python: engine/kernels/cpu/steps.py has the same fields in the same order.
struct AttentionLayer {
  int64_t type;       // index among the step's page tables
  int64_t rotation;   // index among the step's rotations; -1: none
  int64_t num_heads, num_kv_heads, head_dim, page_tokens;
  void* pages;         // the layer's part of small page 0
  int64_t page_stride;  // in elements of pages
  int64_t has_int8_pages;  // otherwise pages hold T
  int64_t window;       // tokens that a query reads; 0: all
  const float *query_norm, *key_norm;  // [D]; null: no norm
  const float* sinks;                  // [H]: per head a score without a value, part of the softmax; null: none
  double norm_eps, scale, softcap;     // softcap 0: none
};

struct PageTable {
  const int64_t* pages;  // [B, ...]
  int64_t stride;
};

struct StepRotation {
  const float *cosines, *sines;  // [T, size / 2]
  int64_t size;                  // channels of a head that are rotated
};

// The step's sequences: tokens [start, start + length) of each are computed; their rows are adjacent.
struct StepSequences {
  int64_t count;
  const int64_t *starts, *lengths;
};

// A work item of one layer: some queries of a sequence, one key/value head, a part of the context.
struct AttentionItem {
  int64_t sequence, kv_head;
  int64_t first_row;                // row of the step that holds the item's first query token
  int64_t first_query;              // its position in the sequence
  int64_t num_queries;
  int64_t first_token, end_token;   // part of the context
  int64_t partial;                  // where the sums of this part are kept; -1: whole context, writes the output
  bool stores_token;                // its query is the sequence's only token in this step: it also stores it
};

// Tokens of one page that are stored together.
struct PageRun {
  int64_t sequence, first_row, first_token, count;
};

// How the work of a step is divided into items: equal for all layers of a type.
struct AttentionPlan {
  std::vector<AttentionItem> items, merges;
  std::vector<PageRun> runs;  // of sequences that compute several tokens; a single token is stored by its work item
  int64_t num_partials = 0, most_queries = 0;
};

AttentionPlan plan_attention(const AttentionLayer& layer, const StepSequences& sequences);

template <typename T>
struct AttentionArgs {
  const AttentionLayer& layer;
  const AttentionPlan& plan;
  const T* qkv;  // [T, H + 2 K, D]
  T* output;     // [T, H * D]
  PageTable table;
  StepRotation rotation;
  float* partials;  // [attention_partials()]
};

// Number of floats of memory for the partial sums of a plan.
int64_t attention_partials(const AttentionLayer& layer, const AttentionPlan& plan);

// Norms and rotates queries and keys, stores keys and values in their pages, attends.
// S: type of elements in pages, T itself or int8_t.
template <typename T, typename S>
void attend(const AttentionArgs<T>& a, Team& team);

}  // namespace agon
