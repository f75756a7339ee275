// Everything that is loaded once and shared by all sessions: checkpoint, tokenizer, backend, weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "model/memory_forecast.h"
#include "model/model.h"
#include "ops/gpu/gpu_ops.h"
#include "ops/ops.h"
#include "ops/profile.h"
#include "text/tokenizer.h"

namespace lily {

struct LoadOptions {
  std::string model = "demo";    // directory, Hugging Face id in the local cache, or "demo"
  std::string device = "auto";   // auto, cpu, metal, cuda, emulated
  int threads = 0;               // 0: the cores this process may use
  std::string activations;       // CPU: "float32", "int16", "int8"; empty: its default
  GpuOptions gpu;                // how a GPU works, for measurements
  bool overlap_launches = true;  // on a GPU: wait only where one needs another's result
  std::string target;            // CPU: one of cpu_targets(); empty: the best
  std::int64_t context = 32768;  // tokens of a session, for the memory forecast
  std::function<void(std::int64_t, std::int64_t)> progress = {};  // layers done, layers
  std::function<void(const std::string&)> notice = {};            // what the user should know but nothing fails for
  Profile* profile = nullptr;                                     // CPU: filled by every op; outlives the model
};

/// Opens the files without reading the weights, for what can be told at once. Throws Error: unknown model, damaged
/// files, or no positions for `context`.
void check_model(const LoadOptions& options);

class LoadedModel {
 public:
  /// Throws Error: unknown model or device, damaged files, or less memory than the forecast for `context`.
  explicit LoadedModel(const LoadOptions& options);
  /// On the device that `options` names, which is open already; null: the CPU.
  LoadedModel(const LoadOptions& options, std::unique_ptr<Device> device);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  const ModelConfig& config() const { return checkpoint_.config(); }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const Model& model() const { return model_; }
  Ops& ops() { return *ops_; }
  /// Null: the CPU.
  Device* gpu() const { return gpu_.get(); }
  /// What session files are tied to (model_id.h).
  std::uint64_t id() const { return id_; }
  /// What decides the bits of states beyond their layout: instruction set and activations of the CPU. Empty on a GPU.
  const std::string& arithmetic() const { return arithmetic_; }
  /// "cpu", "metal", "cuda" or "emulated".
  std::string device() const { return std::string(to_string(gpu_ ? gpu_->info().kind : DeviceKind::kCpu)); }

 private:
  Checkpoint checkpoint_;
  Tokenizer tokenizer_;
  std::unique_ptr<Device> gpu_;  // null: the CPU
  std::unique_ptr<Ops> ops_;
  Model model_;
  std::uint64_t id_;
  std::string arithmetic_;
};

}  // namespace lily
