// Activation functions of feed-forward layers: gated ones, activation(gate) * up, and plain ones. Computed in float.
// Callers: steps.cpp, linear.cpp (on a product's outputs) and agon_activation_*.
#pragma once

#include <cstdint>

#include "threads.h"

namespace agon {

// The same numbers as ActivationKind in engine/kernels/cpu/steps.py.
enum ActivationKind : int64_t { kSiluMul = 0, kGeluTanhMul = 1, kGeluTanh = 2, kGelu = 3, kRelu = 4 };

// True if an input row holds gates and ups.
inline bool is_gated(ActivationKind kind) { return kind <= kGeluTanhMul; }

// Part of a row: x [count], and up [count] if the activation is gated (else not read) -> y [count]. Calling thread
// only.
template <typename T>
void activate(ActivationKind kind, const T* x, const T* up, T* y, int64_t count);

// Whole rows, split over the team: x [rows, 2 * size] (gates, then ups) or [rows, size] -> y [rows, size], contiguous.
template <typename T>
void activate_rows(ActivationKind kind, const T* x, T* y, int64_t num_rows, int64_t size, Team& team) {
  const int64_t stride = is_gated(kind) ? 2 * size : size;
  team.each(num_rows, [&](int64_t row, int64_t) {
    activate(kind, x + row * stride, x + row * stride + size, y + row * size, size);
  });
}

}  // namespace agon
