// model.safetensors.index.json: which file of the directory holds which tensor.
//
//   {"metadata": {...}, "weight_map": {"NAME": "model-00001-of-00004.safetensors", ...}}
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace lily {

/// Tensor name -> plain file name. `where` names the index in errors. Throws Error when the text is not such a JSON
/// document, or when a file name could lead out of the directory.
std::map<std::string, std::string> parse_shard_index(std::string_view text, const std::string& where);

}  // namespace lily
