// Where the threads of a team meet. A step of a small model takes some microseconds, so they wait in a loop at first; a
// thread that another process keeps off its core is waited for in the kernel, so that the core is free for it.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <thread>
#endif

namespace agon {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Barrier {
 public:
  // meanwhile() is called again and again while a thread waits.
  template <typename Meanwhile>
  void wait(int num_threads, const Meanwhile& meanwhile) {
    const uint32_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1);
      if (num_sleeping_.load() > 0) wake();
      return;
    }
    for (int i = 0; round_.load(std::memory_order_acquire) == round; i++) {
      if (i >= kTries) {
        sleep(round);
        continue;
      }
      meanwhile();
      pause();
    }
  }

 private:
  static constexpr int kTries = 4000;  // about 50 us

  void sleep(uint32_t round) {
    num_sleeping_.fetch_add(1);
#if defined(__linux__)
    syscall(SYS_futex, &round_, FUTEX_WAIT_PRIVATE, round, nullptr, nullptr, 0);  // unless a new round has begun
#else
    if (round_.load() == round) std::this_thread::yield();
#endif
    num_sleeping_.fetch_sub(1);
  }

  void wake() {
#if defined(__linux__)
    syscall(SYS_futex, &round_, FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
#endif
  }

  alignas(64) std::atomic<uint32_t> round_{0};
  alignas(64) std::atomic<int> arrived_{0};
  std::atomic<int> num_sleeping_{0};
};

}  // namespace agon
