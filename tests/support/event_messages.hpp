#pragma once

#include <filesystem>
#include <string>
#include <vector>

/// Event files, read by the format's description alone.
namespace steady::testing_support {

/// The messages of an event file, after a check of every length and sum: a fault fails the test.
[[nodiscard]] std::vector<std::string> event_messages(const std::filesystem::path& path);

/// The text that protoc makes of a message by core/io/event_file.proto. A message that it refuses
/// fails the test.
[[nodiscard]] std::string decoded_event(const std::string& message);

/// All messages of the one event file in a directory, decoded, one after the other.
[[nodiscard]] std::string decoded_events(const std::filesystem::path& directory);

}  // namespace steady::testing_support
