#include "server/generation_fields.h"

#include <charconv>
#include <limits>

namespace lily {
namespace {

constexpr std::int64_t kAnyCount = std::int64_t{1} << 40;

std::map<std::int32_t, float> read_logit_bias(const JsonFields& body) {
  const auto fields = body.object("logit_bias");
  std::map<std::int32_t, float> result;
  if (!fields) return result;
  for (const auto& [key, value] : body.find("logit_bias")->items()) {
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || !value.is_number()) {
      body.fail("logit_bias", "maps token ids to numbers, found " + key + ": " + value.dump());
    }
    result[id] = value.get<float>();
  }
  return result;
}

/// Properties and enumerated values, at any depth.
std::size_t schema_parts(const nlohmann::ordered_json& schema) {
  std::size_t parts = 0;
  if (schema.is_object()) {
    for (const char* name : {"properties", "enum"}) {
      if (const auto found = schema.find(name); found != schema.end()) parts += found->size();
    }
  }
  if (schema.is_structured()) {
    for (const auto& member : schema) parts += schema_parts(member);
  }
  return parts;
}

template <typename T, typename U>
void set(T& target, const std::optional<U>& value) {
  if (value) target = static_cast<T>(*value);
}

}  // namespace

std::string read_schema(const JsonFields& fields, const char* name) {
  constexpr std::size_t kMostParts = 1000;
  constexpr std::size_t kMostBytes = std::size_t{1} << 17;
  const nlohmann::ordered_json* schema = fields.find(name);
  if (schema == nullptr) fields.fail(name, "is missing");
  if (const std::size_t parts = schema_parts(*schema); parts > kMostParts) {
    fields.fail(name,
                fmt::format("has {} properties and enumerated values, at most {} are allowed", parts, kMostParts));
  }
  std::string text = schema->dump();
  if (text.size() > kMostBytes)
    fields.fail(name, fmt::format("has {} bytes, at most {} are allowed", text.size(), kMostBytes));
  return text;
}

void read_effort(const JsonFields& fields, const char* name, ChatOptions& options) {
  const auto effort = fields.text(name);
  if (!effort) return;
  const bool known = *effort == "low" || *effort == "medium" || *effort == "high" || *effort == "xhigh";
  const bool off = *effort == "none" || *effort == "minimal";
  if (!known && !off) fields.fail(name, "is '" + *effort + "', expected none, minimal, low, medium, high or xhigh");
  options.enable_thinking = !off;
}

void read_thinking(const JsonFields& body, ChatOptions& options) {
  read_effort(body, "reasoning_effort", options);
  set(options.enable_thinking, body.boolean("enable_thinking"));
  if (const auto template_fields = body.object("chat_template_kwargs")) {
    set(options.enable_thinking, template_fields->boolean("enable_thinking"));
    set(options.preserve_thinking, template_fields->boolean("preserve_thinking"));
  }
}

GenerationOptions read_generation(const JsonFields& body, bool thinking) {
  GenerationOptions options;
  SamplingParams& sampling = options.sampling;
  sampling = SamplingParams::defaults(thinking);
  set(sampling.temperature, body.number("temperature", 0, 100));
  set(sampling.top_k, body.integer("top_k", -1, std::numeric_limits<int>::max()));
  if (sampling.top_k < 0) sampling.top_k = 0;
  set(sampling.top_p, body.number("top_p", 0, 1));
  set(sampling.min_p, body.number("min_p", 0, 1));
  set(sampling.presence_penalty, body.number("presence_penalty", -2, 2));
  set(sampling.frequency_penalty, body.number("frequency_penalty", -2, 2));
  set(sampling.repetition_penalty, body.number("repetition_penalty", 0.01, 100));
  sampling.logit_bias = read_logit_bias(body);
  if (const auto seed =
          body.integer("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max())) {
    sampling.seed = static_cast<std::uint64_t>(*seed);
  }
  set(options.max_tokens, body.integer("max_tokens", 1, kAnyCount));
  set(options.max_tokens, body.integer("max_completion_tokens", 1, kAnyCount));
  set(options.ignore_eos, body.boolean("ignore_eos"));
  set(options.thinking_budget, body.integer("thinking_budget", 0, kAnyCount));
  constexpr std::size_t kMostStops = 32;
  options.stop = body.texts("stop", kMostStops);
  std::erase(options.stop, "");
  return options;
}

}  // namespace lily
