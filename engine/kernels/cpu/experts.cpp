// Mixtures of experts: the choice of experts by a softmax of their scores, and the MLPs of all chosen experts of a step in
// one call, for every kind of weights of linear.h and grouped.h.
//
// Choices, a token and an expert each, are ordered by expert. The rows of a batch of choices are gathered, so that an
// expert's rows are adjacent; the products of all experts are one phase of the team, whose work items are panels of
// weights; and each token adds what its experts gave, in the order of experts. Batches bound the memory of long prompts
// and keep rows in the caches. A product's rows do not depend on each other, so a token's result depends neither on other
// tokens nor on batches.

#include <algorithm>
#include <utility>
#include <vector>

#include "activation.h"
#include "grouped.h"
#include "linear.h"
#include "threads.h"
#include "vec.h"

namespace agon {

// A matrix of an expert, and an expert. Classes in engine/kernels/cpu/experts.py have the same fields in the same order.
struct ExpertMatrix {
  const void* packed;            // panels of T; null if there are `grouped` weights
  const void* bias;              // [outputs] of T; may be null
  const GroupedWeights* grouped;
  int64_t num_inputs, num_outputs;
};
struct Expert {
  ExpertMatrix up, down;  // `up` holds gates and ups if the activation is gated
};

// All experts of a layer; their matrices agree in sizes and in the form of weights. Mixture in
// engine/kernels/cpu/experts.py has the same fields in the same order.
struct Mixture {
  const Expert* experts;
  int64_t num_experts, num_chosen;
  int64_t activation;     // ActivationKind
  int64_t scales_inputs;  // whether weights are factors on inputs instead of outputs
};

namespace {

constexpr int64_t kBatchBytes = 16 << 20;  // of rows of a batch
constexpr int64_t kLeastBatch = 256;       // choices: enough to pay for reading the weights of some expert twice

// Working memory for rows that are inputs of a product.
template <typename T>
struct InputSpace {
  std::vector<T> plain;
  std::vector<float> floats;
  std::vector<int8_t> bytes;
  std::vector<RowBlock> blocks;
};
// That of a batch. It is kept by the calling thread between calls, because page faults would cost more than the work.
template <typename T>
struct ExpertSpace {
  InputSpace<T> inputs, narrow;
  std::vector<T> wide, outputs;
  std::vector<float> totals;
};

template <typename V>
typename V::value_type* grown(V& vector, int64_t size) {
  if (int64_t(vector.size()) < size) vector.resize(size);
  return vector.data();
}

// An expert and its rows in a batch.
struct ExpertRows {
  const Expert* expert;
  Range rows;
};

// Rows of a batch as inputs of the experts' matrices: as they are, or in the form that products take. Form and sizes are
// those of `matrix`.
template <typename T>
class MatrixRows {
 public:
  MatrixRows(const ExpertMatrix& matrix, int64_t count, InputSpace<T>& space) : size_(matrix.num_inputs) {
    plain_ = grown(space.plain, count * size_);
    if (matrix.grouped != nullptr) {
      num_columns_ = matrix.grouped->num_columns, num_blocks_ = matrix.grouped->num_blocks();
      blocks_ = grown(space.blocks, count * num_blocks_);
      bytes_ = grown(space.bytes, count * num_columns_);
    } else if (kWidens<T>) {
      floats_ = grown(space.floats, count * size_);
    }
  }

  bool are_plain() const { return blocks_ == nullptr && floats_ == nullptr; }
  T* plain(int64_t row) const { return plain_ + row * size_; }

  // Brings a plain row, which may lie elsewhere, into the form for that matrix.
  void convert(const ExpertMatrix& matrix, const T* from, int64_t row) const {
    if (blocks_ != nullptr)
      quantize_row_blocks(*matrix.grouped, from, bytes_ + row * num_columns_, blocks_ + row * num_blocks_);
    else if (floats_ != nullptr) widen_row(from, floats_ + row * size_, size_);
    else if (from != plain(row)) std::copy_n(from, size_, plain(row));
  }

  // Their products with the experts' matrices: y [rows, outputs], and activated [rows, activated_size] unless null.
  void multiply(const std::vector<ExpertRows>& parts, ExpertMatrix Expert::* which, T* y, ActivationKind activation,
                T* activated, int64_t activated_size, Team& team) const {
    std::vector<Activated<T>> then;
    for (const ExpertRows& part : parts)
      then.push_back({activation, activated + part.rows.first * activated_size, activated_size});
    const Activated<T>* each = activated == nullptr ? nullptr : then.data();
    if (blocks_ != nullptr) {
      std::vector<GroupedProduct<T>> products;
      for (const auto& [expert, rows] : parts) {
        const ExpertMatrix& m = expert->*which;
        products.push_back({m.grouped, bytes_ + rows.first * num_columns_, blocks_ + rows.first * num_blocks_,
                            static_cast<const T*>(m.bias), y + rows.first * m.num_outputs, m.num_outputs,
                            rows.last - rows.first, m.num_outputs});
      }
      return multiply_grouped(products.data(), int64_t(products.size()), team, each);
    }
    if constexpr (kWidens<T>) multiply_as(parts, which, floats_, y, each, team);
    else multiply_as(parts, which, plain_, y, each, team);
  }

 private:
  template <typename Input>
  void multiply_as(const std::vector<ExpertRows>& parts, ExpertMatrix Expert::* which, const Input* x, T* y,
                   const Activated<T>* each, Team& team) const {
    std::vector<LinearArgs<T, Input>> products;
    for (const auto& [expert, rows] : parts) {
      const ExpertMatrix& m = expert->*which;
      products.push_back({x + rows.first * size_, size_, static_cast<const T*>(m.packed),
                          static_cast<const T*>(m.bias), y + rows.first * m.num_outputs, m.num_outputs,
                          rows.last - rows.first, size_, m.num_outputs});
    }
    multiply_each(products, team, each);
  }

  T* plain_;
  int64_t size_, num_columns_ = 0, num_blocks_ = 0;
  int8_t* bytes_ = nullptr;
  RowBlock* blocks_ = nullptr;
  float* floats_ = nullptr;
};

// One call of agon_mix_experts_*. Plans and working memory are made once, in the constructor, for all threads.
template <typename T>
class Mixing {
 public:
  Mixing(const Mixture& mixture, const T* x, int64_t x_stride, const int32_t* chosen, const float* weights, T* y,
         int64_t num_tokens)
      : mixture_(mixture),
        first_(mixture.experts[0]),
        x_(x),
        x_stride_(x_stride),
        y_(y),
        num_tokens_(num_tokens),
        num_chosen_(mixture.num_chosen),
        num_choices_(num_tokens * num_chosen_),
        fuses_activation_(!is_gated(kind()) || first_.down.num_inputs % kPanel == 0),
        batch_(batch_of(first_, num_choices_)),
        space_(kept_space()),
        inputs_(first_.up, batch_, space_.inputs),
        narrow_(first_.down, batch_, space_.narrow) {
    order(chosen, weights);
    wide_ = grown(space_.wide, batch_ * first_.up.num_outputs);
    outputs_ = grown(space_.outputs, batch_ * first_.down.num_outputs);
    if (batch_ < num_choices_) totals_ = grown(space_.totals, num_tokens * first_.down.num_outputs);
  }

  // All batches; every thread of the team calls it.
  void go(Team& team) const {
    for (int64_t first = 0; first < num_choices_; first += batch_)
      compute({first, std::min(first + batch_, num_choices_)}, team);
  }

 private:
  static ExpertSpace<T>& kept_space() {
    static thread_local ExpertSpace<T> kept;
    return kept;
  }
  static int64_t batch_of(const Expert& e, int64_t num_choices) {
    const int64_t size = e.up.num_inputs + e.up.num_outputs + e.down.num_inputs + e.down.num_outputs;
    return std::min(num_choices, std::max<int64_t>(kLeastBatch, kBatchBytes / (size * int64_t(sizeof(T)))));
  }
  ActivationKind kind() const { return ActivationKind(mixture_.activation); }

  // Sorts the choices by expert.
  void order(const int32_t* chosen, const float* weights) {
    ends_.assign(mixture_.num_experts, 0);
    for (int64_t c = 0; c < num_choices_; c++) ends_[chosen[c]]++;
    int64_t total = 0;
    for (int64_t& end : ends_) total += std::exchange(end, total);  // begins, until all choices are placed
    tokens_.resize(num_choices_), weights_.resize(num_choices_), experts_.resize(num_choices_);
    for (int64_t c = 0; c < num_choices_; c++) {
      const int64_t place = ends_[chosen[c]]++;
      tokens_[place] = int32_t(c / num_chosen_), experts_[place] = chosen[c], weights_[place] = weights[c];
    }
    places_.resize(num_choices_);
    std::vector<int32_t> found(num_tokens_, 0);
    for (int64_t place = 0; place < num_choices_; place++) {
      const int64_t token = tokens_[place];
      places_[token * num_chosen_ + found[token]++] = int32_t(place);
    }
  }

  void compute(Range batch, Team& team) const {
    const std::vector<ExpertRows> parts = parts_of(batch);
    const int64_t size = first_.down.num_inputs;
    gather(batch, team);
    inputs_.multiply(parts, &Expert::up, wide_, kind(), fuses_activation_ ? narrow_.plain(0) : nullptr, size, team);
    if (!fuses_activation_ || !narrow_.are_plain())
      team.each(batch.last - batch.first, [&](int64_t row, int64_t) {
        T* const to = narrow_.plain(row);
        const T* const from = wide_ + row * first_.up.num_outputs;
        if (!fuses_activation_) activate(kind(), from, from + size, to, size);
        narrow_.convert(mixture_.experts[experts_[batch.first + row]].down, to, row);
      });
    narrow_.multiply(parts, &Expert::down, outputs_, kind(), nullptr, 0, team);
    add(batch, team);
  }

  std::vector<ExpertRows> parts_of(Range batch) const {
    std::vector<ExpertRows> parts;
    for (int64_t e = 0; e < mixture_.num_experts; e++) {
      const int64_t first = std::max(e == 0 ? 0 : ends_[e - 1], batch.first), last = std::min(ends_[e], batch.last);
      if (first < last) parts.push_back({mixture_.experts + e, {first - batch.first, last - batch.first}});
    }
    return parts;
  }

  void gather(Range batch, Team& team) const {
    team.each(batch.last - batch.first, [&](int64_t row, int64_t) {
      const int64_t place = batch.first + row;
      const T* from = x_ + tokens_[place] * x_stride_;
      if (mixture_.scales_inputs) {
        T* const scaled = inputs_.plain(row);
        const float weight = weights_[place];
        for (int64_t i = 0; i < first_.up.num_inputs; i++) store_one(scaled + i, to_float(from[i]) * weight);
        from = scaled;
      }
      inputs_.convert(mixture_.experts[experts_[place]].up, from, row);
    });
  }

  // Adds the outputs of a batch to the totals of its tokens; a token whose last choice is among them is done.
  void add(Range batch, Team& team) const {
    const int64_t size = first_.down.num_outputs;
    team.each(num_tokens_, [&](int64_t token, int64_t) {
      const int32_t* const places = places_.data() + token * num_chosen_;
      int64_t first = 0;
      while (first < num_chosen_ && places[first] < batch.first) first++;
      int64_t last = first;
      while (last < num_chosen_ && places[last] < batch.last) last++;
      if (first == last) return;
      T* const y = y_ + token * size;
      float* const totals = totals_ + token * size;
      int64_t i = 0;
      for (; i + kLanes <= size; i += kLanes) {
        Floats total = first == 0 ? splat(0.0f) : load(totals + i);
        for (int64_t c = first; c < last; c++)
          total += weight_of(places[c]) * load(outputs_ + (places[c] - batch.first) * size + i);
        if (last == num_chosen_) store(y + i, total);
        else store(totals + i, total);
      }
      for (; i < size; i++) {
        float total = first == 0 ? 0.0f : totals[i];
        for (int64_t c = first; c < last; c++)
          total += weight_of(places[c]) * to_float(outputs_[(places[c] - batch.first) * size + i]);
        if (last == num_chosen_) store_one(y + i, total);
        else totals[i] = total;
      }
    });
  }

  float weight_of(int64_t place) const { return mixture_.scales_inputs ? 1.0f : weights_[place]; }

  const Mixture& mixture_;
  const Expert& first_;  // sizes and forms are those of all
  const T* const x_;
  const int64_t x_stride_;
  T* const y_;
  const int64_t num_tokens_, num_chosen_, num_choices_;
  const bool fuses_activation_;
  const int64_t batch_;  // most choices of a batch
  ExpertSpace<T>& space_;
  const MatrixRows<T> inputs_, narrow_;  // of a batch: inputs of `up` and of `down`
  // Choices in the order of experts ("places"): token, expert, weight; where those of each expert end; the places of each
  // token's choices, ascending.
  std::vector<int32_t> tokens_, experts_, places_;
  std::vector<float> weights_;
  std::vector<int64_t> ends_;
  T *wide_, *outputs_;       // of a batch: outputs of `up` and of `down`
  float* totals_ = nullptr;  // [tokens, outputs], if there are several batches
};

// The choice of one token: the experts of the highest scores, of equal ones the first, and their probabilities.
// probabilities: space for all experts, padded to whole vectors.
template <typename T>
void choose(const T* scores, int64_t num_experts, int64_t num_chosen, bool sums_to_one, float* probabilities,
            int32_t* chosen, float* weights) {
  for (int64_t c = 0; c < num_chosen; c++) {
    int64_t best = -1;
    for (int64_t e = 0; e < num_experts; e++) {
      if (best >= 0 && !(to_float(scores[e]) > to_float(scores[best]))) continue;
      if (std::find(chosen, chosen + c, int32_t(e)) == chosen + c) best = e;
    }
    chosen[c] = int32_t(best);
  }
  const Floats most = splat(to_float(scores[chosen[0]]));
  float total = 0.0f;
  for (int64_t e = 0; e < num_experts; e += kLanes) {
    const int count = int(std::min<int64_t>(kLanes, num_experts - e));
    store(probabilities + e, exp(load_part(scores + e, count) - most));
    for (int i = 0; i < count; i++) total += probabilities[e + i];
  }
  float share = 0.0f;
  for (int64_t c = 0; c < num_chosen; c++) share += weights[c] = probabilities[chosen[c]] / total;
  for (int64_t c = 0; sums_to_one && c < num_chosen; c++) weights[c] /= share;
}

}  // namespace

}  // namespace agon

extern "C" {

// For CppExperts (engine/kernels/cpu/experts.py):
//   agon_choose_experts_*  scores [tokens, experts] -> chosen [tokens, num_chosen] and weights, the softmax over all
//                          experts, divided by their sum if sums_to_one
//   agon_mix_experts_*     x [tokens, inputs], chosen and weights [tokens, num_chosen] -> y [tokens, outputs]
#define AGON_EXPERTS(suffix, T)                                                                                       \
  void agon_choose_experts_##suffix(const T* scores, int64_t stride, int32_t* chosen, float* weights,                 \
                                    int64_t num_tokens, int64_t num_experts, int64_t num_chosen, int64_t sums_to_one, \
                                    int num_threads) {                                                                \
    agon::parallel_for(num_tokens, num_tokens < 64 ? 1 : num_threads, [&](int64_t token) {                            \
      static thread_local std::vector<float> kept;                                                                    \
      agon::choose(scores + token * stride, num_experts, num_chosen, sums_to_one != 0,                                \
                   agon::grown(kept, num_experts + agon::kLanes), chosen + token * num_chosen,                        \
                   weights + token * num_chosen);                                                                     \
    });                                                                                                               \
  }                                                                                                                   \
  void agon_mix_experts_##suffix(const agon::Mixture* mixture, const T* x, int64_t x_stride, const int32_t* chosen,   \
                                 const float* weights, T* y, int64_t num_tokens, int num_threads) {                   \
    const agon::Mixing<T> mixing(*mixture, x, x_stride, chosen, weights, y, num_tokens);                              \
    agon::with_team(num_threads, [&](agon::Team& team) { mixing.go(team); });                                         \
  }
AGON_EXPERTS(f32, float)
AGON_EXPERTS(bf16, agon::bf16)
}
