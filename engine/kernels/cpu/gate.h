// Opens when all items of a phase of work are done, by any threads: the team does not wait for a thread that another
// process keeps off its core, unless that thread holds an item.
//
// A phase of a small model takes some microseconds, so a waiting thread spins at first. Then it yields its core
// repeatedly, since it may be waiting for another thread of that core. At last it sleeps.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__linux__)
#include <linux/futex.h>
#include <sched.h>
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

class Gate {
 public:
  // Whether that phase is over. Phases are numbered from 1 on.
  bool is_behind(uint32_t phase) const { return open_.load(std::memory_order_acquire) != phase; }

  // Counts items that a thread has done. True if they were the last of the phase, which is then over.
  bool finish(uint32_t phase, int64_t count, int64_t total) {
    if (done_.fetch_add(count, std::memory_order_acq_rel) + count < total) return false;
    done_.store(0, std::memory_order_relaxed);
    open_.store(phase + 1);
    if (num_sleeping_.load() > 0) wake();
    return true;
  }

  // Waits until the phase is over, and calls meanwhile() repeatedly.
  template <typename Meanwhile>
  void wait(uint32_t phase, const Meanwhile& meanwhile) {
    for (int i = 1; !is_behind(phase); i++) {
      if (i > kTries) {
        sleep(phase);
        continue;
      }
      meanwhile();
      pause();
      if (i >= kTriesAlone && i % kTriesAlone == 0) yield();
    }
  }

 private:
  static constexpr int kTries = 4000;      // about 50 us
  static constexpr int kTriesAlone = 800;  // about 10 us

  static void yield() {
#if defined(__linux__)
    sched_yield();
#else
    std::this_thread::yield();
#endif
  }

  void sleep(uint32_t phase) {
    num_sleeping_.fetch_add(1);
#if defined(__linux__)
    syscall(SYS_futex, &open_, FUTEX_WAIT_PRIVATE, phase, nullptr, nullptr, 0);  // returns at once if the phase is over
#else
    if (open_.load() == phase) yield();
#endif
    num_sleeping_.fetch_sub(1);
  }

  void wake() {
#if defined(__linux__)
    syscall(SYS_futex, &open_, FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
#endif
  }

  alignas(64) std::atomic<uint32_t> open_{1};  // number of the current phase
  alignas(64) std::atomic<int64_t> done_{0};   // number of its items that are done
  std::atomic<int> num_sleeping_{0};
};

}  // namespace agon
