// Convolution over time of recurrent layers, each channel by itself, on states in pages. A thread computes some channels
// for all tokens of all sequences, so a token's result depends neither on other sequences nor on steps or threads.

#include <algorithm>

#include "states.h"
#include "threads.h"
#include "vec.h"

namespace agon {

// Channels of one work item: so many that a row is read and written in one run of cache lines, and so few that the rows
// of all taps stay in the first cache level.
constexpr int64_t kConvChannels = 256;

// Rows of type T, strided by channels unless there is a stride.
template <typename T>
struct ConvArgs {
  const T* x;  // [tokens, channels]
  int64_t x_stride;
  const T* taps;  // [taps, channels]; the last one is for the token itself
  const T* bias;  // [channels] or null
  States<T> states;  // [taps - 1, channels]: the last inputs
  T* y;  // [tokens, channels]
  int64_t num_channels, num_taps;
  bool has_silu;
};

// The first `count` elements, as load_part and store_part, but at full speed where they fill a vector.
template <typename T>
static AGON_INLINE Floats load_some(const T* from, int count) {
  return count == kLanes ? load(from) : load_part(from, count);
}
template <typename T>
static AGON_INLINE void store_some(T* to, Floats v, int count) {
  if (count == kLanes) store(to, v);
  else store_part(to, v, count);
}

// `count` channels, at most one vector, of one token. state: null if the sequence begins.
template <typename T>
static AGON_INLINE void convolve(const ConvArgs<T>& a, const T* state, Range tokens, int64_t token, int64_t channel,
                                 int count) {
  const int64_t num_old = a.num_taps - 1;
  const T* const taps = a.taps + channel;
  Floats total = a.bias == nullptr ? splat(0.0f) : load_some(a.bias + channel, count);
  const auto add = [&](const T* input, int64_t k) {
    total += load_some(input, count) * load_some(taps + k * a.num_channels, count);
  };
  int64_t k = 0;
  for (int64_t from = token - num_old; from < tokens.first; from++, k++)  // rows before those of the step
    if (state != nullptr) add(state + (num_old + from - tokens.first) * a.num_channels + channel, k);
  for (const T* input = a.x + (token - num_old + k) * a.x_stride + channel; k < a.num_taps; k++, input += a.x_stride)
    add(input, k);
  if (a.has_silu) total = silu(total);
  store_some(a.y + token * a.num_channels + channel, total, count);
}

// The state becomes the last inputs, for channels [first, last).
template <typename T>
static void keep_last(const ConvArgs<T>& a, T* state, bool is_new, Range tokens, int64_t first, int64_t last) {
  const int64_t num_old = a.num_taps - 1;
  for (int64_t k = 0; k < num_old; k++) {  // upwards: places that are read have not been written
    const int64_t from = tokens.last - num_old + k;
    T* const to = state + k * a.num_channels;
    if (from >= tokens.first) std::copy(a.x + from * a.x_stride + first, a.x + from * a.x_stride + last, to + first);
    else if (is_new) std::fill(to + first, to + last, T(0));
    else {
      const T* const old = state + (num_old + from - tokens.first) * a.num_channels;
      std::copy(old + first, old + last, to + first);
    }
  }
}

constexpr int64_t kAhead = 4;      // sequences whose states are prefetched
constexpr int64_t kRowsAhead = 8;  // rows of a prompt that are prefetched, because they lie far apart

template <typename T>
static void causal_conv(const ConvArgs<T>& a, Team& team) {
  team.each((a.num_channels + kConvChannels - 1) / kConvChannels, [&](int64_t item, int64_t) {
    const int64_t first = item * kConvChannels, last = std::min(first + kConvChannels, a.num_channels);
    for (int64_t sequence = 0; sequence < a.states.num_sequences; sequence++) {
      for (int64_t k = 0; k + 1 < a.num_taps; k++)
        a.states.fetch(sequence + kAhead, k * a.num_channels + first, last - first);
      const Range tokens = a.states.tokens(sequence);
      T* const state = a.states.state(sequence);
      if (state == nullptr) {
        for (int64_t token = tokens.first; token < tokens.last; token++)
          std::fill(a.y + token * a.num_channels + first, a.y + token * a.num_channels + last, T(0));
        continue;
      }
      const bool is_new = a.states.is_new(sequence);
      const T* const old = is_new ? nullptr : state;
      for (int64_t token = tokens.first; token < tokens.last; token++) {
        int64_t channel = first;
        const T* const ahead = a.x + std::min(token + kRowsAhead, tokens.last - 1) * a.x_stride;
        for (; channel + kLanes <= last; channel += kLanes) {
          __builtin_prefetch(ahead + channel);
          convolve(a, old, tokens, token, channel, kLanes);
        }
        if (channel < last) convolve(a, old, tokens, token, channel, int(last - channel));
      }
      keep_last(a, state, is_new, tokens, first, last);
    }
  });
}

}  // namespace agon

extern "C" {

// agon_causal_conv_{f32,bf16}: for Python (CppStateKernels in engine/kernels/cpu/state_kernels.py).
#define AGON_CAUSAL_CONV(suffix, T)                                                                                   \
  void agon_causal_conv_##suffix(const T* x, int64_t x_stride, const T* taps, const T* bias, T* pages,                \
                                 int64_t page_stride, const int64_t* page_ids, const int32_t* starts,                 \
                                 const int32_t* query_starts, int64_t num_sequences, T* y, int64_t num_channels,      \
                                 int64_t num_taps, int64_t has_silu, int num_threads) {                               \
    const agon::States<T> states{pages, page_stride, page_ids, starts, query_starts, num_sequences};                  \
    /* below some size, starting the threads costs more than they save */                                             \
    agon::with_team(states.num_tokens() * num_channels < (1 << 14) ? 1 : num_threads, [&](agon::Team& team) {         \
      agon::causal_conv<T>({x, x_stride, taps, bias, states, y, num_channels, num_taps, has_silu != 0}, team);        \
    });                                                                                                               \
  }
AGON_CAUSAL_CONV(f32, float)
AGON_CAUSAL_CONV(bf16, agon::bf16)
}
