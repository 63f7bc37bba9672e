// The recurrence of Mamba layers (Gu and Dao 2023) on states in pages. A lane is a channel: its numbers of state lie in
// kStates vectors or more, and the tokens go by one after the other. A thread computes some channels for all sequences,
// so a token's result depends neither on other sequences nor on steps or threads.

#include <algorithm>
#include <vector>

#include "lanes.h"
#include "states.h"
#include "threads.h"
#include "vec.h"

namespace agon {

// Rows of type T, contiguous unless there is a stride.
template <typename T>
struct ScanArgs {
  const T *x, *dt, *b, *c, *gate;  // x, dt, gate [tokens, channels]; b, c [tokens, numbers]
  int64_t x_stride, dt_stride, b_stride, c_stride, gate_stride;
  const float *a, *d;  // [channels, numbers], [channels]
  States<float> states;  // [channels, numbers]
  T* y;  // [tokens, channels]
  int64_t num_channels, num_numbers;
};

// [count, numbers] in memory <-> vectors [numbers] with a channel in each lane; other lanes are zero.
static void transpose_in(const float* from, int count, int64_t num_numbers, Floats* to) {
  if (count == kLanes && num_numbers % kLanes == 0) {
    for (int64_t n = 0; n < num_numbers; n += kLanes) {
      for (int lane = 0; lane < kLanes; lane++) to[n + lane] = load(from + lane * num_numbers + n);
      transpose(to + n);
    }
    return;
  }
  float* const lanes = reinterpret_cast<float*>(to);
  for (int64_t n = 0; n < num_numbers; n++)
    for (int lane = 0; lane < kLanes; lane++)
      lanes[n * kLanes + lane] = lane < count ? from[lane * num_numbers + n] : 0.0f;
}
static void transpose_out(const Floats* from, int count, int64_t num_numbers, float* to) {
  if (count == kLanes && num_numbers % kLanes == 0) {
    for (int64_t n = 0; n < num_numbers; n += kLanes) {
      Floats square[kLanes];
      for (int lane = 0; lane < kLanes; lane++) square[lane] = from[n + lane];
      transpose(square);
      for (int lane = 0; lane < kLanes; lane++) store(to + lane * num_numbers + n, square[lane]);
    }
    return;
  }
  const float* const lanes = reinterpret_cast<const float*>(from);
  for (int lane = 0; lane < count; lane++)
    for (int64_t n = 0; n < num_numbers; n++) to[lane * num_numbers + n] = lanes[n * kLanes + lane];
}

// `count` channels of one token: the state [numbers] is advanced. `a`: binary logarithms of the decay of a step of 1.
template <typename T>
static AGON_INLINE void advance(const ScanArgs<T>& args, int64_t token, int64_t channel, int count, const Floats* a,
                                Floats d, Floats* state) {
  const bool is_whole = count == kLanes;
  const auto load_some = [&](const T* from) { return is_whole ? load(from) : load_part(from, count); };
  const Floats x = load_some(args.x + token * args.x_stride + channel);
  const Floats step = softplus(load_some(args.dt + token * args.dt_stride + channel));
  const Floats gate = load_some(args.gate + token * args.gate_stride + channel);
  const T *const b = args.b + token * args.b_stride, *const c = args.c + token * args.c_stride;
  const Floats input = step * x;
  Floats y = d * x;
  for (int64_t n = 0; n < args.num_numbers; n++) {
    state[n] = decaying_power_of_two(step * a[n]) * state[n] + input * to_float(b[n]);
    y += state[n] * to_float(c[n]);
  }
  y *= gate / (1.0f + exp(-gate));
  T* const to = args.y + token * args.num_channels + channel;
  if (is_whole) store(to, y);
  else store_part(to, y, count);
}

// Channels of a work item: 4 KB of state if a channel has 16 numbers, so that a sequence's part of a page is read as a
// stream.
constexpr int kParts = 4;
constexpr int64_t kItemChannels = kParts * kLanes;
constexpr int64_t kAhead = 1;  // sequences whose states are prefetched

// The weights of a work item, a vector of channels after the other.
struct ItemWeights {
  explicit ItemWeights(int64_t num_numbers) : a(kParts * num_numbers) {}

  std::vector<Floats> a;  // [parts, numbers]
  Floats d[kParts];
};

template <typename T>
static void load_weights(const ScanArgs<T>& args, Range channels, ItemWeights& weights) {
  for (int64_t channel = channels.first, part = 0; channel < channels.last; channel += kLanes, part++) {
    const int count = int(std::min<int64_t>(kLanes, channels.last - channel));
    Floats* const a = weights.a.data() + part * args.num_numbers;
    transpose_in(args.a + channel * args.num_numbers, count, args.num_numbers, a);
    for (int64_t n = 0; n < args.num_numbers; n++) a[n] *= 1.44269504f;  // e^x = 2^(x log2 e); rates are negative
    weights.d[part] = load_part(args.d + channel, count);
  }
}

template <typename T>
static void selective_scan(const ScanArgs<T>& args, Team& team) {
  const int64_t num_numbers = args.num_numbers;
  ItemWeights weights(num_numbers);
  std::vector<Floats> state(num_numbers);
  team.each((args.num_channels + kItemChannels - 1) / kItemChannels, [&](int64_t item, int64_t) {
    const Range channels{item * kItemChannels, std::min((item + 1) * kItemChannels, args.num_channels)};
    load_weights(args, channels, weights);
    for (int64_t sequence = 0; sequence < args.states.num_sequences; sequence++) {
      const Range tokens = args.states.tokens(sequence);
      float* const page = args.states.state(sequence);
      if (page == nullptr) {
        for (int64_t token = tokens.first; token < tokens.last; token++) {
          T* const y = args.y + token * args.num_channels;
          std::fill(y + channels.first, y + channels.last, T(0));
        }
        continue;
      }
      for (int64_t channel = channels.first, part = 0; channel < channels.last; channel += kLanes, part++) {
        const int count = int(std::min<int64_t>(kLanes, channels.last - channel));
        args.states.fetch(sequence + kAhead, channel * num_numbers, count * num_numbers);
        const Floats *const a = weights.a.data() + part * num_numbers, d = weights.d[part];
        float* const held = page + channel * num_numbers;
        if (args.states.is_new(sequence)) std::fill(state.begin(), state.end(), splat(0.0f));
        else transpose_in(held, count, num_numbers, state.data());
        if (count == kLanes)
          for (int64_t t = tokens.first; t < tokens.last; t++) advance(args, t, channel, kLanes, a, d, state.data());
        else
          for (int64_t t = tokens.first; t < tokens.last; t++) advance(args, t, channel, count, a, d, state.data());
        transpose_out(state.data(), count, num_numbers, held);
      }
    }
  });
}

}  // namespace agon

extern "C" {

// agon_selective_scan_{f32,bf16}: for Python (CppStateKernels in engine/kernels/cpu/state_kernels.py).
#define AGON_SELECTIVE_SCAN(suffix, T)                                                                                \
  void agon_selective_scan_##suffix(                                                                                  \
      const T* x, int64_t x_stride, const T* dt, int64_t dt_stride, const T* b, int64_t b_stride, const T* c,         \
      int64_t c_stride, const T* gate, int64_t gate_stride, const float* a, const float* d, float* pages,             \
      int64_t page_stride, const int64_t* page_ids, const int32_t* starts, const int32_t* query_starts,               \
      int64_t num_sequences, T* y, int64_t num_channels, int64_t num_numbers, int num_threads) {                      \
    const agon::States<float> states{pages, page_stride, page_ids, starts, query_starts, num_sequences};              \
    /* below some size, starting the threads costs more than they save */                                             \
    const bool is_small = states.num_tokens() * num_channels * num_numbers < (1 << 14);                               \
    agon::with_team(is_small ? 1 : num_threads, [&](agon::Team& team) {                                               \
      agon::selective_scan<T>({x, dt, b, c, gate, x_stride, dt_stride, b_stride, c_stride, gate_stride, a, d, states, \
                               y, num_channels, num_numbers},                                                         \
                              team);                                                                                  \
    });                                                                                                               \
  }
AGON_SELECTIVE_SCAN(f32, float)
AGON_SELECTIVE_SCAN(bf16, agon::bf16)
}
