// Options that several subcommands share: which model to load and how to sample.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "engine/loaded_model.h"
#include "sampling/sampler.h"

namespace lily {

/// --model, --device, --threads, --activations
void add_load_options(CLI::App& command, LoadOptions& options);

/// Takes the empty text too, as scripts write what is not set.
CLI::Validator or_empty(const CLI::Validator& validator);
/// For options of type double: CLI::Range takes NaN.
CLI::Validator number_between(double least, double most);
/// 0, or no more than most_threads().
CLI::Validator number_of_threads();
/// For options of type std::uint64_t: CLI11 takes what does not fit for the largest one.
CLI::Validator fits_64_bits();

/// --temperature, --top-k, ...: what is not given comes from SamplingParams::defaults(thinking).
class SamplingOptions {
 public:
  void add_to(CLI::App& command);
  SamplingParams params(bool thinking) const;

 private:
  bool greedy_ = false;
  std::optional<float> temperature_;
  std::optional<int> top_k_;
  std::optional<float> top_p_;
  std::optional<float> min_p_;
  std::optional<float> presence_penalty_;
  std::optional<float> frequency_penalty_;
  std::optional<float> repetition_penalty_;
  std::optional<std::uint64_t> seed_;
};

}  // namespace lily
