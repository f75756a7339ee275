#include "session/session.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "support/error.h"

namespace lily {

namespace {

std::int64_t length_of(std::span<const std::int32_t> tokens) {
  return static_cast<std::int64_t>(tokens.size());
}

std::int64_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  const std::size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first - a.begin();
}

}  // namespace

Session::Session(const Model& model, Ops& ops, const Limits& limits)
    : model_(model), ops_(ops), limits_(limits), state_(ops.new_state(limits.capacity)) {
  if (limits_.prefill_chunk == 0) limits_.prefill_chunk = ops.prefill_chunk();
  LILY_CHECK(limits_.capacity > 0 && limits_.prefill_chunk > 0 && limits_.snapshot_interval >= 0);
}

void Session::check_tokens(std::span<const std::int32_t> tokens) const {
  if (tokens.empty()) throw_error("session: there are no tokens to compute");
  if (length_of(tokens) > limits_.capacity) {
    throw Error(fmt::format("session: {} tokens do not fit the context of {}", tokens.size(), limits_.capacity),
                "shorten the conversation or give a larger --ctx");
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= model_.config.vocab_size) {
      throw_error("session: token {} has id {}, but the model's ids are 0 to {}", i, tokens[i],
                  model_.config.vocab_size - 1);
    }
  }
}

SyncResult Session::sync(std::span<const std::int32_t> tokens, const SyncOptions& options) {
  SyncResult result;
  result.reused = begin(tokens, options.snapshots);
  const auto goes_on = [&] { return !options.progress || options.progress(length_of(tokens_), length_of(tokens)); };
  while (pending() > 0) {
    if (!goes_on()) {
      pending_.clear();
      result.cancelled = true;
      return result;
    }
    const std::int64_t before = length_of(tokens_);
    advance(limits_.prefill_chunk);
    result.computed += length_of(tokens_) - before;
  }
  goes_on();
  return result;
}

std::int64_t Session::begin(std::span<const std::int32_t> tokens, std::span<const std::int64_t> snapshots) {
  check_tokens(tokens);
  stop_drawing();
  pending_.clear();
  go_back_to(common_prefix(tokens_, tokens));
  const std::int64_t reused = length_of(tokens_);
  pending_.assign(tokens.begin() + reused, tokens.end());
  snapshots_at_.assign(snapshots.begin(), snapshots.end());
  snapshots_at_.push_back(length_of(tokens));
  std::sort(snapshots_at_.begin(), snapshots_at_.end());
  return reused;
}

std::int64_t Session::reusable(std::span<const std::int32_t> tokens) const {
  const std::int64_t common = common_prefix(tokens_, tokens);
  if (common == length_of(tokens_)) return common;
  const auto after = snapshots_.upper_bound(common);
  return after == snapshots_.begin() ? 0 : std::prev(after)->first;
}

/// Leaves a prefix of at most `common` tokens whose state and logits are known.
void Session::go_back_to(std::int64_t common) {
  const bool at_end = common == length_of(tokens_);
  snapshots_.erase(snapshots_.upper_bound(common), snapshots_.end());
  if (at_end) return;
  if (snapshots_.empty()) {
    tokens_.clear();
    logits_.clear();
    state_->reset();
    return;
  }
  auto& [position, kept] = *snapshots_.rbegin();
  state_->write_recurrent(kept.snapshot->recurrent);
  logits_ = kept.snapshot->logits;
  kept.last_use = ++clock_;
  tokens_.resize(static_cast<std::size_t>(position));
}

/// The length at which the chunk that starts now must end.
std::int64_t Session::next_stop(std::int64_t max_rows) const {
  const std::int64_t here = length_of(tokens_);
  std::int64_t stop = here + std::min(pending(), max_rows);
  const auto asked = std::upper_bound(snapshots_at_.begin(), snapshots_at_.end(), here);
  if (asked != snapshots_at_.end()) stop = std::min(stop, *asked);
  if (const std::int64_t every = limits_.snapshot_interval; every > 0)
    stop = std::min(stop, (here / every + 1) * every);
  return stop;
}

void Session::advance(std::int64_t max_rows, const RowLogits& on_logits) {
  LILY_CHECK(pending() > 0 && max_rows > 0);
  const std::int64_t position = length_of(tokens_);
  const std::int64_t stop = next_stop(max_rows);
  const std::int64_t rows = stop - position;
  const auto chunk = std::span(pending_).first(static_cast<std::size_t>(rows));
  const std::array segments{Segment{.state = state_.get(), .first_row = 0, .rows = rows, .position = position}};
  std::vector<std::int64_t> logit_rows(on_logits ? static_cast<std::size_t>(rows) : 1);
  std::iota(logit_rows.begin(), logit_rows.end(), rows - static_cast<std::int64_t>(logit_rows.size()));
  std::vector<float> logits;
  try {
    const Tensor result = forward(ops_, model_, chunk, segments, logit_rows);
    logits.resize(static_cast<std::size_t>(result.rows * result.cols));
    ops_.read(result, logits);
  } catch (...) {
    reset();
    throw;
  }
  const auto vocab = static_cast<std::size_t>(model_.config.vocab_size);
  for (std::size_t i = 0; on_logits && i < logit_rows.size(); ++i) {
    on_logits(position + logit_rows[i], std::span(logits).subspan(i * vocab, vocab));
  }
  logits_.assign(logits.end() - static_cast<std::ptrdiff_t>(vocab), logits.end());
  tokens_.insert(tokens_.end(), chunk.begin(), chunk.end());
  pending_.erase(pending_.begin(), pending_.begin() + rows);
  const bool regular = limits_.snapshot_interval > 0 && stop % limits_.snapshot_interval == 0;
  if (regular || std::binary_search(snapshots_at_.begin(), snapshots_at_.end(), stop)) snapshot();
}

void Session::decode(std::int32_t token) {
  Session* const self = this;
  decode(std::span(&self, 1), std::span(&token, 1));
}

void Session::decode(std::span<Session* const> sessions, std::span<const std::int32_t> tokens) {
  LILY_CHECK(!sessions.empty() && sessions.size() == tokens.size());
  Ops& ops = sessions.front()->ops_;
  const Model& model = sessions.front()->model_;
  std::vector<Segment> segments;
  std::vector<std::int64_t> rows;
  for (Session* session : sessions) {
    LILY_CHECK(&session->ops_ == &ops && &session->model_ == &model);
    LILY_CHECK(session->pending_.empty() && !session->drawing_);
    const std::int64_t row = static_cast<std::int64_t>(segments.size());
    const std::int64_t position = length_of(session->tokens_);
    session->check_room();
    segments.push_back({.state = session->state_.get(), .first_row = row, .rows = 1, .position = position});
    rows.push_back(row);
  }
  for (const std::int32_t token : tokens) LILY_CHECK(token >= 0 && token < model.config.vocab_size);
  std::vector<float> logits;
  try {
    const Tensor result = forward(ops, model, tokens, segments, rows);
    logits.resize(static_cast<std::size_t>(result.rows * result.cols));
    ops.read(result, logits);
  } catch (...) {
    for (Session* session : sessions) session->reset();
    throw;
  }
  const auto vocab = static_cast<std::ptrdiff_t>(model.config.vocab_size);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>(i) * vocab;
    sessions[i]->logits_.assign(first, first + vocab);
    sessions[i]->tokens_.push_back(tokens[i]);
  }
}

void Session::check_room() const {
  if (length_of(tokens_) < limits_.capacity) return;
  throw Error(fmt::format("session: the context of {} tokens is full", limits_.capacity),
              "start a new conversation or give a larger --ctx");
}

bool Session::can_draw() {
  if (!loop_asked_for_) {
    loop_ = ops_.decode_loop(*state_, [this](std::span<const std::int32_t> tokens, Batch batch) {
      constexpr std::int64_t kFirst = 0;
      return forward(ops_, model_, tokens, batch, std::span(&kFirst, 1));
    });
    loop_asked_for_ = true;
  }
  return loop_ != nullptr;
}

void Session::start_drawing(DecodeLoop::Start start) {
  LILY_CHECK(can_draw() && !drawing_ && pending_.empty());
  check_room();
  start.position = length_of(tokens_);
  next_token_ = start.token;
  stops_.assign(start.stops.begin(), start.stops.end());
  drawing_ = true;
  stepped_ = false;
  try {
    loop_->start(start);
  } catch (...) {
    reset();
    throw;
  }
}

void Session::queue_draw() {
  check_room();
  loop_->submit();
  ++queued_;
}

std::int32_t Session::take_drawn() {
  const std::int32_t drawn = loop_->next();
  --queued_;
  tokens_.push_back(next_token_);
  next_token_ = drawn;
  stepped_ = true;
  return drawn;
}

std::int32_t Session::draw(bool ahead) {
  LILY_CHECK(drawing_);
  try {
    if (queued_ == 0) queue_draw();
    if (ahead && length_of(tokens_) + queued_ < limits_.capacity) queue_draw();
    const std::int32_t drawn = take_drawn();
    if (std::find(stops_.begin(), stops_.end(), drawn) != stops_.end()) end_drawing();
    return drawn;
  } catch (...) {
    reset();
    throw;
  }
}

/// Steps that are still queued have changed nothing: they came after a stop token.
void Session::end_drawing() {
  for (; queued_ > 0; --queued_) loop_->next();
  drawing_ = false;
  if (stepped_) loop_->read_logits(logits_);
}

void Session::stop_drawing() {
  if (!drawing_) return;
  try {
    while (queued_ > 0) take_drawn();
    end_drawing();
  } catch (...) {
    reset();
    throw;
  }
}

std::int32_t Session::leave_drawing() {
  LILY_CHECK(drawing_);
  try {
    if (queued_ == 0) queue_draw();
    std::int32_t drawn = 0;
    while (queued_ > 0) drawn = take_drawn();
    end_drawing();
    return drawn;
  } catch (...) {
    reset();
    throw;
  }
}

void Session::snapshot() {
  if (tokens_.empty()) return;
  if (const auto found = snapshots_.find(length_of(tokens_)); found != snapshots_.end()) {
    found->second.last_use = ++clock_;
    return;
  }
  if (state_->recurrent_bytes() > limits_.snapshot_bytes) return;  // none could be kept
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->recurrent.resize(state_->recurrent_bytes());
  state_->read_recurrent(snapshot->recurrent);
  snapshot->logits = logits_;
  keep(length_of(tokens_), std::move(snapshot));
}

void Session::keep(std::int64_t position, std::shared_ptr<const Snapshot> snapshot) {
  const std::size_t each = snapshot->bytes();
  if (each > limits_.snapshot_bytes) return;
  while (!snapshots_.empty() && (snapshots_.size() + 1) * each > limits_.snapshot_bytes) {
    snapshots_.erase(std::min_element(snapshots_.begin(), snapshots_.end(), [](const auto& a, const auto& b) {
      return a.second.last_use < b.second.last_use;
    }));
  }
  snapshots_.insert_or_assign(position, KeptSnapshot{std::move(snapshot), ++clock_});
}

SyncResult Session::rewind(std::int64_t length) {
  if (length < 0 || length > length_of(tokens_)) {
    throw_error("session: cannot rewind to {} tokens, it holds {}", length, tokens_.size());
  }
  if (length == 0) {
    reset();
    return {};
  }
  const std::vector<std::int32_t> kept(tokens_.begin(), tokens_.begin() + length);
  return sync(kept);
}

void Session::reset() {
  drawing_ = false;
  queued_ = 0;
  tokens_.clear();
  logits_.clear();
  pending_.clear();
  snapshots_.clear();
  state_->reset();
}

void Session::adopt(const CachedPrefix& prefix) {
  check_tokens(prefix.tokens);
  reset();
  for (std::int64_t block = 0; block < static_cast<std::int64_t>(prefix.blocks.size()); ++block) {
    const std::int64_t begin = block * kKvBlockTokens;
    state_->write_kv(begin, std::min(begin + kKvBlockTokens, prefix.length()),
                     *prefix.blocks[static_cast<std::size_t>(block)]);
  }
  state_->write_recurrent(prefix.snapshot->recurrent);
  logits_ = prefix.snapshot->logits;
  tokens_ = prefix.tokens;
  keep(prefix.length(), prefix.snapshot);
}

std::shared_ptr<const Snapshot> Session::snapshot_at(std::int64_t position) const {
  const auto found = snapshots_.find(position);
  LILY_CHECK(found != snapshots_.end());
  return found->second.snapshot;
}

void Session::read_kv(std::int64_t begin, std::int64_t end, std::span<std::byte> out) const {
  LILY_CHECK(0 <= begin && begin <= end && end <= length_of(tokens_));
  state_->read_kv(begin, end, out);
}

std::vector<std::int64_t> Session::snapshot_positions() const {
  std::vector<std::int64_t> positions;
  for (const auto& [position, kept] : snapshots_) positions.push_back(position);
  return positions;
}

}  // namespace lily
