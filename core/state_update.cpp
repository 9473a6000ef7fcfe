#include <steadygrad/core/state_update.hpp>

namespace steady {
namespace {

thread_local int held = 0;

}  // namespace

NoStateUpdate::NoStateUpdate() { ++held; }
NoStateUpdate::~NoStateUpdate() { --held; }

bool state_updates() { return held == 0; }

}  // namespace steady
