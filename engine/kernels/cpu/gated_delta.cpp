// The gated delta rule (Yang et al. 2024) with the gated norm of its output, on states in pages; and Kimi delta attention
// (arXiv 2510.26692), which has a decay for every channel of a key and a sigmoid in place of silu. The contracts are
// StateKernels.gated_delta and channel_delta in engine/kernels/state_kernels.py.
//
// One thread computes a value head of a sequence, block by block of value channels: the channels of a state do not
// depend on each other. A block of the state is copied into a buffer that stays in the first level cache, and a tile of
// tokens advances it, token by token in one order. So a token's bits depend neither on its neighbours, nor on how the
// prompt was split into chunks, nor on the number of threads.

#include <algorithm>
#include <cmath>
#include <vector>

#include "states.h"
#include "threads.h"
#include "vec.h"

namespace agon {

namespace {

// H value heads, G key heads, D channels of a key, V of a value. A stride is the number of elements from one token's row
// to the next; rows without one are contiguous.
template <typename T>
struct DeltaArgs {
  const T* qkv;        // [tokens, 2 G D + H V]: queries, keys, values
  const T* gate;       // [tokens, H V]
  const T* steps;      // [tokens, H], by channel [tokens, H D]: a state decays by exp(rate * softplus(step + step_bias))
  const T* strengths;  // [tokens, H], before the sigmoid
  int64_t qkv_stride, gate_stride, steps_stride, strengths_stride;
  const float *rates, *step_bias;  // [H]; step_bias by channel [H D]
  const float* norm;               // [V]
  States<float> states;            // [H, D, V]
  T* y;                            // [tokens, H V]
  int64_t num_heads, num_key_heads, key_dim, value_dim;
  float eps;
};

constexpr int kVectors = 4;               // of value channels in a block
constexpr int kBlock = kVectors * kLanes;
constexpr int64_t kTile = 32;             // tokens
constexpr float kLengthEps = 1e-6f;

// What a token brings to a value head, beside its value.
struct Token {
  const float* keys;    // [3, D]: key and query as they read a state that has not decayed yet; the key itself
  const float* decays;  // [D], or one for all channels of the key
  float strength, overlap;  // overlap: key times query
};

// The buffers of one thread.
struct Buffers {
  Buffers(int64_t key_dim, int64_t value_dim)
      : state(key_dim * kBlock), keys(kTile * 3 * key_dim), decays(kTile * key_dim), read(kTile * (value_dim + kBlock)) {}

  std::vector<float> state;   // [D, kBlock]
  std::vector<float> keys;    // [tile, 3, D]: Token::keys
  std::vector<float> decays;  // [tile, D]: Token::decays
  std::vector<float> read;    // [tile, V, padded to whole blocks]: what the queries read
  Token tokens[kTile];
};

template <typename T>
AGON_INLINE Floats load_some(const T* from, int64_t n) {
  return n >= kLanes ? load(from) : n > 0 ? load_part(from, int(n)) : splat(0.0f);
}

template <typename T>
AGON_INLINE void store_some(T* to, Floats v, int64_t n) {
  if (n >= kLanes) store(to, v);
  else if (n > 0) store_part(to, v, int(n));
}

// The sum of f(i, n) over all vectors of `size` elements; n: how many elements of vector i are left.
template <typename Part>
AGON_INLINE float sum_of(int64_t size, const Part& part) {
  Floats total = splat(0.0f);
  for (int64_t i = 0; i < size; i += kLanes) total += part(i, size - i);
  return sum(total);
}

// to = scale * x / |x|, both [size].
template <typename T>
AGON_INLINE void unit(float* to, const T* x, int64_t size, float scale) {
  const float squares = sum_of(size, [&](int64_t i, int64_t n) {
    const Floats v = load_some(x + i, n);
    return v * v;
  });
  const Floats factor = splat(scale / std::sqrt(squares + kLengthEps));
  for (int64_t i = 0; i < size; i += kLanes) store_some(to + i, load_some(x + i, size - i) * factor, size - i);
}

template <typename T>
AGON_INLINE void fetch(const T* from, int64_t size) {
  for (int64_t i = 0; i < size; i += 64 / int64_t(sizeof(T))) __builtin_prefetch(from + i);
}

// Prefetches what a value head reads of a token. The rows of a prompt lie too far apart for the processor to foresee.
template <typename T>
void fetch_token(const DeltaArgs<T>& a, int64_t head, int64_t token) {
  const int64_t key_size = a.num_key_heads * a.key_dim;
  const T* const row = a.qkv + token * a.qkv_stride;
  const T* const query = row + head / (a.num_heads / a.num_key_heads) * a.key_dim;
  fetch(query, a.key_dim);
  fetch(query + key_size, a.key_dim);
  fetch(row + 2 * key_size + head * a.value_dim, a.value_dim);
  fetch(a.gate + token * a.gate_stride + head * a.value_dim, a.value_dim);
}

// What a token's key and query read of a block of the state before the token has changed it.
using Reads = Floats[2][kVectors];

AGON_INLINE void clear(Reads& reads) {
  for (auto& row : reads)
    for (auto& column : row) column = splat(0.0f);
}

// The first token of a tile on a block of the state [D, kBlock]; the others read it while it is written.
AGON_INLINE void read_block(const float* state, const Token& token, int64_t key_dim, Reads& reads) {
  clear(reads);
  for (int64_t i = 0; i < key_dim; i++) {
    Floats row[kVectors];
    for (int c = 0; c < kVectors; c++) row[c] = load(state + i * kBlock + c * kLanes);
    add_products(reads, token.keys + i, key_dim, row);
  }
}

// One token on a block of the state: decays it and adds key `added`, which is strength (value - what key reads of it).
// Then the token behind it, if there is one, reads the block: `reads`.
template <bool kByChannel, bool kHasNext>
AGON_INLINE void write_block(float* state, const Token& token, int64_t key_dim, const Floats* added, const Token* next,
                             Reads& reads) {
  if constexpr (kHasNext) clear(reads);
  const float* const keys = token.keys + 2 * key_dim;
  Floats factor = splat(token.decays[0]);
  for (int64_t i = 0; i < key_dim; i++) {
    const Floats key = as_floats(splat_word_at(keys + i));
    if constexpr (kByChannel) factor = as_floats(splat_word_at(token.decays + i));
    Floats row[kVectors];
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; c++) {
      float* const at = state + i * kBlock + c * kLanes;
      row[c] = load(at) * factor + key * added[c];
      store(at, row[c]);
    }
    if constexpr (kHasNext) add_products(reads, next->keys + i, key_dim, row);
  }
}

// The decay of a head's state by one token: decays [1], or [D] by channel.
template <bool kByChannel, typename T>
void find_decays(const DeltaArgs<T>& a, int64_t head, int64_t token, float* decays) {
  const T* const steps = a.steps + token * a.steps_stride;
  if constexpr (kByChannel) {
    const int64_t first = head * a.key_dim;
    for (int64_t i = 0; i < a.key_dim; i += kLanes) {
      const int64_t n = a.key_dim - i;
      const Floats step = softplus(load_some(steps + first + i, n) + load_some(a.step_bias + first + i, n));
      store_some(decays + i, exp(a.rates[head] * step), n);
    }
  } else {
    const float x = to_float(steps[head]) + a.step_bias[head];
    decays[0] = std::exp(a.rates[head] * (x > 20.0f ? x : std::log1p(std::exp(x))));
  }
}

// A tile of tokens for one value head.
template <bool kByChannel, typename T>
void prepare(const DeltaArgs<T>& a, int64_t head, int64_t first, int64_t count, Buffers& to) {
  const int64_t D = a.key_dim, key_head = head / (a.num_heads / a.num_key_heads), key_size = a.num_key_heads * D;
  const float scale = 1.0f / std::sqrt(float(D));
  for (int64_t t = 0; t < count; t++) {
    const T* query = a.qkv + (first + t) * a.qkv_stride + key_head * D;
    float *const keys = to.keys.data() + t * 3 * D, *const queries = keys + D, *const own = queries + D;
    float* const decays = to.decays.data() + t * D;
    unit(own, query + key_size, D, 1.0f);
    unit(queries, query, D, scale);
    find_decays<kByChannel>(a, head, first + t, decays);
    const float overlap =
        sum_of(D, [&](int64_t i, int64_t n) { return load_some(own + i, n) * load_some(queries + i, n); });
    for (int64_t i = 0; i < D; i += kLanes) {
      const int64_t n = D - i;
      const Floats decay = kByChannel ? load_some(decays + i, n) : splat(decays[0]);
      store_some(keys + i, load_some(own + i, n) * decay, n);
      store_some(queries + i, load_some(queries + i, n) * decay, n);
    }
    const float strength = 1.0f / (1.0f + std::exp(-to_float(a.strengths[(first + t) * a.strengths_stride + head])));
    to.tokens[t] = {keys, decays, strength, overlap};
  }
}

// y = norm(read) * silu(gate), or sigmoid(gate); all [V].
template <bool kHasSigmoid, typename T>
void gated_norm(T* y, const float* read, const T* gate, const float* scales, int64_t size, float eps) {
  const float squares = sum_of(size, [&](int64_t i, int64_t n) {
    const Floats v = load_some(read + i, n);
    return v * v;
  });
  const Floats factor = splat(1.0f / std::sqrt(squares / float(size) + eps));
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t n = size - i;
    const Floats z = load_some(gate + i, n);
    const Floats normed = load_some(read + i, n) * factor * load_some(scales + i, n);
    store_some(y + i, normed * (kHasSigmoid ? sigmoid(z) : silu(z)), n);
  }
}

// One value head of one sequence. kByChannel: a decay for every channel of a key, and a sigmoid for the gate (Kimi delta
// attention).
template <bool kByChannel, typename T>
void advance_head(const DeltaArgs<T>& a, int64_t sequence, int64_t head, Buffers& buffers) {
  const Range tokens = a.states.tokens(sequence);
  const int64_t value_dim = a.value_dim, y_stride = a.num_heads * value_dim;
  const int64_t padded = (value_dim + kBlock - 1) / kBlock * kBlock;
  T* const y = a.y + head * value_dim;
  float* const page = a.states.state(sequence);
  if (page == nullptr) {
    for (int64_t t = tokens.first; t < tokens.last; t++) std::fill_n(y + t * y_stride, value_dim, T(0));
    return;
  }
  float* const held = page + head * a.key_dim * value_dim;
  float* const state = buffers.state.data();
  bool is_new = a.states.is_new(sequence);
  for (int64_t first = tokens.first; first < tokens.last; first += kTile, is_new = false) {
    const int64_t count = std::min(kTile, tokens.last - first);
    prepare<kByChannel>(a, head, first, count, buffers);
    for (int64_t block = 0; block < value_dim; block += kBlock) {
      const int64_t width = value_dim - block;
      for (int64_t i = 0; i < a.key_dim; i++)
        for (int c = 0; c < kBlock; c += kLanes)
          store(state + i * kBlock + c, is_new ? splat(0.0f) : load_some(held + i * value_dim + block + c, width - c));
      Reads reads;
      read_block(state, buffers.tokens[0], a.key_dim, reads);
      for (int64_t t = 0; t < count; t++) {
        if (block == 0 && first + kTile + t < tokens.last) fetch_token(a, head, first + kTile + t);
        const T* value = a.qkv + (first + t) * a.qkv_stride + 2 * a.num_key_heads * a.key_dim + head * value_dim + block;
        const Token& token = buffers.tokens[t];
        Floats added[kVectors];
        for (int c = 0; c < kVectors; c++) {
          added[c] = (load_some(value + c * kLanes, width - c * kLanes) - reads[0][c]) * token.strength;
          store(buffers.read.data() + t * padded + block + c * kLanes, reads[1][c] + added[c] * token.overlap);
        }
        if (t + 1 < count) write_block<kByChannel, true>(state, token, a.key_dim, added, &buffers.tokens[t + 1], reads);
        else write_block<kByChannel, false>(state, token, a.key_dim, added, nullptr, reads);
      }
      for (int64_t i = 0; i < a.key_dim; i++)
        for (int c = 0; c < kBlock; c += kLanes)
          store_some(held + i * value_dim + block + c, load(state + i * kBlock + c), width - c);
    }
    for (int64_t t = 0; t < count; t++) {
      const T* gate = a.gate + (first + t) * a.gate_stride + head * value_dim;
      gated_norm<kByChannel>(y + (first + t) * y_stride, buffers.read.data() + t * padded, gate, a.norm, value_dim, a.eps);
    }
  }
}

template <bool kByChannel, typename T>
void gated_delta(const DeltaArgs<T>& a, Team& team) {
  Buffers buffers(a.key_dim, a.value_dim);
  team.each(a.states.num_sequences * a.num_heads,
            [&](int64_t item, int64_t) { advance_head<kByChannel>(a, item / a.num_heads, item % a.num_heads, buffers); });
}

}  // namespace

}  // namespace agon

extern "C" {

// agon_gated_delta_{f32,bf16} and, with decays by channel, agon_channel_delta_{f32,bf16}: for Python (CppStateKernels in
// engine/kernels/cpu/state_kernels.py).
#define AGON_GATED_DELTA(name, kByChannel, suffix, T)                                                                                    \
  void agon_##name##_##suffix(                                                                                      \
      const T* qkv, int64_t qkv_stride, const T* gate, int64_t gate_stride, const T* steps, int64_t steps_stride,      \
      const T* strengths, int64_t strengths_stride, const float* rates, const float* step_bias, const float* norm,     \
      float* pages, int64_t page_stride, const int64_t* page_ids, const int32_t* starts, const int32_t* query_starts,  \
      int64_t num_sequences, T* y, int64_t num_heads, int64_t num_key_heads, int64_t key_dim, int64_t value_dim,       \
      float eps, int num_threads) {                                                                                    \
    const agon::States<float> states{pages, page_stride, page_ids, starts, query_starts, num_sequences};               \
    /* below some size, starting the threads costs more than they save */                                              \
    const bool is_small = states.num_tokens() * num_heads * key_dim * value_dim < (1 << 16);                           \
    agon::with_team(is_small ? 1 : num_threads, [&](agon::Team& team) {                                                \
      agon::gated_delta<kByChannel, T>({qkv, gate, steps, strengths, qkv_stride, gate_stride, steps_stride, strengths_stride,      \
                            rates, step_bias, norm, states, y, num_heads, num_key_heads, key_dim, value_dim, eps},     \
                           team);                                                                                      \
    });                                                                                                                \
  }
AGON_GATED_DELTA(gated_delta, false, f32, float)
AGON_GATED_DELTA(gated_delta, false, bf16, agon::bf16)
AGON_GATED_DELTA(channel_delta, true, f32, float)
AGON_GATED_DELTA(channel_delta, true, bf16, agon::bf16)
}
