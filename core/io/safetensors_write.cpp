#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <steadygrad/core/error.hpp>
#include <steadygrad/core/io/replace_file.hpp>
#include <steadygrad/core/io/safetensors.hpp>
#include <steadygrad/core/io/safetensors_elements.hpp>
#include <tuple>

namespace steady::safetensors {
namespace {

using Json = nlohmann::ordered_json;

Type file_type(const Stored& t) { return t.type.value_or(type_of(t.value.dtype())); }

/// What is written: the tensors in their order in the file, and the metadata with the aliases.
struct Plan {
  std::vector<const Stored*> tensors;
  Metadata metadata;
};

Plan plan_of(std::span<const Stored> tensors, const Metadata& metadata) {
  Plan plan{.tensors = {}, .metadata = metadata};
  std::set<std::string_view> names;
  std::map<std::tuple<std::uint64_t, std::vector<std::int64_t>, Type>, const Stored*> stored;
  for (const Stored& t : tensors) {
    STEADY_CHECK(Error, t.value.defined(), "safetensors: '{}' is undefined", shown(t.name));
    STEADY_CHECK(Error, t.name != "__metadata__",
                 "safetensors: '__metadata__' cannot be the name of a tensor");
    STEADY_CHECK(Error, names.insert(t.name).second, "safetensors: the name '{}' comes twice",
                 shown(t.name));
    const auto dims = t.value.shape().extents();
    const auto [first, fresh] =
        stored.try_emplace({t.value.storage().id(), {dims.begin(), dims.end()}, file_type(t)}, &t);
    if (fresh) {
      plan.tensors.push_back(&t);
    } else {
      plan.metadata.emplace_back(t.name, first->second->name);
    }
  }
  std::ranges::sort(plan.tensors, [](const Stored* a, const Stored* b) {
    return std::tuple(file_type(*b), std::string_view(a->name)) <
           std::tuple(file_type(*a), std::string_view(b->name));
  });
  return plan;
}

/// An object with its members in this order. (Adding by name would compare it with all before.)
Json object_of(Json::object_t members) { return Json(std::move(members)); }

Json header_of(const Plan& plan) {
  Json::object_t header;
  if (!plan.metadata.empty()) {
    Json::object_t texts;
    std::set<std::string_view> names;
    for (const auto& [name, text] : plan.metadata) {
      STEADY_CHECK(Error, names.insert(name).second,
                   "safetensors: the metadata name '{}' comes twice", shown(name));
      texts.push_back({name, text});
    }
    header.push_back({"__metadata__", object_of(std::move(texts))});
  }
  std::int64_t at = 0;
  for (const Stored* t : plan.tensors) {
    const std::int64_t end = at + t->value.numel() * size_of(file_type(*t));
    header.push_back({t->name,
                      {{"dtype", to_string(file_type(*t))},
                       {"shape", t->value.shape().extents()},
                       {"data_offsets", {at, end}}}});
    at = end;
  }
  return object_of(std::move(header));
}

std::string header_text(const Plan& plan) {
  try {
    std::string text = header_of(plan).dump();
    constexpr std::size_t Alignment = 8;
    text.append((Alignment - text.size() % Alignment) % Alignment, ' ');
    return text;
  } catch (const Json::type_error&) {
    throw Error("safetensors: names and metadata must be UTF-8");
  }
}

}  // namespace

std::vector<std::byte> encode(std::span<const Stored> tensors, const Metadata& metadata) {
  const Plan plan = plan_of(tensors, metadata);
  const std::string header = header_text(plan);
  std::size_t size = 8 + header.size();
  for (const Stored* t : plan.tensors) {
    size += static_cast<std::size_t>(t->value.numel() * size_of(file_type(*t)));
  }
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(header.size() >> 8 * i);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  std::span<std::byte> rest = std::span(bytes).subspan(8 + header.size());
  for (const Stored* t : plan.tensors) {
    const auto length = static_cast<std::size_t>(t->value.numel() * size_of(file_type(*t)));
    encode_elements(t->value, file_type(*t), rest.first(length), fmt::format("'{}'", t->name));
    rest = rest.subspan(length);
  }
  return bytes;
}

void write(const std::filesystem::path& path, std::span<const Stored> tensors,
           const Metadata& metadata) {
  replace_file(path, encode(tensors, metadata), {.sync = true});
}

}  // namespace steady::safetensors
