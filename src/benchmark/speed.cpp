#include "benchmark/speed.h"

#include <algorithm>
#include <chrono>

#include "engine/generation.h"
#include "support/error.h"

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Every id about as often as any other, so that every expert has work.
std::vector<std::int32_t> made_up_prompt(std::int64_t length, std::int64_t ids) {
  constexpr std::int64_t kStride = 7919;  // prime to the number of ids, which is even
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<std::int32_t>((1 + i * kStride) % ids));
  return tokens;
}

/// Snapshots would add the copying of a state, which benchmarks of other engines do not do.
Session::Limits limits_of(const SpeedPlan& plan) {
  return {.capacity = plan.length + plan.tokens + 1,
          .prefill_chunk = plan.chunk,
          .snapshot_bytes = 0,
          .snapshot_interval = 0};
}

Counters counters_of(const LoadedModel& model) {
  return model.gpu() == nullptr ? Counters() : model.gpu()->counters();
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  LILY_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {.median = median, .least = values.front(), .most = values.back()};
}

SpeedTest::SpeedTest(LoadedModel& model, const SpeedPlan& plan)
    : model_(model),
      plan_(plan),
      session_(model.model(), model.ops(), limits_of(plan)),
      prompt_(made_up_prompt(plan.length, model.tokenizer().size())) {
  LILY_CHECK(plan.length > 0 && plan.tokens > 1);
}

Speed SpeedTest::round() {
  Speed speed;
  session_.reset();
  if (model_.gpu() != nullptr) model_.gpu()->wait(model_.gpu()->submit());  // not the prompt's
  Generation generation(model_.tokenizer(), model_.config().eos_token_ids,
                        {.sampling = plan_.sampling, .max_tokens = plan_.tokens, .ignore_eos = true},
                        room_after(plan_.length, session_.capacity()));
  const Counters at_start = counters_of(model_);
  const auto start = Clock::now();
  session_.sync(prompt_, {.progress = [&](std::int64_t done, std::int64_t) { return speed.chunks += done > 0, true; }});
  const auto read = Clock::now();
  const Counters after_prefill = counters_of(model_);
  Clock::time_point first = read, last = read;
  generate(session_, generation, [&](const GeneratedToken&) {
    last = Clock::now();
    if (speed.tokens++ == 0) first = last;
    return true;
  });
  speed.prefill_seconds = seconds_between(start, read);
  speed.first_token_seconds = seconds_between(start, first);
  speed.decode_seconds = seconds_between(first, last);
  speed.prefill = after_prefill - at_start;
  speed.decode = counters_of(model_) - after_prefill;
  return speed;
}

}  // namespace lily
