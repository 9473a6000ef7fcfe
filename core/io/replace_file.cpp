#include <steadygrad/core/io/replace_file.hpp>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <steadygrad/core/error.hpp>
#include <system_error>

namespace steady {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

std::string system_reason() { return std::generic_category().message(errno); }

}  // namespace

void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::filesystem::path part = path;
  part += ".part";
  std::unique_ptr<std::FILE, Close> file(std::fopen(part.c_str(), "wb"));
  STEADY_CHECK(IoError, file != nullptr, "write: cannot create '{}': {}", part.string(),
               system_reason());
  const bool written =
      bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  const bool closed = std::fclose(file.release()) == 0;
  if (!written || !closed) {
    const std::string reason = system_reason();
    std::remove(part.c_str());
    throw IoError(fmt::format("write: cannot write '{}': {}", part.string(), reason));
  }
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (!error) return;
  std::remove(part.c_str());
  throw IoError(fmt::format("write: cannot replace '{}': {}", path.string(), error.message()));
}

}  // namespace steady
