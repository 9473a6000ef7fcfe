#pragma once

namespace steady::examples {

/// The program stability_study. A program that knows norms of its own calls register_norm and then
/// this, and its plans may name them: the processes of the study are the calling program again,
/// with the same call of register_norm.
int stability_study(int argc, char** argv);

}  // namespace steady::examples
