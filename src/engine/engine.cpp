#include "engine/engine.h"

#include <thread>

#include "engine/scheduler.h"
#include "support/error.h"

namespace lily {
namespace {

class JobStream final : public Stream {
 public:
  explicit JobStream(std::shared_ptr<EventChannel> events) : events_(std::move(events)) {}
  JobStream(const JobStream&) = delete;
  JobStream& operator=(const JobStream&) = delete;
  ~JobStream() override { events_->cancel(); }

  std::optional<StreamEvent> next(std::chrono::milliseconds timeout) override { return events_->next(timeout); }
  void cancel() override { events_->cancel(); }

 private:
  std::shared_ptr<EventChannel> events_;
};

}  // namespace

struct Engine::Impl {
  Impl(LoadedModel& loaded, const EngineOptions& engine_options)
      : model(loaded), options(engine_options), scheduler(loaded, engine_options), thread([this] { run(); }) {}
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    thread.join();
  }

  void run();
  void end_waiting_cancelled();

  LoadedModel& model;
  EngineOptions options;
  Scheduler scheduler;  // used by the engine's thread alone, but for disk_bytes()

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> waiting;
  EngineStats stats;
  std::uint64_t left_while_waiting = 0;  // requests whose client went away before they had a turn
  bool stopping = false;

  std::thread thread;  // last: it uses all of the above
};

void Engine::Impl::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return stopping || !waiting.empty() || !scheduler.idle(); });
    if (stopping) break;
    end_waiting_cancelled();
    while (!waiting.empty() && scheduler.has_free_slot()) {
      std::shared_ptr<Job> job = std::move(waiting.front());
      waiting.pop_front();
      ++stats.running;
      lock.unlock();
      scheduler.start(std::move(job));
      lock.lock();
    }
    lock.unlock();
    scheduler.step();
    lock.lock();
    stats = scheduler.stats();
  }
  lock.unlock();
  scheduler.cancel_all();
  lock.lock();
  for (const auto& job : waiting) job->events->push(Finished{.reason = FinishReason::kCancelled});
  waiting.clear();
}

/// A client that left while its request was waiting frees its place in the queue.
void Engine::Impl::end_waiting_cancelled() {
  std::erase_if(waiting, [this](const std::shared_ptr<Job>& job) {
    if (!job->events->cancelled()) return false;
    job->events->push(Finished{.reason = FinishReason::kCancelled});
    ++left_while_waiting;
    return true;
  });
}

Engine::Engine(LoadedModel& model, const EngineOptions& options) {
  LILY_CHECK(options.parallel > 0 && options.queue >= 0);
  impl_ = std::make_unique<Impl>(model, options);
}

Engine::~Engine() = default;

std::unique_ptr<Stream> Engine::submit(EngineRequest request) {
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t capacity = impl_->options.session.capacity;
  if (length == 0) throw_error("the prompt has no tokens");
  for (const std::int32_t token : request.prompt) {
    if (token < 0 || token >= impl_->model.tokenizer().size()) {
      throw_error("the prompt has token id {}, the tokenizer's ids are 0 to {}", token,
                  impl_->model.tokenizer().size() - 1);
    }
  }
  if (length > capacity) throw ContextTooLong(length, capacity);
  const LoadedModel& model = impl_->model;
  Generation generation(model.tokenizer(), model.config().eos_token_ids, request.generation,
                        room_after(length, capacity));
  auto job = std::make_shared<Job>(std::move(request), std::move(generation));
  auto stream = std::make_unique<JobStream>(job->events);
  {
    const std::lock_guard lock(impl_->mutex);
    const auto places = static_cast<std::size_t>(impl_->options.queue + impl_->options.parallel);
    if (impl_->waiting.size() + static_cast<std::size_t>(impl_->stats.running) >= places) throw QueueFull();
    impl_->waiting.push_back(std::move(job));
  }
  impl_->changed.notify_all();
  return stream;
}

const EngineOptions& Engine::options() const {
  return impl_->options;
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(impl_->mutex);
  EngineStats stats = impl_->stats;
  stats.requests += impl_->left_while_waiting;
  stats.cancelled += impl_->left_while_waiting;
  stats.waiting = static_cast<std::int64_t>(impl_->waiting.size());
  stats.cache_disk_bytes = impl_->scheduler.disk_bytes();
  return stats;
}

}  // namespace lily
