// Which normalization is in this file, and is it healthy?
//
//   build/bin/inspect_checkpoint model.safetensors
//   build/bin/inspect_checkpoint FOLDER --config config.json --json
//
// Reads a safetensors file, an index of several (model.safetensors.index.json), a folder of either,
// or an HDF5 checkpoint, and lists every normalization: path, width, parameters, which norm it is
// and how certain that is, eps, and where it stands. A config.json beside the file is found by
// itself. Expected, for a Llama:
//   model.layers.0.input_layernorm  4096  weight  rms_norm  certain  1e-05  before attention
// then the reasons; for a gain without a shift and no config, "undecidable" with what would decide
// it (LayerNorm without bias and RMSNorm have the same tensors); then NaN and infinite entries,
// gains that are 0, outliers, running variances that are negative or tiny, widths that do not fit.
// Exit code 0, 1 when the file cannot be read or trusted, 2 for a bad option.

#include <iostream>

#include "examples/common/cli.hpp"
#include "examples/inspect/report.hpp"

int main(int argc, char** argv) {
  using namespace steady::examples;
  CLI::App app("Tells which normalization a checkpoint holds, and whether it is healthy.");
  std::string path;
  std::string config;
  bool json = false;
  app.add_option("checkpoint", path, "safetensors or HDF5 file, index, or folder")->required();
  app.add_option("--config", config,
                 "config.json of the model; the one beside the file by default");
  app.add_flag("--json", json, "print JSON instead of a table");
  return run_program(app, argc, argv, [&] {
    const inspect::Report report = inspect::inspect_checkpoint(path, config);
    if (json) {
      std::cout << inspect::to_json(report).dump(1, ' ', false,
                                                 nlohmann::ordered_json::error_handler_t::replace)
                << '\n';
    } else {
      std::cout << inspect::to_text(report);
    }
    return 0;
  });
}
