// A page's tokens are written together: word by word of all its keys, pair by pair of its values.

#include "store.h"

#include <cmath>

namespace agon {

template <typename T>
void norm_and_rotate(const AttentionLayer& layer, const StepRotation& rotation, int64_t row, const T* from,
                     const float* norm, T* to) {
  const int64_t D = layer.head_dim;
  if (norm == nullptr && rotation.cosines == nullptr) {
    std::memcpy(to, from, D * sizeof(T));
    return;
  }
  float head[kMaxHeadDim];
  for (int64_t d = 0; d < D; d += kLanes) store(head + d, load(from + d));
  if (norm != nullptr) {
    Floats squares = splat(0.0f);
    for (int64_t d = 0; d < D; d += kLanes) squares += load(head + d) * load(head + d);
    const float scale = 1.0f / std::sqrt(sum(squares) / float(D) + float(layer.norm_eps));
    for (int64_t d = 0; d < D; d += kLanes) store(head + d, load(head + d) * scale * load(norm + d));
  }
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

template <typename T>
static HeadPart<T> part_of_head(const AttentionArgs<T>& a, int64_t sequence, int64_t token, int64_t kv_head) {
  const AttentionLayer& layer = a.layer;
  const int64_t page = a.table.pages[sequence * a.table.stride + token / layer.page_tokens];
  return head_part(static_cast<T*>(layer.pages) + page * layer.page_stride, kv_head, layer.num_kv_heads,
                   layer.page_tokens, layer.head_dim);
}

template <typename T>
void store_run(const AttentionArgs<T>& a, const PageRun& run, int64_t kv_head) {
  constexpr int64_t G = kGroup<T>, kMost = 16;  // tokens whose keys are turned before they are written
  const AttentionLayer& layer = a.layer;
  const int64_t D = layer.head_dim, words = D / G, row_size = (layer.num_heads + 2 * layer.num_kv_heads) * D;
  const int64_t offset = run.first_token % layer.page_tokens;
  const auto part = part_of_head(a, run.sequence, run.first_token, kv_head);
  // What an earlier owner left behind the context would be multiplied by a weight of zero; a NaN would survive that.
  if (offset == 0) std::memset(part.values, 0, layer.page_tokens * D * sizeof(T));
  const T* key = a.qkv + run.first_row * row_size + (layer.num_heads + kv_head) * D;
  const T* value = key + layer.num_kv_heads * D;
  alignas(64) T turned[kMost * kMaxHeadDim];
  const uint32_t* from = reinterpret_cast<const uint32_t*>(turned);
  for (int64_t first = 0; first < run.count; first += kMost) {
    const int64_t count = std::min(kMost, run.count - first);
    for (int64_t t = 0; t < count; t++)
      norm_and_rotate(layer, a.rotation, run.first_row + first + t, key + (first + t) * row_size, layer.key_norm,
                      turned + t * D);
    uint32_t* to = reinterpret_cast<uint32_t*>(part.keys) + offset + first;
    for (int64_t w = 0; w < words; w++)
      for (int64_t t = 0; t < count; t++) to[w * layer.page_tokens + t] = from[t * words + w];
  }
  for (int64_t t = 0; t < run.count; t++, value += row_size) {
    T* to = part.values + (offset + t) / G * D * G + (offset + t) % G;
    if (G == 1) {
      std::memcpy(to, value, D * sizeof(T));
    } else if ((offset + t) % G == 0 && t + 1 < run.count) {  // a pair of tokens: whole words
      const T* second = value + row_size;
      for (int64_t d = 0; d < D; d++) {
        to[2 * d] = value[d];
        to[2 * d + 1] = second[d];
      }
      t++;
      value += row_size;
    } else {
      for (int64_t d = 0; d < D; d++) to[d * G] = value[d];
    }
  }
}

template <typename T>
void fetch_place(const AttentionArgs<T>& a, int64_t sequence, int64_t token, int64_t kv_head) {
  constexpr int64_t G = kGroup<T>;
  const AttentionLayer& layer = a.layer;
  const int64_t D = layer.head_dim, offset = token % layer.page_tokens;
  const auto part = part_of_head(a, sequence, token, kv_head);
  for (int64_t d = 0; d < D; d += G) __builtin_prefetch(part.keys + d * layer.page_tokens + offset * G, 1, 2);
  for (int64_t d = 0; d < D * G; d += 64 / int64_t(sizeof(T)))
    __builtin_prefetch(part.values + offset / G * D * G + d, 1, 2);
}

#define AGON_INSTANTIATE(T)                                                                                       \
  template void norm_and_rotate(const AttentionLayer&, const StepRotation&, int64_t, const T*, const float*, T*); \
  template void store_run(const AttentionArgs<T>&, const PageRun&, int64_t);                                      \
  template void fetch_place(const AttentionArgs<T>&, int64_t, int64_t, int64_t);
AGON_INSTANTIATE(float)
AGON_INSTANTIATE(bf16)

}  // namespace agon
