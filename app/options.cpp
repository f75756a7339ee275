#include "options.h"

#include "ops/cpu/cpu_ops.h"
#include "standard_io.h"

namespace lily {

void add_load_options(CLI::App& command, LoadOptions& options) {
  options.notice = [](const std::string& notice) { complain(notice); };
  command.add_option("-m,--model", options.model, "directory, Hugging Face id in the local cache, or 'demo'")
      ->capture_default_str();
  command.add_option("--device", options.device, "auto, cpu, metal, cuda or emulated")->capture_default_str();
  command.add_option("--threads", options.threads, "CPU threads; 0: the cores this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option("--activations", options.activations,
                  "CPU: int8 (the default), int16 (nearly exact, slower prefill) or float32 (exact, slow)")
      ->check(CLI::IsMember({"float32", "int16", "int8"}));
  command.add_option("--cpu-target", options.target, "CPU: instruction set; empty: the best that this one has")
      ->check(CLI::IsMember(cpu_targets()));
}

void SamplingOptions::add_to(CLI::App& command) {
  const char* group = "Sampling (defaults: the model's own advice)";
  const auto add = [&](const char* name, auto& value, const char* help) {
    command.add_option(name, value, help)->group(group);
  };
  command.add_flag("--greedy", greedy_, "always the most likely token")->group(group);
  add("--temperature,--temp", temperature_, "spread of the choice; 0: greedy");
  add("--top-k", top_k_, "only the k most likely tokens; 0: all");
  add("--top-p", top_p_, "only the most likely tokens that together reach this probability");
  add("--min-p", min_p_, "only tokens at least this likely, relative to the best");
  add("--presence-penalty", presence_penalty_, "subtracted from logits of tokens already generated");
  add("--frequency-penalty", frequency_penalty_, "subtracted once per time a token was generated");
  add("--repetition-penalty", repetition_penalty_, "divides positive logits of tokens already generated; 1: off");
  add("--seed", seed_, "the same seed gives the same reply");
}

SamplingParams SamplingOptions::params(bool thinking) const {
  SamplingParams params = SamplingParams::defaults(thinking);
  const auto set = [](auto& value, const auto& given) {
    if (given) value = *given;
  };
  set(params.temperature, temperature_);
  set(params.top_k, top_k_);
  set(params.top_p, top_p_);
  set(params.min_p, min_p_);
  set(params.presence_penalty, presence_penalty_);
  set(params.frequency_penalty, frequency_penalty_);
  set(params.repetition_penalty, repetition_penalty_);
  if (seed_) params.seed = seed_;
  if (greedy_) params.temperature = 0.0F;
  return params;
}

}  // namespace lily
