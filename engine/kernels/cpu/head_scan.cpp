// The recurrence of Mamba-2 (Dao and Gu 2024) on states in pages: heads of channels that share one decay per token. The
// lanes are numbers of state; a work item is some channels of a head for the tokens of one sequence, one token after the
// other, so a token's result depends neither on other sequences nor on steps or threads. A tile of tokens is computed
// vector by vector, so that a state is read and written once for it.

#include <algorithm>
#include <vector>

#include "lanes.h"
#include "states.h"
#include "threads.h"
#include "vec.h"

namespace agon {

constexpr int64_t kScanChannels = 32;  // of one work item: 16 KB of state if a channel has 128 numbers

// Rows of type T, contiguous unless there is a stride. Consecutive heads share a group.
template <typename T>
struct HeadScanArgs {
  const T *x, *dt, *b, *c;  // [tokens, heads, channels], [tokens, heads], [tokens, groups, numbers] twice
  int64_t x_stride, dt_stride, b_stride, c_stride;
  const float *a, *d, *dt_bias;  // [heads]
  float least_step, largest_step;
  States<float> states;  // [heads, channels, numbers]
  T* y;  // [tokens, heads, channels]
  int64_t num_heads, num_channels, num_groups, num_numbers;
};

// Finds for every token and head the step, and the factor by which the state decays; both [tokens, heads].
template <typename T>
static void find_steps(const HeadScanArgs<T>& args, float* steps, float* decays, Team& team) {
  team.each(args.states.num_tokens(), [&](int64_t token, int64_t) {
    for (int64_t head = 0; head < args.num_heads; head += kLanes) {
      const int count = int(std::min<int64_t>(kLanes, args.num_heads - head));
      const Floats dt = load_part(args.dt + token * args.dt_stride + head, count);
      Floats step = max(softplus(dt + load_part(args.dt_bias + head, count)), splat(args.least_step));
      step = step > args.largest_step ? splat(args.largest_step) : step;
      store_part(steps + token * args.num_heads + head, step, count);
      store_part(decays + token * args.num_heads + head, exp(step * load_part(args.a + head, count)), count);
    }
  });
}

// A row of numbers as whole vectors, filled up with zeros.
template <typename T>
static AGON_INLINE void widen_row(const T* from, int64_t count, float* to) {
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) store(to + n, load(from + n));
  if (n < count) store(to + n, load_part(from + n, int(count - n)));
}

constexpr int kTogether = 4;  // channels that share loads of b and c; kScanChannels is a multiple
constexpr int kTile = kLanes / kTogether;  // tokens of a tile: a total of every channel and token fills a vector

// The states of kTogether channels, [vectors] each, after kTokens tokens, of which each has a decay, scaled inputs
// [kScanChannels], and b and c [vectors]. totals [tokens, channels]: state times c, lane by lane.
template <int kTokens>
static AGON_INLINE void advance(Floats* state, int64_t num_vectors, const float* decays, const float* scaled,
                                const Floats* b, const Floats* c, Floats (&totals)[kTokens * kTogether]) {
#pragma GCC unroll 16
  for (Floats& total : totals) total = splat(0.0f);
  for (int64_t v = 0; v < num_vectors; v++) {
    Floats now[kTogether];
#pragma GCC unroll 4
    for (int j = 0; j < kTogether; j++) now[j] = state[j * num_vectors + v];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; t++) {
      const Floats b_v = b[t * num_vectors + v], c_v = c[t * num_vectors + v];
      const Floats decay = as_floats(splat_word_at(decays + t));
#pragma GCC unroll 4
      for (int j = 0; j < kTogether; j++) {
        now[j] = decay * now[j] + as_floats(splat_word_at(scaled + t * kScanChannels + j)) * b_v;
        totals[t * kTogether + j] += now[j] * c_v;
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < kTogether; j++) state[j * num_vectors + v] = now[j];
  }
}

// Space of one thread, for kScanChannels channels and a tile of tokens.
struct HeadScanSpace {
  std::vector<Floats> state, b, c;  // [channels, vectors]; [tokens, vectors] twice
  float decays[kTile], inputs[kTile * kScanChannels], scaled[kTile * kScanChannels], read[kTile * kScanChannels];
  explicit HeadScanSpace(int64_t num_vectors)
      : state(kScanChannels * num_vectors), b(kTile * num_vectors), c(kTile * num_vectors) {}
};

// kTokens tokens, from `token` on, of `count` channels, from the first-th of all heads on.
template <int kTokens, typename T>
static void scan_tile(const HeadScanArgs<T>& args, int64_t token, int64_t head, int64_t first, int64_t count,
                      const float* steps, const float* decays, HeadScanSpace& space) {
  const int64_t num_vectors = int64_t(space.state.size()) / kScanChannels, num_numbers = args.num_numbers;
  const int64_t group = head / (args.num_heads / args.num_groups), num_all = args.num_heads * args.num_channels;
  for (int t = 0; t < kTokens; t++) {
    const int64_t row = token + t;
    widen_row(args.b + row * args.b_stride + group * num_numbers, num_numbers, (float*)(space.b.data() + t * num_vectors));
    widen_row(args.c + row * args.c_stride + group * num_numbers, num_numbers, (float*)(space.c.data() + t * num_vectors));
    space.decays[t] = decays[row * args.num_heads + head];
    float* const inputs = space.inputs + t * kScanChannels;
    widen_row(args.x + row * args.x_stride + first, count, inputs);  // whole vectors: kScanChannels is a multiple
    const Floats step = splat(steps[row * args.num_heads + head]);
    for (int64_t i = 0; i < count; i += kLanes) store(space.scaled + t * kScanChannels + i, step * load(inputs + i));
  }
  for (int64_t i = 0; i < count; i += kTogether) {
    Floats totals[kTokens * kTogether];
    advance<kTokens>(space.state.data() + i * num_vectors, num_vectors, space.decays, space.scaled + i, space.b.data(),
                     space.c.data(), totals);
    float lanes[kTokens * kTogether];
    if constexpr (kTokens * kTogether == kLanes) store(lanes, sums(totals));
    else
      for (int j = 0; j < kTogether; j++) lanes[j] = sum(totals[j]);
    for (int t = 0; t < kTokens; t++)
      std::copy_n(lanes + t * kTogether, kTogether, space.read + t * kScanChannels + i);
  }
  const Floats d = splat(args.d[head]);
  for (int t = 0; t < kTokens; t++)
    for (int64_t i = 0; i < count; i += kLanes) {
      const int64_t at = t * kScanChannels + i;
      const Floats y = load(space.read + at) + d * load(space.inputs + at);
      T* const to = args.y + (token + t) * num_all + first + i;
      if (count - i >= kLanes) store(to, y);
      else store_part(to, y, int(count - i));
    }
}

// `count` channels, from `channel` on, of one head for the tokens of one sequence.
template <typename T>
static void scan_channels(const HeadScanArgs<T>& args, int64_t sequence, int64_t head, int64_t channel, int64_t count,
                          const float* steps, const float* decays, HeadScanSpace& space) {
  const Range tokens = args.states.tokens(sequence);
  const int64_t first = head * args.num_channels + channel;  // among the channels of all heads
  const int64_t num_all = args.num_heads * args.num_channels;
  float* const page = args.states.state(sequence);
  if (page == nullptr) {
    for (int64_t token = tokens.first; token < tokens.last; token++)
      std::fill_n(args.y + token * num_all + first, count, T(0));
    return;
  }
  const int64_t num_numbers = args.num_numbers, num_vectors = int64_t(space.state.size()) / kScanChannels;
  float* const held = page + first * num_numbers;
  const bool is_new = args.states.is_new(sequence);
  for (int64_t i = 0; i < count; i++) {
    Floats* const state = space.state.data() + i * num_vectors;
    if (is_new) std::fill_n(state, num_vectors, splat(0.0f));
    else widen_row(held + i * num_numbers, num_numbers, reinterpret_cast<float*>(state));
  }
  int64_t token = tokens.first;
  for (; token + kTile <= tokens.last; token += kTile)
    scan_tile<kTile>(args, token, head, first, count, steps, decays, space);
  for (; token < tokens.last; token++) scan_tile<1>(args, token, head, first, count, steps, decays, space);
  for (int64_t i = 0; i < count; i++)
    std::copy_n(reinterpret_cast<const float*>(space.state.data() + i * num_vectors), num_numbers,
                held + i * num_numbers);
}

template <typename T>
static void head_scan(const HeadScanArgs<T>& args, float* steps, float* decays, Team& team) {
  find_steps(args, steps, decays, team);
  HeadScanSpace space((args.num_numbers + kLanes - 1) / kLanes);
  const int64_t num_blocks = (args.num_channels + kScanChannels - 1) / kScanChannels;
  team.each(args.states.num_sequences * args.num_heads * num_blocks, [&](int64_t item, int64_t) {
    const int64_t channel = item % num_blocks * kScanChannels;
    const int64_t count = std::min(kScanChannels, args.num_channels - channel);
    const int64_t head = item / num_blocks % args.num_heads, sequence = item / num_blocks / args.num_heads;
    scan_channels(args, sequence, head, channel, count, steps, decays, space);
  });
}

}  // namespace agon

extern "C" {

// agon_head_scan_{f32,bf16}: for Python (CppStateKernels in engine/kernels/cpu/state_kernels.py).
#define AGON_HEAD_SCAN(suffix, T)                                                                                     \
  void agon_head_scan_##suffix(                                                                                       \
      const T* x, int64_t x_stride, const T* dt, int64_t dt_stride, const T* b, int64_t b_stride, const T* c,         \
      int64_t c_stride, const float* a, const float* d, const float* dt_bias, float least_step, float largest_step,   \
      float* pages, int64_t page_stride, const int64_t* page_ids, const int32_t* starts, const int32_t* query_starts, \
      int64_t num_sequences, T* y, int64_t num_heads, int64_t num_channels, int64_t num_groups, int64_t num_numbers,  \
      int num_threads) {                                                                                              \
    const agon::States<float> states{pages, page_stride, page_ids, starts, query_starts, num_sequences};              \
    std::vector<float> steps(states.num_tokens() * num_heads), decays(steps.size());                                  \
    /* below some size, starting the threads costs more than they save */                                             \
    const bool is_small = states.num_tokens() * num_heads * num_channels * num_numbers < (1 << 16);                   \
    agon::with_team(is_small ? 1 : num_threads, [&](agon::Team& team) {                                               \
      agon::head_scan<T>({x, dt, b, c, x_stride, dt_stride, b_stride, c_stride, a, d, dt_bias, least_step,            \
                          largest_step, states, y, num_heads, num_channels, num_groups, num_numbers},                 \
                         steps.data(), decays.data(), team);                                                          \
    });                                                                                                               \
  }
AGON_HEAD_SCAN(f32, float)
AGON_HEAD_SCAN(bf16, agon::bf16)
}
