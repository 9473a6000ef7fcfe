#include "examples/common/stop_signal.hpp"

#include <atomic>
#include <csignal>

namespace steady::examples {
namespace {

std::atomic<int> signal_received = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // for the handler

void note(int signal) { signal_received = signal; }

void on_signals(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

}  // namespace

// SA_RESETHAND: the second signal does what it does without a handler.
StopSignals::StopSignals() {
  signal_received = 0;
  on_signals(note, static_cast<int>(SA_RESTART | SA_RESETHAND));
}

StopSignals::~StopSignals() { on_signals(SIG_DFL, 0); }

int StopSignals::received() { return signal_received; }

std::string signal_name(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

}  // namespace steady::examples
