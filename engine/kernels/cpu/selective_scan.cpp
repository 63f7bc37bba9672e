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

constexpr int64_t kAhead = 2;  // sequences whose states are prefetched

template <typename T>
static void selective_scan(const ScanArgs<T>& args, Team& team) {
  const int64_t num_numbers = args.num_numbers;
  std::vector<Floats> a(num_numbers), state(num_numbers);
  team.each((args.num_channels + kLanes - 1) / kLanes, [&](int64_t item, int64_t) {
    const int64_t channel = item * kLanes;
    const int count = int(std::min<int64_t>(kLanes, args.num_channels - channel));
    transpose_in(args.a + channel * num_numbers, count, num_numbers, a.data());
    for (Floats& rate : a) rate *= 1.44269504f;  // e^x = 2^(x log2 e); rates are negative
    const Floats d = load_part(args.d + channel, count);
    for (int64_t sequence = 0; sequence < args.states.num_sequences; sequence++) {
      args.states.fetch(sequence + kAhead, channel * num_numbers, count * num_numbers);
      const Range tokens = args.states.tokens(sequence);
      float* const page = args.states.state(sequence);
      if (page == nullptr) {
        for (int64_t token = tokens.first; token < tokens.last; token++)
          std::fill_n(args.y + token * args.num_channels + channel, count, T(0));
        continue;
      }
      float* const held = page + channel * num_numbers;
      if (args.states.is_new(sequence)) std::fill(state.begin(), state.end(), splat(0.0f));
      else transpose_in(held, count, num_numbers, state.data());
      if (count == kLanes)
        for (int64_t t = tokens.first; t < tokens.last; t++)
          advance(args, t, channel, kLanes, a.data(), d, state.data());
      else
        for (int64_t t = tokens.first; t < tokens.last; t++) advance(args, t, channel, count, a.data(), d, state.data());
      transpose_out(state.data(), count, num_numbers, held);
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
