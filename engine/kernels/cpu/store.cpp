// Tokens of a page are stored together: keys by groups of channels for all tokens, values by pairs of tokens.

#include "store.h"

#include <cmath>
#include <type_traits>

namespace agon {

// Divides head [D] by its root mean square, and multiplies it by weights [D] unless they are null.
static void normalize(float* head, int64_t head_dim, float eps, const float* weights) {
  Floats squares = splat(0.0f);
  for (int64_t d = 0; d < head_dim; d += kLanes) squares += load(head + d) * load(head + d);
  const float scale = 1.0f / std::sqrt(sum(squares) / float(head_dim) + eps);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const Floats x = load(head + d) * scale;
    store(head + d, weights == nullptr ? x : x * load(weights + d));
  }
}

template <typename T, typename To>
void norm_and_rotate(const AttentionLayer& layer, const StepRotation& rotation, int64_t row, const T* from,
                     const float* norm, To* to) {
  const int64_t D = layer.head_dim;
  if (std::is_same_v<T, To> && norm == nullptr && rotation.cosines == nullptr) {
    std::memcpy(to, from, D * sizeof(T));
    return;
  }
  float head[kMaxHeadDim];
  for (int64_t d = 0; d < D; d += kLanes) store(head + d, load(from + d));
  if (norm != nullptr) normalize(head, D, float(layer.norm_eps), norm);
  if (rotation.cosines != nullptr) {
    const int64_t half = rotation.size / 2;
    const float *cosines = rotation.cosines + row * half, *sines = rotation.sines + row * half;
    int64_t i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const Floats x = load(head + i), y = load(head + half + i), c = load(cosines + i), s = load(sines + i);
      store(head + i, x * c - y * s);
      store(head + half + i, y * c + x * s);
    }
    for (; i < half; i++) {
      const float x = head[i], y = head[half + i];
      head[i] = x * cosines[i] - y * sines[i];
      head[half + i] = y * cosines[i] + x * sines[i];
    }
  }
  for (int64_t d = 0; d < D; d += kLanes) store(to + d, load(head + d));
}

// A value head `from` [D], normalised if the layer does that -> to [D].
template <typename T, typename To>
static void norm_value(const AttentionLayer& layer, const T* from, To* to) {
  float head[kMaxHeadDim];
  for (int64_t d = 0; d < layer.head_dim; d += kLanes) store(head + d, load(from + d));
  if (layer.normalizes_values) normalize(head, layer.head_dim, float(layer.norm_eps), nullptr);
  for (int64_t d = 0; d < layer.head_dim; d += kLanes) store(to + d, load(head + d));
}

// Quantises from [D] to int8 and returns the scale; the largest magnitude becomes 127 or -127. The same operations in
// the same order as engine/kernels/reference/store_heads.py: equal inputs give equal bytes.
static float to_bytes(const float* from, int64_t head_dim, int8_t* to) {
  Floats peaks = splat(0.0f);
  for (int64_t d = 0; d < head_dim; d += kLanes) peaks = max(peaks, max(load(from + d), -load(from + d)));
  const float scale = largest(peaks) / 127.0f;
  const Floats lowest = splat(-127.0f), highest = splat(127.0f), divisor = splat(scale > 0.0f ? scale : 1.0f);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const Floats x = max(load(from + d) / divisor, lowest);
    store(to + d, x > highest ? highest : x);
  }
  return scale;
}

// Addresses of the key/value head in the page that holds a sequence's token.
template <typename T, typename S>
static HeadPart<S> part_of_head(const AttentionArgs<T>& a, int64_t sequence, int64_t token, int64_t kv_head) {
  const int64_t page = a.table.pages[sequence * a.table.stride + token / a.layer.page_tokens];
  return head_part<S>(a.layer, page, kv_head);
}

// An unsigned integer as wide as G channels of a token: a group is copied as one.
template <typename T, typename S>
using Group = std::conditional_t<kGroup<T> * sizeof(S) == 4, uint32_t,
                                 std::conditional_t<kGroup<T> * sizeof(S) == 2, uint16_t, uint8_t>>;

// keys [count, D] -> the page's keys, for its tokens from offset on.
template <typename T, typename S>
static void store_keys(const AttentionLayer& layer, const S* keys, int64_t count, int64_t offset, S* page) {
  const int64_t num_groups = layer.head_dim / kGroup<T>;
  const auto* from = reinterpret_cast<const Group<T, S>*>(keys);
  auto* to = reinterpret_cast<Group<T, S>*>(page) + offset;
  for (int64_t g = 0; g < num_groups; g++)
    for (int64_t t = 0; t < count; t++) to[g * layer.page_tokens + t] = from[t * num_groups + g];
}

// The same for values; `value` has rows `stride` elements apart.
template <typename T, typename S>
static void store_values(int64_t head_dim, const S* value, int64_t stride, int64_t count, int64_t offset, S* page) {
  constexpr int64_t G = kGroup<T>;
  for (int64_t t = offset; t < offset + count; t++, value += stride) {
    S* to = page + t / G * head_dim * G + t % G;
    if (G == 1) {
      std::memcpy(to, value, head_dim * sizeof(S));
    } else if (t % G == 0 && t + 1 < offset + count) {  // a pair of tokens makes whole words
      const S* second = value + stride;
      for (int64_t d = 0; d < head_dim; d++) {
        to[2 * d] = value[d];
        to[2 * d + 1] = second[d];
      }
      t++;
      value += stride;
    } else {
      for (int64_t d = 0; d < head_dim; d++) to[d * G] = value[d];
    }
  }
}

template <typename T, typename S>
void store_run(const AttentionArgs<T>& a, const PageRun& run, int64_t kv_head) {
  constexpr int64_t kMost = 16;  // tokens whose keys are rotated before they are written
  const AttentionLayer& layer = a.layer;
  const int64_t D = layer.head_dim, row_size = row_elements(layer);
  const int64_t begin = run.first_token % layer.page_tokens;
  const auto part = part_of_head<T, S>(a, run.sequence, run.first_token, kv_head);
  // Values behind the context are multiplied by a weight of zero. What an earlier sequence left there could be NaN, and
  // 0 * NaN is NaN: so a page is cleared when its first token is stored.
  // (Where values are channels of the keys, part.values are the keys.)
  if (begin == 0) {
    std::memset(part.values, 0, layer.page_tokens * D * sizeof(S));
    if constexpr (kHasScales<S>) std::memset(part.value_scales, 0, layer.page_tokens * sizeof(float));
  }
  const T* key = a.qkv + run.first_row * row_size + (layer.num_heads + kv_head) * D;
  const T* value = key + layer.num_kv_heads * D;
  alignas(64) S turned[kMost * kMaxHeadDim];
  for (int64_t first = 0; first < run.count; first += kMost, key += kMost * row_size, value += kMost * row_size) {
    const int64_t count = std::min(kMost, run.count - first), offset = begin + first;
    if constexpr (kHasScales<S>) {
      alignas(64) S values[kMost * kMaxHeadDim];
      float head[kMaxHeadDim];
      for (int64_t t = 0; t < count; t++) {
        norm_and_rotate(layer, a.rotation, run.first_row + first + t, key + t * row_size, layer.key_norm, head);
        part.key_scales[offset + t] = to_bytes(head, D, turned + t * D);
        if (!layer.stores_values) continue;
        norm_value(layer, value + t * row_size, head);
        part.value_scales[offset + t] = to_bytes(head, D, values + t * D);
      }
      if (layer.stores_values) store_values<T, S>(D, values, D, count, offset, part.values);
    } else {
      for (int64_t t = 0; t < count; t++)
        norm_and_rotate(layer, a.rotation, run.first_row + first + t, key + t * row_size, layer.key_norm, turned + t * D);
      if (layer.stores_values && layer.normalizes_values) {
        alignas(64) S values[kMost * kMaxHeadDim];
        for (int64_t t = 0; t < count; t++) norm_value(layer, value + t * row_size, values + t * D);
        store_values<T, S>(D, values, D, count, offset, part.values);
      } else if (layer.stores_values) {
        store_values<T, S>(D, value, row_size, count, offset, part.values);
      }
    }
    store_keys<T, S>(layer, turned, count, offset, part.keys);
  }
}

template <typename T, typename S>
void fetch_place(const AttentionArgs<T>& a, int64_t sequence, int64_t token, int64_t kv_head) {
  constexpr int64_t G = kGroup<T>;
  const AttentionLayer& layer = a.layer;
  const int64_t D = layer.head_dim, offset = token % layer.page_tokens;
  const auto part = part_of_head<T, S>(a, sequence, token, kv_head);
  for (int64_t d = 0; d < D; d += G) __builtin_prefetch(part.keys + d * layer.page_tokens + offset * G, 1, 2);
  for (int64_t d = 0; layer.stores_values && d < D * G; d += 64 / int64_t(sizeof(S)))
    __builtin_prefetch(part.values + offset / G * D * G + d, 1, 2);
  if constexpr (kHasScales<S>) {
    __builtin_prefetch(part.key_scales + offset, 1, 2);
    __builtin_prefetch(part.value_scales + offset, 1, 2);
  }
}

#define AGON_INSTANTIATE(T, S)                                           \
  template void store_run<T, S>(const AttentionArgs<T>&, const PageRun&, int64_t); \
  template void fetch_place<T, S>(const AttentionArgs<T>&, int64_t, int64_t, int64_t);
AGON_INSTANTIATE(float, float)
AGON_INSTANTIATE(float, int8_t)
AGON_INSTANTIATE(bf16, bf16)
AGON_INSTANTIATE(bf16, int8_t)
template void norm_and_rotate(const AttentionLayer&, const StepRotation&, int64_t, const float*, const float*, float*);
template void norm_and_rotate(const AttentionLayer&, const StepRotation&, int64_t, const bf16*, const float*, bf16*);

}  // namespace agon
