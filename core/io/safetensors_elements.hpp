#pragma once

#include <cstddef>
#include <span>
#include <steadygrad/core/io/safetensors_types.hpp>
#include <steadygrad/core/tensor.hpp>
#include <string>

/// Elements between files, little-endian at any address, and tensors.
namespace steady::safetensors {

/// Fills `to` from as many elements of `type`. `where` names the tensor in messages. Throws IoError
/// for a conversion that File::read does not have, or a value that does not fit.
void decode_elements(std::span<const std::byte> from, Type type, Tensor& to,
                     const std::string& where);

/// Writes the elements of `from` as `type`. Throws Error for a conversion that Stored does not
/// have, or a value that does not fit.
void encode_elements(const Tensor& from, Type type, std::span<std::byte> to,
                     const std::string& where);

}  // namespace steady::safetensors
