// Everything that is loaded once and shared by all sessions: checkpoint, tokenizer, backend, weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "ops/ops.h"
#include "text/tokenizer.h"

namespace lily {

struct LoadOptions {
  std::string model = "demo";    // directory, Hugging Face id in the local cache, or "demo"
  std::string device = "auto";   // auto, cpu, and what this build has besides
  int threads = 0;               // 0: the cores this process may use
  std::string activations;       // CPU: "float32", "int16", "int8"; empty: its default
  std::int64_t context = 32768;  // tokens of a session, for the memory forecast
  std::function<void(std::int64_t, std::int64_t)> progress = {};  // layers done, layers
};

class LoadedModel {
 public:
  /// Throws Error: unknown model or device, damaged files, or less memory than the forecast for `context`.
  explicit LoadedModel(const LoadOptions& options);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  const ModelConfig& config() const { return checkpoint_.config(); }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const Model& model() const { return model_; }
  Ops& ops() { return *ops_; }
  /// What session files are tied to: a hash of the configuration and of every tensor's place, shape and first bytes.
  std::uint64_t id() const { return id_; }
  const std::string& device() const { return device_; }

 private:
  Checkpoint checkpoint_;
  Tokenizer tokenizer_;
  std::string device_;
  std::unique_ptr<Ops> ops_;
  Model model_;
  std::uint64_t id_;
};

}  // namespace lily
