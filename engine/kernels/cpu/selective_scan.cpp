// The recurrence of Mamba layers (Gu and Dao 2023) on states in pages. A thread computes some channels for all
// sequences. Where a sequence has several tokens, they go by one after the other, and a lane is a channel. Where it has
// one, as when it decodes, a lane is a number of a channel's state, as in pages: transposing it there and back would
// take as long as the token. Both add a channel's numbers in the same order, so a token's result depends neither on
// other sequences nor on steps or threads.

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

// What a token brings to some channels, a lane each, and where its output goes.
template <typename T>
struct TokenChannels {
  TokenChannels(const ScanArgs<T>& args, int64_t token, int64_t channel, int count)
      : count(count), at(token * args.num_channels + channel) {
    x = loaded(args.x + token * args.x_stride + channel);
    step = softplus(loaded(args.dt + token * args.dt_stride + channel));
    gate = loaded(args.gate + token * args.gate_stride + channel);
    input = step * x;
    step *= 1.44269504f;
  }
  Floats loaded(const T* from) const { return count == kLanes ? load(from) : load_part(from, count); }
  void put(const ScanArgs<T>& args, Floats y) const {
    y *= silu(gate);
    if (count == kLanes) store(args.y + at, y);
    else store_part(args.y + at, y, count);
  }

  int count;
  int64_t at;
  Floats x, step, gate, input;  // step: times log2 e, as a state decays by 2^(step a)
};

// The sum over numbers of state * c for the channels in the lanes. Where the numbers fill vectors, in the order in
// which sums() adds them.
template <typename T>
static AGON_INLINE Floats outputs(const Floats* state, const T* c, int64_t num_numbers) {
  Floats y = state[0] * to_float(c[0]);
  if (num_numbers % kLanes != 0) {
    for (int64_t n = 1; n < num_numbers; n++) y += state[n] * to_float(c[n]);
    return y;
  }
  Floats parts[kLanes];
  for (int lane = 0; lane < kLanes; lane++) parts[lane] = state[lane] * to_float(c[lane]);
  for (int64_t first = kLanes; first < num_numbers; first += kLanes)
    for (int lane = 0; lane < kLanes; lane++) parts[lane] += state[first + lane] * to_float(c[first + lane]);
  for (int lane = 0; lane < kLanes; lane++) parts[lane] = unfused(parts[lane]);
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; lane++) parts[lane] += parts[lane + half];
  return parts[0];
}

// `count` channels of one token, with the state [numbers] and `a` in vectors of channels: the state is advanced.
template <typename T>
static AGON_INLINE void advance(const ScanArgs<T>& args, int64_t token, int64_t channel, int count, const Floats* a,
                                Floats d, Floats* state) {
  const TokenChannels<T> of(args, token, channel, count);
  const T* const b = args.b + token * args.b_stride;
  for (int64_t n = 0; n < args.num_numbers; n++)
    state[n] = power_of_two(of.step * a[n]) * state[n] + unfused(of.input * to_float(b[n]));
  of.put(args, unfused(d * of.x) + outputs(state, args.c + token * args.c_stride, args.num_numbers));
}

// kLanes channels of the only token of a sequence, with their states [kLanes, numbers] as in memory.
template <typename T>
static AGON_INLINE void advance_in_place(const ScanArgs<T>& args, int64_t token, int64_t channel, Floats d, bool is_new,
                                         float* state) {
  const TokenChannels<T> of(args, token, channel, kLanes);
  const T *const b = args.b + token * args.b_stride, *const c = args.c + token * args.c_stride;
  const float* const a = args.a + channel * args.num_numbers;
  float steps[kLanes], inputs[kLanes];
  store(steps, of.step);
  store(inputs, of.input);
  Floats parts[kLanes];
  for (int64_t first = 0; first < args.num_numbers; first += kLanes) {
    const Floats factors = load(b + first), readers = load(c + first);
#pragma GCC unroll 4
    for (int lane = 0; lane < kLanes; lane++) {
      float* const numbers = state + lane * args.num_numbers + first;
      const Floats decay = power_of_two(splat(steps[lane]) * load(a + lane * args.num_numbers + first));
      const Floats next = decay * (is_new ? splat(0.0f) : load(numbers)) + unfused(splat(inputs[lane]) * factors);
      store(numbers, next);
      parts[lane] = first == 0 ? next * readers : parts[lane] + next * readers;
    }
  }
  of.put(args, unfused(d * of.x) + sums(parts));
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
        if (tokens.last - tokens.first == 1 && count == kLanes && num_numbers % kLanes == 0) {
          advance_in_place(args, tokens.first, channel, d, args.states.is_new(sequence), held);
          continue;
        }
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
