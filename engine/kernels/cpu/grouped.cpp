// Products with quantised weights. Codes lie in the panels of panels.h. Codes of 8 bits: a byte each, G = 4. Codes of 4
// bits: byte j of four holds the codes of inputs j (lower half) and j + 4 of eight, so that one load brings eight inputs
// of kLanes outputs, and both halves are unpacked in registers. Codes of 5 and 6 bits: words of their lower four bits
// like these, and then a word of their upper bits, whose byte j holds those of inputs j, j + 4, j + 8 ..., lowest first;
// here each word of kLanes outputs is one vector.
//
// Every output is one chain of additions over the blocks in order, for any number of rows: a row's result does not
// depend on the other rows.

#include "grouped.h"

#include <vector>

#include "panels.h"

namespace agon {

struct GroupedArgs {
  const int8_t* x;
  int64_t x_stride;
  const uint8_t* packed;
  int64_t num_rows, num_outputs;
  const GroupedWeights* weights;
  const RowBlock* blocks;
  int64_t depth, block_steps, num_blocks, blocks_per_group, num_groups;
  Words book[kLanes == 4 ? 1 : kLanes / 4];  // the code book in every quarter of a vector
};

// What the lower and the upper codes of bytes stand for.
template <bool kHasBook>
static AGON_INLINE Words values_of(const GroupedArgs& a, Words codes) {
  if constexpr (!kHasBook) return codes;
#if defined(__AVX512BW__)
  return (Words)_mm512_shuffle_epi8(load_as<__m512i>(a.book), (__m512i)codes);
#elif defined(__AVX2__)
  return (Words)_mm256_shuffle_epi8(load_as<__m256i>(a.book), (__m256i)codes);
#else
  uint8_t book[16], bytes[sizeof codes];
  std::memcpy(book, a.book, sizeof book);
  std::memcpy(bytes, &codes, sizeof codes);
  for (uint8_t& byte : bytes) byte = book[byte];
  return load_as<Words>(bytes);
#endif
}

// Words of an output that a step takes, and how many of them hold lower (or all) bits.
constexpr int low_words(int bits) { return bits == 5 ? 4 : bits == 6 ? 2 : 1; }
constexpr int words_of(int bits) { return low_words(bits) + (bits == 5 || bits == 6); }
constexpr int inputs_of(int bits) { return words_of(bits) * 32 / bits; }

// The upper bits of four inputs, the part-th ones of a step, where they belong in a byte.
template <int kBits>
static AGON_INLINE Words upper_bits(Words high, int part) {
  const int shift = 4 - part * (kBits - 4);
  return (shift >= 0 ? high << shift : high >> -shift) & splat_word(kBits == 5 ? 0x10101010u : 0x30303030u);
}

// Weights of kBits, as panels.h wants a kind of products.
template <int kBits, bool kHasBook>
struct Grouped {
  using Args = GroupedArgs;
  using Weight = uint8_t;
  using Sum = Ints;
  using Total = Floats;
  static constexpr int kGroup = 4 * words_of(kBits);
  static constexpr int kInputs = inputs_of(kBits);
  static constexpr bool kHasBlocks = true;
  static constexpr int kTileRows = kLanes == 16 ? 8 : 5;
  static int64_t depth(const Args& a) { return a.depth; }
  static int64_t block_steps(const Args& a) { return a.block_steps; }

  template <int kRows, int kWidth>
  static AGON_INLINE void begin(Sum (&sums)[kRows][kWidth], const Args& a, int64_t row, int64_t block) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++) {
      const Ints start = Ints{} + a.blocks[(row + r) * a.num_blocks + block].start;
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; v++) sums[r][v] = start;
    }
  }

  template <int kRows, int kWidth>
  static AGON_INLINE void step(Sum (&sums)[kRows][kWidth], const Args& a, const int8_t* x, int64_t x_stride,
                               const uint8_t* const* weights) {
    constexpr int kLow = low_words(kBits), kHalves = kBits == 8 ? 1 : 2;
    Words codes[kWidth], values[kWidth];
#pragma GCC unroll 8
    for (int part = 0; part < kLow * kHalves; part++) {
      const int word = part / kHalves, half = part % kHalves;
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; v++) {
        if (half == 0) codes[v] = load_as<Words>(weights[v] + word * 4 * kLanes);
        values[v] = kBits == 8 ? codes[v]
                               : values_of<kHasBook>(a, (half ? codes[v] >> 4 : codes[v]) & splat_word(0x0f0f0f0fu));
        if constexpr (words_of(kBits) > kLow)
          values[v] |= upper_bits<kBits>(load_as<Words>(weights[v] + kLow * 4 * kLanes), part);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; r++) {
        const Words input = splat_word_at(x + r * x_stride + 4 * part);
#pragma GCC unroll 4
        for (int v = 0; v < kWidth; v++) sums[r][v] = dot_quads(sums[r][v], values[v], input);
      }
    }
  }

  // A block's sums are below 2^24 in magnitude, which floats hold exactly.
  template <int kRows, int kWidth>
  static AGON_INLINE void end(Total (&totals)[kRows][kWidth], const Sum (&sums)[kRows][kWidth], const Args& a,
                              int64_t row, int64_t block, int64_t first_output) {
    const GroupedWeights& w = *a.weights;
    const int64_t at = (first_output / kPanel * a.num_groups + block / a.blocks_per_group) * kPanel + first_output % kPanel;
    Floats scales[kWidth];
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; v++) scales[v] = load_half(w.scales + at + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++) {
      const Floats scale = splat(a.blocks[(row + r) * a.num_blocks + block].scale);
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; v++)
        totals[r][v] += __builtin_convertvector(sums[r][v], Floats) * (scales[v] * scale);
    }
    if (w.offsets == nullptr) return;
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; v++) {
      const Floats offsets = load_half(w.offsets + at + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; r++) {
        const RowBlock& b = a.blocks[(row + r) * a.num_blocks + block];
        totals[r][v] -= offsets * splat(b.scale * float(b.start));
      }
    }
  }

  static AGON_INLINE Floats finish(const Args& a, Total total, int64_t, int64_t output) {
    return total * load(a.weights->factors + output);
  }
};

template <typename T>
static Target<T> target_of(const GroupedProduct<T>& p) { return {p.bias, p.y, p.y_stride}; }

template <typename T>
static GroupedArgs args_of(const GroupedProduct<T>& p) {
  const GroupedWeights& w = *p.weights;
  GroupedArgs a{p.bytes, w.num_columns, w.packed, p.num_rows, p.num_outputs, &w, p.blocks};
  a.depth = w.bytes_per_output();
  a.block_steps = w.block / inputs_of(int(w.bits));
  a.num_blocks = w.num_blocks();
  a.blocks_per_group = w.group / w.block;
  a.num_groups = w.num_columns / w.group;
  for (size_t i = 0; w.book != nullptr && i < sizeof a.book; i += 16)
    std::memcpy(reinterpret_cast<uint8_t*>(a.book) + i, w.book, 16);
  return a;
}

template <typename T>
void multiply_grouped(const GroupedProduct<T>* products, int64_t count, Team& team, const Activated<T>* activated) {
  if (count == 0) return;
  const GroupedWeights& w = *products->weights;
  if (w.bits == 8) return multiply_shares<Grouped<8, false>>(products, count, team, activated);
  if (w.bits == 6) return multiply_shares<Grouped<6, false>>(products, count, team, activated);
  if (w.bits == 5) return multiply_shares<Grouped<5, false>>(products, count, team, activated);
  if (w.book == nullptr) return multiply_shares<Grouped<4, false>>(products, count, team, activated);
  multiply_shares<Grouped<4, true>>(products, count, team, activated);
}

// quantize_blocks() for one block of a row; count: its inputs, at most w.block, behind which columns are zero.
template <typename T>
static RowBlock quantize_block(const GroupedWeights& w, const T* x, const int32_t* order, int8_t* bytes, int64_t count) {
  float values[kMostBlock + kLanes] = {};
  if (order != nullptr)
    for (int64_t i = 0; i < count; i++) values[i] = order[i] < 0 ? 0.0f : to_float(x[order[i]]);
  else
    for (int64_t i = 0; i < count; i++) values[i] = to_float(x[i]);
  Floats most{};
  for (int64_t i = 0; i < count; i += kLanes) {
    const Floats v = load(values + i);
    most = max(most, max(v, -v));
  }
  const float magnitude = largest(most), scale = magnitude / 127.0f;
  const float inverse = scale > 1e-35f ? 1.0f / scale : 0.0f;  // so small a block is zero; 1 / scale could overflow
  int8_t rounded[kMostBlock + kLanes];
  for (int64_t i = 0; i < w.block; i += kLanes) store(rounded + i, load(values + i) * inverse);
  int32_t total = 0;
  for (int64_t i = 0; i < w.block; i++) total += rounded[i];
  std::memcpy(bytes, rounded, w.block);
  return {scale, int32_t(-w.zero) * total};
}

template <typename T>
void quantize_row_blocks(const GroupedWeights& w, const T* x, int8_t* bytes, RowBlock* blocks) {
  const int64_t num_blocks = w.num_blocks();
  for (int64_t b = 0; b < num_blocks; b++) {
    const int64_t first = b * w.block;
    const int64_t count = w.order == nullptr ? std::min(w.block, w.num_inputs - first) : w.block;
    blocks[b] = w.order == nullptr ? quantize_block(w, x + first, nullptr, bytes + first, count)
                                   : quantize_block(w, x, w.order + first, bytes + first, count);
  }
}

template <typename T>
void quantize_blocks(const GroupedWeights& w, const T* x, int64_t x_stride, int8_t* bytes, RowBlock* blocks,
                     int64_t num_rows, Team& team) {
  team.each(num_rows, [&](int64_t row, int64_t) {
    quantize_row_blocks(w, x + row * x_stride, bytes + row * w.num_columns, blocks + row * w.num_blocks());
  });
}

// The weights of these outputs, [rows, inputs] in the order of the inputs: embeddings from a tied output head.
template <typename T>
static void unpack_outputs(const GroupedWeights& w, const int64_t* outputs, T* rows, int64_t num_rows, int num_threads) {
  const int bits = int(w.bits), step = inputs_of(bits), words = words_of(bits), low = low_words(bits);
  const int64_t num_groups = w.num_columns / w.group;
  parallel_for(num_rows, num_rows < 32 ? 1 : num_threads, [&](int64_t row) {
    const int64_t output = outputs[row], lane = output % kLanes;
    const uint8_t* first = w.packed + output_at(output - lane, w.bytes_per_output(), 4 * words) + 4 * lane;
    const float factor = w.factors[output];
    for (int64_t g = 0; g < num_groups; g++) {
      const int64_t at = (output / kPanel * num_groups + g) * kPanel + output % kPanel - lane;
      const float scale = load_half(w.scales + at)[lane];
      const float shift = w.offsets == nullptr ? 0.0f : float(w.zero) * load_half(w.offsets + at)[lane];
      for (int64_t column = g * w.group; column < (g + 1) * w.group; column++) {
        const int64_t input = w.order == nullptr ? column : w.order[column];
        if (input < 0 || input >= w.num_inputs) continue;
        const uint8_t* codes = first + column / step * words * 4 * kStrip * kLanes;
        const int part = int(column % step) / 4, j = int(column % 4);
        int code = bits == 8 ? codes[j] : codes[part / 2 * 4 * kLanes + j] >> part % 2 * 4 & 15;
        if (words > low) code |= (codes[low * 4 * kLanes + j] >> part * (bits - 4) & ((1 << (bits - 4)) - 1)) << 4;
        const int value = w.book == nullptr ? code : w.book[code];
        store_one(rows + row * w.num_inputs + input, factor * (scale * float(value - int(w.zero)) + shift));
      }
    }
  });
}

#define AGON_INSTANTIATE(T)                                                                                    \
  template void multiply_grouped(const GroupedProduct<T>*, int64_t, Team&, const Activated<T>*);               \
  template void quantize_row_blocks(const GroupedWeights&, const T*, int8_t*, RowBlock*);                      \
  template void quantize_blocks(const GroupedWeights&, const T*, int64_t, int8_t*, RowBlock*, int64_t, Team&);
AGON_INSTANTIATE(float)
AGON_INSTANTIATE(bf16)

}  // namespace agon

extern "C" {

// Codes [out, columns], a byte each -> whole panels. num_columns: a multiple of inputs_of(bits). Called by pack_grouped (engine/kernels/cpu/grouped_weights.py).
void agon_pack_grouped(const uint8_t* codes, uint8_t* packed, int64_t num_outputs, int64_t num_columns, int64_t bits,
                       int num_threads) {
  using namespace agon;
  const int64_t depth = num_columns * bits / 8, step = inputs_of(int(bits)), words = words_of(int(bits));
  const int64_t low = low_words(int(bits));
  parallel_for(panels_for(num_outputs), num_threads, [&](int64_t p) {
    for (int64_t output = p * kPanel; output < (p + 1) * kPanel; output++) {
      const int64_t lane = output % kLanes;
      uint8_t* first = packed + output_at(output - lane, depth, 4 * words) + 4 * lane;
      for (int64_t k = 0; k < num_columns; k += step) {
        uint8_t* to = first + k / step * words * 4 * kStrip * kLanes;
        const uint8_t* from = codes + output * num_columns + k;
        for (int64_t i = 0; i < 4 * words; i++) {
          const int64_t word = i / 4, j = i % 4;
          uint8_t byte = 0;
          if (output >= num_outputs) byte = 0;
          else if (bits == 8) byte = from[j];
          else if (word < low) byte = uint8_t((from[8 * word + j] & 15) | from[8 * word + 4 + j] << 4);
          else
            for (int64_t part = 0; part < 2 * low; part++) byte |= from[4 * part + j] >> 4 << part * (bits - 4);
          to[word * 4 * kLanes + j] = byte;
        }
      }
    }
  });
}

// For float and bfloat16 rows:
//   agon_linear_grouped_*  x [rows, in] times quantised weights -> y [rows, out]; bias [out] or null. Called by
//                          CppGroupedLinear (engine/kernels/cpu/functions.py).
//   agon_unpack_grouped_*  outputs [rows] -> rows [rows, in] of the weights. Called by CppOperators.tied_embedding.
#define AGON_LINEAR_GROUPED(suffix, T)                                                                             \
  void agon_unpack_grouped_##suffix(const agon::GroupedWeights* w, const int64_t* outputs, T* rows, int64_t num_rows, \
                                    int num_threads) {                                                             \
    agon::unpack_outputs<T>(*w, outputs, rows, num_rows, num_threads);                                             \
  }                                                                                                                \
  void agon_linear_grouped_##suffix(const T* x, int64_t x_stride, const agon::GroupedWeights* w, const T* bias, T* y, \
                                    int64_t y_stride, int64_t num_rows, int64_t num_outputs, int num_threads) {    \
    std::vector<int8_t> bytes(num_rows * w->num_columns);                                                          \
    std::vector<agon::RowBlock> blocks(num_rows * w->num_blocks());                                                \
    const agon::GroupedProduct<T> product{w, bytes.data(), blocks.data(), bias, y, y_stride, num_rows, num_outputs}; \
    agon::with_team(num_threads, [&](agon::Team& team) {                                                           \
      agon::quantize_blocks<T>(*w, x, x_stride, bytes.data(), blocks.data(), num_rows, team);                      \
      agon::multiply_grouped<T>(&product, 1, team);                                                                \
    });                                                                                                            \
  }
AGON_LINEAR_GROUPED(f32, float)
AGON_LINEAR_GROUPED(bf16, agon::bf16)
}
