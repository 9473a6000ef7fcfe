#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

/// Reading JSON of foreign files as events: no tree is built and nothing recurses, so that neither
/// depth nor repetition costs more than the text itself.
namespace steady::detail {

/// Answers every event by fail(what came); derived classes override what they expect. Every
/// override returns true or throws.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return fail("null"); }
  bool boolean(bool) override { return fail("true or false"); }
  bool number_integer(number_integer_t) override { return fail("a negative number"); }
  bool number_unsigned(number_unsigned_t) override { return fail("a number"); }
  bool number_float(number_float_t, const string_t&) override { return fail("a fraction"); }
  bool string(string_t&) override { return fail("a text"); }
  bool binary(binary_t&) override { return fail("binary data"); }
  bool start_object(std::size_t) override { return fail("an object"); }
  bool start_array(std::size_t) override { return fail("a list"); }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::json::exception& error) override {
    // The middle of "[id] parse error at place: reason; last read: '...'"; what was last read can
    // be long, and anything.
    std::string reason = error.what();
    reason.resize(std::min(reason.size(), reason.find("; last read")));
    if (const std::size_t colon = reason.find(": "); colon != std::string::npos) {
      reason.erase(0, colon + 2);
    }
    return bad_syntax(at, reason);
  }

 protected:
  /// Throws: `what` stands where it may not.
  virtual bool fail(const char* what) = 0;
  /// Throws: the text is no JSON from byte `at` on.
  virtual bool bad_syntax(std::size_t at, const std::string& reason) = 0;
};

/// Reads one value and nothing behind it but white space.
inline void read_json(const char* begin, const char* end, JsonEvents& events) {
  nlohmann::json::sax_parse(begin, end, &events);
}

}  // namespace steady::detail
