// Samples one token for each row of scores: the inverse of the cumulative distribution at one uniform number, after
// top-k, top-p and min-p, in that order, with the meaning that engine/sampling/filters.py defines: each filter keeps
// all tokens up to some distance from the likeliest one, so tokens with equal scores are kept or dropped together.
// Nothing is sorted.
//
// One thread computes a row, in one order: the row's token does not depend on other rows or the number of threads.

#include <algorithm>
#include <cmath>
#include <vector>

#include "threads.h"
#include "vec.h"

namespace agon {

// Sampling parameters of one row.
struct DrawRow {
  float temperature;  // above 0
  int64_t top_k;  // 0: off
  float top_p;    // 1: off
  float min_p;    // 0: off
  double number;  // uniform random number in [0, 1)
};

constexpr int64_t kSumBlock = 1024;  // masses are summed in float within a block, in double across blocks

// A token during the search for a limit: its distance from the best score and its mass exp(-distance).
struct Candidate {
  float distance, mass;
};

// The largest distance of a kept token: the weights of all tokens nearer than it sum to less than `needed`. weight(c):
// 1 for top-k, the mass for top-p. Radix selection: distances are not negative, so their bit patterns have the same
// order; 12, 10 and 10 bits are decided at a time, from the highest on.
template <typename Weight>
static float reach(std::vector<Candidate> left, double needed, const Weight& weight) {
  uint32_t found = 0;
  double before = 0.0;
  for (const int shift : {20, 10, 0}) {
    const uint32_t mask = shift == 20 ? 0xfff : 0x3ff;
    const auto bin_of = [&](const Candidate& c) {
      uint32_t bits;
      std::memcpy(&bits, &c.distance, 4);
      return bits >> shift & mask;
    };
    std::vector<double> weights(mask + 1, 0.0);
    std::vector<uint8_t> is_used(mask + 1, 0);
    for (const Candidate& c : left) {
      weights[bin_of(c)] += weight(c);
      is_used[bin_of(c)] = 1;
    }
    uint32_t chosen = 0;
    double up_to = before;
    for (uint32_t bin = 0; bin <= mask && up_to < needed; bin++) {
      if (!is_used[bin]) continue;
      chosen = bin;
      before = up_to;
      up_to += weights[bin];
    }
    found |= chosen << shift;
    left.erase(std::remove_if(left.begin(), left.end(), [&](const Candidate& c) { return bin_of(c) != chosen; }),
               left.end());
  }
  float distance;
  std::memcpy(&distance, &found, 4);
  return distance;
}

// Samples rows of `size` scores; keeps its memory from row to row. Each thread has its own.
class Drawing {
 public:
  explicit Drawing(int64_t size)
      : size_(size), distances_((size + kSumBlock - 1) / kSumBlock * kSumBlock, INFINITY), masses_(distances_.size()) {}

  // Token id sampled from scores [size].
  template <typename T>
  int64_t draw(const T* scores, const DrawRow& row) {
    measure(scores, row.temperature);
    float limit = INFINITY;
    if (row.top_k > 0 && row.top_k < size_)
      limit = reach(within(limit), double(row.top_k), [](const Candidate&) { return 1.0; });
    if (row.top_p < 1.0f) {
      double total = 0.0;
      const auto kept = within(limit);
      for (const Candidate& c : kept) total += c.mass;
      limit = std::min(limit, reach(kept, double(row.top_p) * total, [](const Candidate& c) { return c.mass; }));
    }
    if (row.min_p > 0.0f) limit = std::min(limit, -std::log(row.min_p));
    return pick(limit, row.number);
  }

 private:
  // Fills distances (best score - score) / temperature, and masses exp(-distance).
  template <typename T>
  void measure(const T* scores, float temperature) {
    const int64_t whole = size_ / kLanes * kLanes;
    Floats highest = splat(-INFINITY);
    for (int64_t i = 0; i < whole; i += kLanes) highest = max(load(scores + i), highest);
    float best = largest(highest);
    for (int64_t i = whole; i < size_; i++) best = std::max(best, to_float(scores[i]));
    for (int64_t i = 0; i < whole; i += kLanes) store(distances_.data() + i, (best - load(scores + i)) / temperature);
    for (int64_t i = whole; i < size_; i++) distances_[i] = (best - to_float(scores[i])) / temperature;
    for (size_t i = 0; i < masses_.size(); i += kLanes) store(masses_.data() + i, exp(-load(distances_.data() + i)));
  }

  // Tokens with distance <= limit.
  std::vector<Candidate> within(float limit) const {
    std::vector<Candidate> kept;
    kept.reserve(size_);
    for (int64_t i = 0; i < size_; i++)
      if (distances_[i] <= limit) kept.push_back({distances_[i], masses_[i]});
    return kept;
  }

  // The first token at which the cumulative mass of tokens within the limit exceeds number * their whole mass.
  int64_t pick(float limit, double number) {
    const int64_t num_blocks = masses_.size() / kSumBlock;
    sums_.resize(num_blocks);
    double total = 0.0;
    int64_t last_block = 0;  // the last block with any mass
    for (int64_t b = 0; b < num_blocks; b++) {
      Floats kept = splat(0.0f);
      for (int64_t i = b * kSumBlock; i < (b + 1) * kSumBlock; i += kLanes) {
        const Floats mass = load(masses_.data() + i);
        kept += load(distances_.data() + i) <= limit ? mass : splat(0.0f);
      }
      total += sums_[b] = sum(kept);
      if (sums_[b] > 0.0) last_block = b;
    }
    const double target = number * total;
    int64_t block = 0, last = 0;
    double before = 0.0;
    while (block < last_block && before + sums_[block] <= target) before += sums_[block++];
    for (int64_t i = block * kSumBlock; i < std::min(size_, (block + 1) * kSumBlock); i++) {
      if (!(distances_[i] <= limit) || masses_[i] == 0.0f) continue;
      before += masses_[i];
      last = i;
      if (before > target) break;
    }
    return last;  // if, by rounding, no token passes the target: the block's last token with any mass
  }

  const int64_t size_;
  std::vector<float> distances_, masses_;  // padded to whole blocks with infinity and zero
  std::vector<double> sums_;
};

}  // namespace agon

extern "C" {

// agon_draw_{f32,bf16}: token_ids[i] is sampled from row index[i] of scores (rows `stride` elements apart, `size`
// scores each) with the parameters of element i of the other arrays, [num_rows] each. Called by CppOperators.draw
// (engine/kernels/cpu/operators.py).
#define AGON_DRAW(suffix, T)                                                                                         \
  void agon_draw_##suffix(const T* scores, int64_t stride, const int64_t* index, const float* temperature,          \
                          const int64_t* top_k, const float* top_p, const float* min_p, const double* number,       \
                          int64_t* token_ids, int64_t num_rows, int64_t size, int num_threads) {                    \
    agon::with_team(int(std::min<int64_t>(num_threads, num_rows)), [&](agon::Team& team) {                          \
      agon::Drawing drawing(size);                                                                                  \
      team.each(num_rows, [&](int64_t i, int64_t) {                                                                 \
        token_ids[i] =                                                                                              \
            drawing.draw(scores + index[i] * stride, {temperature[i], top_k[i], top_p[i], min_p[i], number[i]});    \
      });                                                                                                           \
    });                                                                                                             \
  }
AGON_DRAW(f32, float)
AGON_DRAW(bf16, agon::bf16)
}
