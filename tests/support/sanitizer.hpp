#pragma once

extern "C" __attribute__((weak)) void asan_init() __asm__("__asan_init");
extern "C" __attribute__((weak)) void tsan_init() __asm__("__tsan_init");

namespace steady::test {

/// Whether AddressSanitizer runs this process, with whatever flags the tests were compiled: every
/// block of memory comes from the system then, and a kernel has fewer SIMD targets.
inline bool under_address_sanitizer() { return &asan_init != nullptr; }
inline bool under_thread_sanitizer() { return &tsan_init != nullptr; }

}  // namespace steady::test
