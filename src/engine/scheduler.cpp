#include "engine/scheduler.h"

#include <algorithm>
#include <limits>

#include "engine/reuse_check.h"
#include "support/error.h"
#include "support/machine_memory.h"

namespace lily {
namespace {

constexpr std::int64_t kScoredRows = 64;           // rows whose logits are held at once: 64 MB at the full vocabulary
constexpr std::int64_t kRowsBesideDecoding = 128;  // prefill rows between two tokens of running replies
constexpr std::uint64_t kOldestTurn = 4;
constexpr std::int64_t kReplyTokens = 256;
constexpr std::uint64_t kSnapshotsOfAPrompt = 4;

std::int64_t length_of(std::span<const std::int32_t> tokens) {
  return static_cast<std::int64_t>(tokens.size());
}

std::optional<std::int32_t> token_at(std::span<const std::int32_t> tokens, std::int64_t position) {
  if (position >= length_of(tokens)) return {};
  return tokens[static_cast<std::size_t>(position)];
}

PrefixStore::Shape shape_of(LoadedModel& model) {
  const auto state = model.ops().new_state(1);
  return {.model_id = model.id(),
          .layout = model.arithmetic().empty() ? state->layout() : state->layout() + "-" + model.arithmetic(),
          .recurrent_bytes = state->recurrent_bytes(),
          .kv_bytes_per_token = state->kv_bytes_per_token(),
          .vocab = static_cast<std::size_t>(model.config().vocab_size)};
}

}  // namespace

Scheduler::Scheduler(LoadedModel& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      shape_(shape_of(model)),
      slots_(static_cast<std::size_t>(options.parallel)),
      cache_(options.cache_bytes) {
  if (!options.cache_directory.empty()) {
    store_ = std::make_unique<PrefixStore>(options.cache_directory, shape_, options.cache_disk_bytes);
  }
  if (!options_.available_memory && model.gpu() == nullptr) {
    options_.available_memory = [] {
      const auto memory = machine_memory();
      return memory ? memory->available : std::numeric_limits<std::uint64_t>::max();
    };
  }
}

bool Scheduler::has_free_slot() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.job == nullptr; });
}

bool Scheduler::idle() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.job == nullptr; });
}

void Scheduler::start(std::shared_ptr<Job> job) {
  job->queue_seconds = seconds_since(job->submitted);
  Slot* placed = nullptr;
  try {
    placed = &place(*job, job->cache);
  } catch (const std::exception& error) {
    fail(*job, error);
    return;
  }
  Slot& slot = *placed;
  slot.job = std::move(job);
  slot.last_use = Job::Clock::now();
  const EngineRequest& request = slot.job->request;
  try {
    if (request.score_prompt) slot.session->reset();
    slot.session->begin(request.prompt, request.snapshots);
    const std::int64_t cached = slot.job->cache.cached_tokens;
    stats_.prompt_tokens += static_cast<std::uint64_t>(cached);
    stats_.cached_tokens += static_cast<std::uint64_t>(cached);
    slot.checked = options_.verify_cache ? cached : 0;
    if (slot.session->pending() == 0) prompt_done(slot);
  } catch (const std::exception& error) {
    fail(slot, error);
  }
}

/// The free slot whose session has most of the prompt, or the longest unused one, which then takes a cached prefix.
Scheduler::Slot& Scheduler::place(const Job& job, CacheUse& use) {
  const std::vector<std::int32_t>& prompt = job.request.prompt;
  Slot* best = nullptr;
  Slot* oldest = nullptr;
  std::int64_t live = 0;
  for (Slot& slot : slots_) {
    if (slot.job != nullptr) continue;
    if (oldest == nullptr || slot.last_use < oldest->last_use) oldest = &slot;
    if (slot.session == nullptr) continue;
    const std::int64_t reusable = slot.session->reusable(prompt);
    if (reusable > live) {
      live = reusable;
      best = &slot;
    }
  }
  LILY_CHECK(oldest != nullptr);
  PrefixCache::Match match = cache_.find(prompt);
  use = nearest_known(prompt, match);
  if (job.request.score_prompt) match.prefix = nullptr;

  const std::int64_t cached = match.prefix ? match.prefix->length() : 0;
  std::shared_ptr<const CachedPrefix> stored;
  if (store_ && !job.request.score_prompt) stored = store_->find(prompt, std::max(live, cached));
  Slot& slot = best != nullptr && !stored && live >= cached ? *best : *oldest;
  require_memory(job, slot);
  if (slot.session == nullptr) slot.session = std::make_unique<Session>(model_.model(), model_.ops(), options_.session);
  slot.touched = std::max(slot.touched, length_of(prompt));
  if (job.request.score_prompt) return slot;
  if (stored) {
    cache_.insert(stored);
    slot.session->adopt(*stored);
    use.source = CacheUse::Source::kDisk;
  } else if (cached > live) {
    slot.session->adopt(*match.prefix);
    use.source = CacheUse::Source::kMemory;
  } else if (live > 0) {
    use.source = CacheUse::Source::kLive;
  }
  use.cached_tokens = slot.session->reusable(prompt);
  if (use.cached_tokens > use.common_tokens) {  // written to disk since
    use.common_tokens = use.cached_tokens;
    use.known_token.reset();
    use.prompt_token = token_at(prompt, use.cached_tokens);
  }
  return slot;
}

/// Refuses a prompt whose state would not fit the memory, rather than have the system end the process. What is only
/// kept for later makes room first. Replies grow slowly: a short one counts.
void Scheduler::require_memory(const Job& job, const Slot& slot) {
  if (!options_.available_memory) return;
  const std::int64_t tokens = std::min(length_of(job.request.prompt) + kReplyTokens, options_.session.capacity);
  const auto new_tokens = static_cast<std::uint64_t>(std::max<std::int64_t>(0, tokens - slot.touched));
  const std::uint64_t needed = new_tokens * shape_.kv_bytes_per_token + kSnapshotsOfAPrompt * shape_.recurrent_bytes;
  if (needed <= options_.available_memory()) return;
  cache_ = PrefixCache(options_.cache_bytes);
  for (Slot& other : slots_) {
    if (other.job != nullptr || &other == &slot) continue;
    other.session.reset();
    other.touched = 0;
  }
  if (const std::uint64_t available = options_.available_memory(); needed > available) {
    throw_error("{} prompt tokens need {} MB of memory, {} MB are available", job.request.prompt.size(),
                needed / 1000000, available / 1000000);
  }
}

/// How far the prompt is known: to the cache in memory or on disk, or to a session, one that is in use too.
CacheUse Scheduler::nearest_known(std::span<const std::int32_t> prompt, const PrefixCache::Match& match) const {
  CacheUse use{.common_tokens = match.common, .known_token = match.known_token};
  for (const Slot& slot : slots_) {
    if (slot.session == nullptr) continue;
    const std::span<const std::int32_t> known = slot.session->tokens();
    const auto common = std::ranges::mismatch(known, prompt).in1 - known.begin();
    const std::optional<std::int32_t> next = token_at(known, common);
    if (common < use.common_tokens || (common == use.common_tokens && (use.known_token || !next))) continue;
    use.common_tokens = common;
    use.known_token = next;
  }
  if (store_) {
    const PrefixStore::Nearest stored = store_->nearest(prompt);
    if (stored.common > use.common_tokens || (stored.common == use.common_tokens && !use.known_token)) {
      use.common_tokens = stored.common;
      use.known_token = stored.known_token;
    }
  }
  use.prompt_token = token_at(prompt, use.common_tokens);
  return use;
}

void Scheduler::step() {
  drop_cancelled();
  prefill_one_chunk();
  decode_one_token_each();
  stats_.running = std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.job != nullptr; });
  stats_.cache_bytes = cache_.bytes();
  stats_.cache_entries = cache_.size();
}

void Scheduler::drop_cancelled() {
  for (Slot& slot : slots_) {
    if (slot.job != nullptr && slot.job->events->cancelled()) finish(slot, FinishReason::kCancelled);
  }
}

Scheduler::Slot* Scheduler::next_prefill() {
  std::vector<Slot*> waiting;
  for (Slot& slot : slots_) {
    if (slot.job != nullptr && slot.session->pending() > 0) waiting.push_back(&slot);
  }
  if (waiting.empty()) return nullptr;
  if (++chunks_ % kOldestTurn == 0) {
    return *std::min_element(waiting.begin(), waiting.end(),
                             [](const Slot* a, const Slot* b) { return a->job->submitted < b->job->submitted; });
  }
  return *std::min_element(waiting.begin(), waiting.end(),
                           [](const Slot* a, const Slot* b) { return a->session->pending() < b->session->pending(); });
}

void Scheduler::prefill_one_chunk() {
  Slot* slot = next_prefill();
  if (slot == nullptr) return;
  Job& job = *slot->job;
  const bool others_decode = std::any_of(slots_.begin(), slots_.end(), [](const Slot& other) {
    return other.job != nullptr && other.session->pending() == 0;
  });
  std::int64_t rows = slot->session->prefill_chunk();
  if (others_decode) rows = std::min(rows, kRowsBesideDecoding);
  const std::int64_t before = slot->session->pending();
  const auto start = Job::Clock::now();
  try {
    if (job.request.score_prompt) {
      slot->session->advance(std::min(rows, kScoredRows), [&](std::int64_t position, std::span<const float> logits) {
        score_prompt(job, position, logits);
      });
    } else {
      slot->session->advance(rows);
    }
    const double seconds = seconds_since(start);
    job.prefill_seconds += seconds;
    stats_.prefill_seconds += seconds;
    stats_.prompt_tokens += static_cast<std::uint64_t>(before - slot->session->pending());
    const auto total = length_of(job.request.prompt);
    job.events->push(PrefillProgress{.done = total - slot->session->pending(), .total = total});
    if (slot->session->pending() == 0) prompt_done(*slot);
  } catch (const std::exception& error) {
    fail(*slot, error);
  }
}

void Scheduler::score_prompt(Job& job, std::int64_t position, std::span<const float> logits) const {
  const std::vector<std::int32_t>& prompt = job.request.prompt;
  const auto next = static_cast<std::size_t>(position) + 1;
  if (next >= prompt.size()) return;
  if (!job.prompt_scorer) {
    job.prompt_scorer.emplace(SamplingParams{}, model_.tokenizer().size(),
                              std::max(0, job.request.generation.top_logprobs));
  }
  job.prompt_logprobs.tokens.push_back(job.prompt_scorer->score(logits, prompt[next]));
}

void Scheduler::prompt_done(Slot& slot) {
  Job& job = *slot.job;
  if (slot.checked > 0) verify(slot);
  remember(*slot.session);
  if (job.request.score_prompt) job.events->push(std::move(job.prompt_logprobs));
}

/// Computes the prompt from nothing and compares. A difference is our own fault and must not pass unseen.
void Scheduler::verify(const Slot& slot) const {
  Session cold(model_.model(), model_.ops(), options_.session);
  cold.sync(slot.job->request.prompt);
  check_reuse(slot.session->logits(), cold.logits(), model_.gpu() == nullptr ? Equality::kBits : Equality::kRounding,
              slot.checked);
}

/// `alone`: no other job wants the device.
GeneratedToken Scheduler::next_token(Slot& slot, bool alone) {
  Session& session = *slot.session;
  Generation& generation = slot.job->generation;
  if (!session.drawing()) return generation.next(session.logits());
  const auto start = Job::Clock::now();
  const std::int32_t token = alone ? session.draw(generation.goes_on()) : session.leave_drawing();
  const double seconds = seconds_since(start);
  slot.job->decode_seconds += seconds;
  stats_.decode_seconds += seconds;
  return generation.take(token);
}

void Scheduler::decode_one_token_each() {
  const bool alone = std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.job != nullptr; }) == 1;
  std::vector<Slot*> running;
  std::vector<Session*> sessions;
  std::vector<std::int32_t> tokens;
  for (Slot& slot : slots_) {
    if (slot.job == nullptr || slot.session->pending() > 0) continue;
    Job& job = *slot.job;
    try {
      GeneratedToken token = next_token(slot, alone);
      ++stats_.generated_tokens;
      if (!token.is_end) job.generated.push_back(token.sampled.token);
      const std::optional<FinishReason> reason = token.finish;
      const std::int32_t id = token.sampled.token;
      job.events->push(std::move(token));
      if (reason) {
        finish(slot, *reason);
        continue;
      }
      if (slot.session->drawing() || (alone && job.generation.start_drawing(*slot.session, id))) continue;
      running.push_back(&slot);
      sessions.push_back(slot.session.get());
      tokens.push_back(id);
    } catch (const std::exception& error) {
      fail(slot, error);
    }
  }
  if (running.empty()) return;
  const auto start = Job::Clock::now();
  try {
    Session::decode(sessions, tokens);
  } catch (const std::exception& error) {
    for (Slot* slot : running) fail(*slot, error);
    return;
  }
  const double seconds = seconds_since(start);
  for (Slot* slot : running) slot->job->decode_seconds += seconds;
  stats_.decode_seconds += seconds * static_cast<double>(running.size());
}

void Scheduler::finish(Slot& slot, FinishReason reason) {
  Job& job = *slot.job;
  try {
    slot.session->stop_drawing();
  } catch (const std::exception& error) {
    fail(slot, error);
    return;
  }
  if (reason != FinishReason::kCancelled && slot.session->pending() == 0) {
    slot.session->snapshot();
    remember(*slot.session);
  }
  ++stats_.requests;
  if (reason == FinishReason::kCancelled) ++stats_.cancelled;
  job.events->push(Finished{.reason = reason,
                            .prompt_tokens = length_of(job.request.prompt),
                            .generated_tokens = job.generation.count(),
                            .cache = job.cache,
                            .queue_seconds = job.queue_seconds,
                            .prefill_seconds = job.prefill_seconds,
                            .decode_seconds = job.decode_seconds,
                            .matched_stop = job.generation.matched_stop(),
                            .tokens = std::move(job.generated)});
  slot.touched = std::max(slot.touched, length_of(slot.session->tokens()));
  slot.job = nullptr;
  slot.last_use = Job::Clock::now();
}

void Scheduler::fail(const Job& job, const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  ++stats_.requests;
  ++stats_.failed;
  job.events->push(Failed{.message = error.what(), .hint = known != nullptr ? known->hint() : ""});
}

void Scheduler::fail(Slot& slot, const std::exception& error) {
  fail(*slot.job, error);
  slot.job = nullptr;
  slot.session->reset();
}

void Scheduler::cancel_all() {
  for (Slot& slot : slots_) {
    if (slot.job != nullptr) finish(slot, FinishReason::kCancelled);
  }
}

void Scheduler::remember(Session& session) {
  for (auto& prefix : cache_.insert(session)) {
    if (store_) store_->insert(std::move(prefix));
  }
}

}  // namespace lily
