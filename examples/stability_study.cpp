// Trains small networks under every choice of norm and place, and watches their gradients.
//
//   build/bin/stability_study                            the quick plan, about five minutes
//   build/bin/stability_study --plan default --out runs  more depths, rates and seeds
//   build/bin/stability_study --plan mine.json           a plan file, see examples/plans/quick.json
//   mpirun -n 4 build/bin/stability_study                cells shared among 4 ranks
//
// Each cell of the plan is a run of its own with a log (HDF5) in OUT/cells. Finished cells are
// kept: a study that was stopped goes on where it was, and --force begins again. A run that
// diverges or fails is a result; the next run tries again what failed. build/bin/report makes the
// report from the logs.
#include "examples/study/program.hpp"

int main(int argc, char** argv) { return steady::examples::stability_study(argc, argv); }
