// How fast a loaded model reads a prompt and writes a reply, measured through the same session and generation that chat
// and server use.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "engine/loaded_model.h"
#include "sampling/sampling_params.h"
#include "session/session.h"

namespace lily {

/// Seconds or tokens per second of several rounds.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
};

/// Throws when there are none.
Spread spread_of(std::vector<double> values);

struct SpeedPlan {
  std::int64_t length = 512;  // of the prompt, made-up tokens
  std::int64_t tokens = 64;   // of the reply, two or more; end tokens do not end it
  SamplingParams sampling;
  std::int64_t chunk = 0;  // prompt tokens in one forward pass; 0: what the backend likes best
};

/// One round. `prefill` and `decode` are what the device was given for; zero on the CPU, which has no launches.
struct Speed {
  double prefill_seconds = 0;
  double first_token_seconds = 0;  // from the prompt's arrival to the first token of the reply
  double decode_seconds = 0;       // from the first token to the last: tokens - 1 of them
  std::int64_t tokens = 0;
  std::int64_t chunks = 0;
  Counters prefill, decode;

  double decode_rate() const { return static_cast<double>(tokens - 1) / decode_seconds; }
};

class SpeedTest {
 public:
  /// Makes the session for one plan, outside of what is timed.
  SpeedTest(LoadedModel& model, const SpeedPlan& plan);
  /// From an empty session to the end of the reply.
  Speed round();

 private:
  LoadedModel& model_;
  SpeedPlan plan_;
  Session session_;
  std::vector<std::int32_t> prompt_;
};

}  // namespace lily
