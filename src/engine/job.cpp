#include "engine/job.h"

namespace lily {

void EventChannel::push(StreamEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  changed_.notify_one();
}

std::optional<StreamEvent> EventChannel::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [this] { return !events_.empty(); })) return {};
  StreamEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace lily
