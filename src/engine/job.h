// One request inside the engine: what is wanted, the channel its events go through, and what is measured of it. The
// engine's thread writes events; the client's thread reads them and may cancel.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "engine/engine.h"

namespace lily {

class EventChannel {
 public:
  void push(StreamEvent event);
  std::optional<StreamEvent> next(std::chrono::milliseconds timeout);

  void cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StreamEvent> events_;
  std::atomic<bool> cancelled_ = false;
};

struct Job {
  using Clock = std::chrono::steady_clock;

  Job(EngineRequest wanted, Generation reply) : request(std::move(wanted)), generation(std::move(reply)) {}

  EngineRequest request;
  Generation generation;
  std::shared_ptr<EventChannel> events = std::make_shared<EventChannel>();
  std::optional<Sampler> prompt_scorer;
  PromptLogprobs prompt_logprobs;
  CacheUse cache;
  std::vector<std::int32_t> generated;
  Clock::time_point submitted = Clock::now();
  double queue_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

inline double seconds_since(Job::Clock::time_point start) {
  return std::chrono::duration<double>(Job::Clock::now() - start).count();
}

}  // namespace lily
