// A barrier that counts finished work items, not threads: it opens when all items of a phase are done, no matter which
// threads did them. So a thread that the operating system has taken off its core delays the others only if it holds an
// item.
//
// A phase of a small model takes a few microseconds, so a waiting thread spins at first (about 10 us). Then it also
// yields its core again and again, because a thread that it waits for may need that core. After about 50 us it sleeps
// on a futex.
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

// Tells the core that the calling thread is in a spin loop.
inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Used by Team (threads.h), one for all threads of a team. All methods are safe to call from any of them.
class Barrier {
 public:
  // True if that phase is over. Phases are numbered from 1.
  bool is_behind(uint32_t phase) const { return open_.load(std::memory_order_acquire) != phase; }

  // The calling thread has done `count` of the phase's `total` items. Returns true if those were the last ones: the
  // phase is over, and sleeping threads are woken.
  bool finish(uint32_t phase, int64_t count, int64_t total) {
    if (done_.fetch_add(count, std::memory_order_acq_rel) + count < total) return false;
    done_.store(0, std::memory_order_relaxed);
    open_.store(phase + 1);
    if (num_sleeping_.load() > 0) wake();
    return true;
  }

  // Returns when the phase is over. Calls meanwhile() in every turn of the spin loop.
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
  static constexpr int kTries = 4000;      // turns before sleeping: about 50 us
  static constexpr int kTriesAlone = 800;  // turns before the first yield, and between two: about 10 us

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
    syscall(SYS_futex, &open_, FUTEX_WAIT_PRIVATE, phase, nullptr, nullptr, 0);  // unless it is over
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

  alignas(64) std::atomic<uint32_t> open_{1};  // the phase in progress
  alignas(64) std::atomic<int64_t> done_{0};   // finished items of that phase
  std::atomic<int> num_sleeping_{0};
};

}  // namespace agon
