// Causal attention over paged keys and values: what does not change between steps, what a step brings, and what a team
// of threads does with both. H query heads, K key/value heads (H / K query heads share one), D channels.
#pragma once

#include <cstdint>
#include <vector>

#include "threads.h"

namespace agon {

// One layer. Passed from Python as it stands here: engine/kernels/cpu/steps.py has the same fields in the same order.
struct AttentionLayer {
  int64_t type;       // which of the step's page tables
  int64_t rotation;   // which of the step's rotations; -1: none
  int64_t num_heads, num_kv_heads, head_dim, page_tokens;
  void* pages;         // the layer's part of small page 0
  int64_t page_stride;  // elements, of pages
  int64_t has_int8_pages;  // otherwise pages hold what is computed with
  int64_t window;       // tokens that a query reads; 0: all
  const float *query_norm, *key_norm;  // [D]; null: no norm
  const float* sinks;                  // [H]: a score beside those of the context, without a value; null: none
  double norm_eps, scale, softcap;     // softcap 0: none
};

struct PageTable {
  const int64_t* pages;  // [B, ...]
  int64_t stride;
};

struct StepRotation {
  const float *cosines, *sines;  // [T, size / 2]
  int64_t size;                  // channels of a head that turn
};

// The step's sequences: tokens [start, start + length) of each are computed, and stand side by side.
struct StepSequences {
  int64_t count;
  const int64_t *starts, *lengths;
};

// Part of the work on one layer: some queries of a sequence, one key/value head, a part of the context.
struct AttentionItem {
  int64_t sequence, kv_head;
  int64_t first_row;                // row of the step that holds the item's first query token
  int64_t first_query;              // its position in the sequence
  int64_t num_queries;
  int64_t first_token, end_token;   // part of the context
  int64_t partial;                  // where the sums of this part go; -1: the whole context, straight to the output
  bool stores_token;                // its only query is its sequence's only token in this step, and not stored yet
};

// Tokens of one page that are stored together.
struct PageRun {
  int64_t sequence, first_row, first_token, count;
};

// How the work of a step is cut: the same for all layers of a type.
struct AttentionPlan {
  std::vector<AttentionItem> items, merges;
  std::vector<PageRun> runs;  // of sequences that compute several tokens; a single one is stored where it is attended
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

// Floats of memory that a plan needs.
int64_t attention_partials(const AttentionLayer& layer, const AttentionPlan& plan);

// Norms and rotates queries and keys, stores keys and values in their pages, attends.
// S: what pages hold, T itself or int8_t.
template <typename T, typename S>
void attend(const AttentionArgs<T>& a, Team& team);

}  // namespace agon
