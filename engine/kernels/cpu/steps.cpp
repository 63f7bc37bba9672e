// Executes a list of steps by calling the operators, so the results are those of single operators to the last bit. Only
// the addition of kAdd is computed here.

#include "steps.h"

#include <vector>

#include "adapters.h"
#include "attention.h"
#include "linear.h"
#include "norm.h"

namespace agon {

// One call of agon_run_steps_*. Plans and working memory are made once, in the constructor, for all threads.
template <typename T>
class Run {
 public:
  Run(const Step* steps, int64_t count, const Inputs& inputs)
      : steps_(steps), count_(count), inputs_(inputs), plans_(inputs.num_tables) {
    int64_t partials = 0, widest = 0;
    for (int64_t i = 0; i < count; i++) {
      if (steps[i].kind == kAdapt)
        rank_stride_ = std::max(rank_stride_, widest_rank(adapters(steps[i]), inputs.runs, inputs.num_runs));
      if (steps[i].kind == kLinear && is_plain(steps[i])) widest = std::max(widest, steps[i].num_inputs);
      if (steps[i].kind != kAttention) continue;
      const AttentionLayer& layer = *steps[i].attention;
      AttentionPlan& plan = plans_[layer.type];
      if (plan.is_empty()) plan = plan_attention(layer, inputs.sequences);
      partials = std::max(partials, attention_partials(layer, plan));
    }
    partials_.resize(partials);
    if constexpr (kWidens<T>) floats_ = kept_floats(inputs.num_rows * widest);
    if (rank_stride_ > 0) ranks_ = kept_ranks(inputs.num_rows * rank_stride_);
  }

  // Whether a linear step multiplies rows as they are, not rows in 8 bits.
  static bool is_plain(const Step& s) { return s.grouped == nullptr; }

  // All steps in order; every thread of the team calls it.
  void go(Team& team) {
    for (int64_t i = 0; i < count_; i++) {
      if (steps_[i].kind == kLinear) expect_linear_behind(i, team);
      step(i, team);
    }
  }

 private:
  // Memory that is kept by the calling thread between calls, because page faults would cost more than the work.
  static float* kept_floats(size_t count) {
    static thread_local std::vector<float> kept;
    if (kept.size() < count) kept.resize(count);
    return kept.data();
  }
  static T* kept_ranks(size_t count) {
    static thread_local std::vector<T> kept;
    if (kept.size() < count) kept.resize(count);
    return kept.data();
  }

  static const AdapterWeights* adapters(const Step& s) { return static_cast<const AdapterWeights*>(s.weight); }

  // Rows of a buffer; null for -1.
  T* buffer(int64_t which) const { return which < 0 ? nullptr : static_cast<T*>(inputs_.buffers[which]); }

  // Names the weights of the first linear step after step i for prefetching (Team::expect).
  void expect_linear_behind(int64_t i, Team& team) const {
    for (int64_t next = i + 1; next < count_; next++) {
      const Step& step = steps_[next];
      if (step.kind != kLinear) continue;
      const bool has_pairs = step.activation >= 0 && is_gated(ActivationKind(step.activation));
      const void* weights = step.grouped == nullptr ? step.weight : step.grouped->packed;
      const int64_t output_bytes = is_plain(step) ? step.num_inputs * sizeof(T) : step.grouped->bytes_per_output();
      const Expected panels =
          first_panels(weights, output_bytes, has_pairs ? step.num_outputs / 2 : step.num_outputs, team);
      return team.expect(panels.from, panels.bytes);
    }
    team.expect(nullptr, 0);
  }

  void step(int64_t i, Team& team) {
    const Step& s = steps_[i];
    switch (s.kind) {
      case kNorm:
        return norm<T>({buffer(s.input), buffer(s.update), static_cast<const float*>(s.weight),
                        static_cast<const float*>(s.bias), buffer(s.output), inputs_.num_rows, s.num_inputs,
                        float(s.eps)},
                       team);
      case kLinear: return linear(s, team);
      case kActivate:
        return activate_rows(ActivationKind(s.activation), buffer(s.input), buffer(s.output), inputs_.num_rows,
                             s.num_outputs, team);
      case kAttention: {
        const AttentionLayer& layer = *s.attention;
        const StepRotation none{nullptr, nullptr, 0};
        const AttentionArgs<T> args{layer, plans_[layer.type], buffer(s.input), buffer(s.output),
                                    inputs_.tables[layer.type],
                                    layer.rotation < 0 ? none : inputs_.rotations[layer.rotation], partials_.data()};
        return layer.has_int8_pages ? attend<T, int8_t>(args, team) : attend<T, T>(args, team);
      }
      case kAdd: return add(s, team);
      case kAdapt:
        return add_adapters<T>({buffer(s.input), s.num_inputs, buffer(s.output), s.num_outputs, s.num_inputs,
                                adapters(s), inputs_.runs, inputs_.num_runs, ranks_, rank_stride_},
                               team);
    }
  }

  void linear(const Step& s, Team& team) const {
    const int64_t num_rows = inputs_.num_rows;
    const Activated<T> activated{ActivationKind(s.activation), buffer(s.activated),
                                 is_gated(ActivationKind(s.activation)) ? s.num_outputs / 2 : s.num_outputs};
    const Activated<T>* then = s.activation < 0 ? nullptr : &activated;
    const T* x = buffer(s.input);
    const T* bias = static_cast<const T*>(s.bias);
    T* y = buffer(s.output);
    if (is_plain(s))
      return multiply<T>({x, s.num_inputs, static_cast<const T*>(s.weight), bias, y, s.num_outputs, num_rows,
                          s.num_inputs, s.num_outputs},
                         floats_, team, then);
    quantize_blocks(*s.grouped, x, s.num_inputs, inputs_.bytes, inputs_.row_blocks, num_rows, team);
    const GroupedProduct<T> product{s.grouped, inputs_.bytes, inputs_.row_blocks, bias,
                                    y,         s.num_outputs, num_rows,           s.num_outputs};
    multiply_grouped(&product, 1, team, then);
  }

  // output += input, each sum rounded to T.
  void add(const Step& s, Team& team) const {
    team.each(inputs_.num_rows, [&](int64_t row, int64_t) {
      const T* from = buffer(s.input) + row * s.num_inputs;
      T* to = buffer(s.output) + row * s.num_inputs;
      for (int64_t i = 0; i < s.num_inputs; i++) store_one(to + i, to_float(to[i]) + to_float(from[i]));
    });
  }

  const Step* steps_;
  const int64_t count_;
  const Inputs& inputs_;
  std::vector<AttentionPlan> plans_;  // by layer type
  std::vector<float> partials_;
  float* floats_ = nullptr;  // [rows, widest input]: rows converted to float
  T* ranks_ = nullptr;       // [rows, rank_stride_]: rows multiplied by an adapter's `down`
  int64_t rank_stride_ = 0;
};

}  // namespace agon

extern "C" {

// agon_run_steps_{f32,bf16}: executes steps [count] on the rows of `inputs`. Called by CppStep
// (engine/attention/cpp_backend.py), once for one layer's attention or for all recorded layers.
#define AGON_STEPS(suffix, T)                                                                                        \
  void agon_run_steps_##suffix(const agon::Step* steps, int64_t count, const agon::Inputs* inputs, int num_threads) { \
    agon::Run<T> run(steps, count, *inputs);                                                                         \
    agon::with_team(num_threads, [&](agon::Team& team) { run.go(team); });                                           \
  }
AGON_STEPS(f32, float)
AGON_STEPS(bf16, agon::bf16)
}
