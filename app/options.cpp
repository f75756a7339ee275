#include "options.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>

#include "ops/cpu/cpu_ops.h"
#include "standard_io.h"
#include "support/usable_cores.h"

namespace lily {

void add_load_options(CLI::App& command, LoadOptions& options) {
  options.notice = [](const std::string& notice) { complain(notice); };
  command.add_option("-m,--model", options.model, "directory, Hugging Face id in the local cache, or 'demo'")
      ->capture_default_str();
  command.add_option("--device", options.device, "auto, cpu, metal, cuda or emulated")->capture_default_str();
  command
      .add_option("--threads", options.threads, "CPU threads; 0: the cores this process may use; at most 8 for each")
      ->check(number_of_threads())
      ->capture_default_str();
  command
      .add_option("--activations", options.activations,
                  "CPU: int8 (the default), int16 (nearly exact, slower prefill) or float32 (exact, slow)")
      ->check(CLI::IsMember({"float32", "int16", "int8"}));
  command.add_option("--cpu-target", options.target, "CPU: instruction set; empty: the best that this one has")
      ->check(or_empty(CLI::IsMember(cpu_targets())));
}

CLI::Validator or_empty(const CLI::Validator& validator) {
  return {[=](std::string& text) { return text.empty() ? std::string() : validator(text); },
          validator.get_description()};
}

CLI::Validator number_between(double least, double most) {
  const std::string description = fmt::format("FLOAT in [{} - {}]", least, most);
  return {[=](std::string& text) {
            double value = 0;
            const bool fits = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
            return fits ? std::string() : fmt::format("Value {} not in range [{} - {}]", text, least, most);
          },
          description};
}

CLI::Validator number_of_threads() {
  return {[](std::string& text) {
            int value = 0;
            if (!CLI::detail::lexical_cast(text, value) || value < 0)
              return fmt::format("{} is no number of threads", text);
            const int most = most_threads();
            if (value <= most) return std::string();
            return fmt::format(
                "{} threads are more than {}, {} for each of the {} cores that this process may use: each step would "
                "wait for all of them to have their turn. Leave it out, or give 0, for the cores that there are",
                value, most, kMostThreadsPerCore, usable_cores());
          },
          ""};
}

CLI::Validator fits_64_bits() {
  return {[](std::string& text) {
            errno = 0;
            std::strtoull(text.c_str(), nullptr, 0);
            return errno == ERANGE ? fmt::format("Value {} is beyond 64 bits", text) : std::string();
          },
          ""};
}

void SamplingOptions::add_to(CLI::App& command) {
  const char* group = "Sampling (defaults: the model's own advice)";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group(group);
  };
  command.add_flag("--greedy", greedy_, "always the most likely token")->group(group);
  add("--temperature,--temp", temperature_, "spread of the choice; 0: greedy");
  add("--top-k", top_k_, "only the k most likely tokens; 0: all");
  add("--top-p", top_p_, "only the most likely tokens that together reach this probability");
  add("--min-p", min_p_, "only tokens at least this likely, relative to the best");
  add("--presence-penalty", presence_penalty_, "subtracted from logits of tokens already generated");
  add("--frequency-penalty", frequency_penalty_, "subtracted once per time a token was generated");
  add("--repetition-penalty", repetition_penalty_, "divides positive logits of tokens already generated; 1: off");
  add("--seed", seed_, "the same seed gives the same reply")->check(fits_64_bits());
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
