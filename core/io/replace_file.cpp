#include <steadygrad/core/io/replace_file.hpp>

#include <cstdio>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/descriptor-inl.hpp>

namespace steady {

using detail::Descriptor;
using detail::LimitIsAnError;
using detail::system_reason;

void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes,
                  const ReplaceFileOptions& options) {
  std::filesystem::path part = path;
  part += ".part";
  const LimitIsAnError limit;
  Descriptor file(part, O_WRONLY | O_CREAT | O_TRUNC);
  STEADY_CHECK(IoError, file.is_open(), "write: cannot create '{}': {}", part.string(),
               system_reason());
  const auto fail = [&](const char* what, const std::filesystem::path& which) {
    const std::string reason = system_reason();
    ::unlink(part.c_str());
    throw IoError(fmt::format("write: cannot {} '{}': {}", what, which.string(), reason));
  };
  if (!file.write(bytes) || (options.sync && !file.sync()) || !file.close()) fail("write", part);
  if (std::rename(part.c_str(), path.c_str()) != 0) fail("replace", path);
  if (!options.sync) return;
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
  const Descriptor directory(parent, O_RDONLY | O_DIRECTORY);
  // Some file systems cannot sync a directory and say EINVAL.
  STEADY_CHECK(IoError, directory.is_open() && (directory.sync() || errno == EINVAL),
               "write: cannot sync '{}': {}", parent.string(), system_reason());
}

}  // namespace steady
