#include "bench_report.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "benchmark/chart.h"
#include "benchmark/trace.h"
#include "support/error.h"

namespace lily {
namespace {

double per(std::uint64_t total, std::int64_t count) {
  return count == 0 ? 0 : static_cast<double>(total) / static_cast<double>(count);
}

std::string rate(const Spread& spread) {
  return fmt::format("{:>9.1f} ({:.1f} to {:.1f})", spread.median, spread.least, spread.most);
}

std::string share(const std::optional<double>& of) {
  return of ? fmt::format("{:.0f}%", 100 * *of) : "";
}

std::string ratio(const Spread& ours, const std::optional<Spread>& theirs) {
  return theirs ? fmt::format("{:.2f}x of {:.1f}", ours.median / theirs->median, theirs->median) : "";
}

nlohmann::json json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.least}, {"max", spread.most}};
}

nlohmann::json json(const Trace& trace) {
  return {{"dispatches_per_token", per(trace.decode.dispatches, trace.tokens)},
          {"stages_per_token", per(trace.decode.stages, trace.tokens)},
          {"weight_bytes_per_token", per(trace.decode.weight_bytes, trace.tokens)},
          {"dispatches_per_chunk", per(trace.prefill.dispatches, trace.chunks)},
          {"stages_per_chunk", per(trace.prefill.stages, trace.chunks)},
          {"weight_bytes_per_chunk", per(trace.prefill.weight_bytes, trace.chunks)}};
}

/// Of one token and one chunk.
nlohmann::json json(const LaunchCount& count) {
  nlohmann::json entry =
      json(Trace{.tokens = 1, .chunks = 1, .decode = count.decode, .prefill = count.prefill, .expected = {}});
  for (auto& value : entry) value = value.get<std::uint64_t>();
  entry["path"] = count.path;
  return entry;
}

nlohmann::json json(const ProfiledRound& round) {
  nlohmann::json ops = nlohmann::json::array();
  double other = round.seconds;
  for (const Profile::Entry& entry : round.profile.entries()) {
    ops.push_back({{"op", entry.name},
                   {"ms", entry.seconds * 1e3},
                   {"calls", entry.calls},
                   {"bytes", entry.bytes},
                   {"operations", entry.operations}});
    other -= entry.seconds;
  }
  return {{"ops", ops}, {"other_ms", other * 1e3}, {"wall_ms", round.seconds * 1e3}};
}

nlohmann::json json(const BenchResult& result) {
  nlohmann::json entry = {{"length", result.length},
                          {"prefill_tokens_per_second", json(result.prefill)},
                          {"decode_tokens_per_second", json(result.decode)},
                          {"first_token_seconds", json(result.first_token)}};
  if (result.bandwidth_share) entry["decode_share_of_bandwidth"] = *result.bandwidth_share;
  if (result.matrix_share) entry["prefill_share_of_matrix_rate"] = *result.matrix_share;
  if (result.peer_prefill) entry["peer_prefill_tokens_per_second"] = json(*result.peer_prefill);
  if (result.peer_decode) entry["peer_decode_tokens_per_second"] = json(*result.peer_decode);
  if (result.trace.decode.dispatches > 0) entry["trace"] = json(result.trace);
  if (result.trace.expected) {
    const LaunchCount& expected = *result.trace.expected;
    entry["trace"]["path"] = expected.path;
    entry["trace"]["as_counted"] = result.trace.decode == expected.decode && result.trace.prefill == expected.prefill;
  }
  if (result.profiled) entry["profile"] = json(*result.profiled);
  return entry;
}

}  // namespace

void print_header(const BenchReport& report) {
  fmt::print("{} on {}{}{}, {} tokens of reply, {}, {} round{}; {}{}\n", report.model, report.device,
             report.device_name.empty() ? "" : " (" + report.device_name + ")",
             report.threads > 0 ? fmt::format(", {} threads", report.threads) : "", report.tokens,
             report.sampled ? "sampled" : "greedy", report.rounds, report.rounds == 1 ? "" : "s", report.started,
             report.load.empty() ? "" : ", load " + report.load);
  if (report.bandwidth) fmt::print("memory bandwidth, measured: {:.1f} GB/s\n", *report.bandwidth / 1e9);
  if (report.matrix_rate) fmt::print("matrix rate, measured: {:.2f} T/s\n", *report.matrix_rate / 1e12);
  fmt::print("\n{:>8}  {:<32}{:<10}{:<32}{:<10}{:<14}{}\n", "prompt", "  prefill tok/s", "of rate", "  decode tok/s",
             "of limit", "first token", report.peer_command.empty() ? "" : "prefill, decode against the peer");
}

void print_result(const BenchReport& report, const BenchResult& result) {
  const std::string peer = report.peer_command.empty() ? ""
                                                       : ratio(result.prefill, result.peer_prefill) + ", " +
                                                             ratio(result.decode, result.peer_decode);
  fmt::print("{:>8}  {:<32}{:<10}{:<32}{:<10}{:<14}{}\n", result.length, rate(result.prefill),
             share(result.matrix_share), rate(result.decode), share(result.bandwidth_share),
             fmt::format("{:.3f} s", result.first_token.median), peer);
  std::fflush(stdout);
}

void print_trace(const BenchReport& report) {
  fmt::print("\n{:>8}  {:>12}{:>12}{:>16}   {:>12}{:>12}{:>16}\n", "prompt", "launches", "stages", "weight bytes",
             "launches", "stages", "weight bytes");
  fmt::print("{:>8}  {:>40}   {:>40}\n", "", "for each token of the reply", "for each chunk of the prompt");
  for (const BenchResult& result : report.results) {
    const Trace& t = result.trace;
    fmt::print("{:>8}  {:>12.1f}{:>12.1f}{:>16.0f}   {:>12.1f}{:>12.1f}{:>16.0f}\n", result.length,
               per(t.decode.dispatches, t.tokens), per(t.decode.stages, t.tokens), per(t.decode.weight_bytes, t.tokens),
               per(t.prefill.dispatches, t.chunks), per(t.prefill.stages, t.chunks),
               per(t.prefill.weight_bytes, t.chunks));
  }
  for (const BenchResult& result : report.results) {
    const Trace& t = result.trace;
    if (!t.expected) continue;
    const bool same = t.decode == t.expected->decode && t.prefill == t.expected->prefill;
    fmt::print("Prompt of {}: {} as counted for {} without running it.\n", result.length,
               same ? "the same" : "NOT THE SAME", t.expected->path);
  }
  fmt::print("One token's weights have {} bytes in the checkpoint.\n", report.active_weight_bytes);
}

void print_profiles(const BenchReport& report) {
  for (const BenchResult& result : report.results) {
    if (!result.profiled) continue;
    fmt::print("\nprompt of {} and {} tokens of reply, by op:\n{}", result.length, report.tokens,
               result.profiled->profile.table(result.profiled->seconds));
  }
}

void print_trace(const FullShapeTrace& trace) {
  fmt::print(
      "Qwen3.6-35B-A3B on a GPU, counted without running it: a token of the reply, a chunk of {} prompt tokens\n\n",
      trace.chunk_rows);
  fmt::print("{:<28}{:<8}{:>12}{:>12}{:>16}\n", "", "", "launches", "stages", "weight bytes");
  for (const LaunchCount& path : trace.paths) {
    for (const auto& [what, counters] : {std::pair("token", path.decode), std::pair("chunk", path.prefill)})
      fmt::print("{:<28}{:<8}{:>12}{:>12}{:>16}\n", path.path, what, counters.dispatches, counters.stages,
                 counters.weight_bytes);
  }
  fmt::print("\nOne token needs {} bytes of matrices.\n", trace.least_weight_bytes);
}

std::string csv_of(const FullShapeTrace& trace) {
  std::string csv = "path,of,tokens,launches,stages,weight_bytes\n";
  for (const LaunchCount& path : trace.paths) {
    const auto line = [&](const char* of, std::int64_t tokens, const Counters& count) {
      csv +=
          fmt::format("{},{},{},{},{},{}\n", path.path, of, tokens, count.dispatches, count.stages, count.weight_bytes);
    };
    line("token", 1, path.decode);
    line("chunk", trace.chunk_rows, path.prefill);
  }
  return csv;
}

std::string json_of(const FullShapeTrace& trace) {
  nlohmann::json paths = nlohmann::json::array();
  for (const LaunchCount& path : trace.paths) paths.push_back(json(path));
  nlohmann::json json = paths.front();  // what all paths share, and the portable path's chunk
  json.erase("path");
  json["least_weight_bytes_per_token"] = trace.least_weight_bytes;
  json["tokens_per_chunk"] = trace.chunk_rows;
  json["paths"] = paths;
  return json.dump(2);
}

std::string csv_of(const BenchReport& report) {
  std::string csv =
      "model,device,threads,length,tokens,rounds,prefill_median,prefill_min,prefill_max,decode_median,decode_min,"
      "decode_max,first_token_seconds,peer_prefill_median,peer_decode_median\n";
  const auto peer = [](const std::optional<Spread>& spread) {
    return spread ? fmt::format("{:.2f}", spread->median) : std::string();
  };
  for (const BenchResult& r : report.results) {
    csv += fmt::format("{},{},{},{},{},{},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.4f},{},{}\n", report.model,
                       report.device, report.threads, r.length, report.tokens, report.rounds, r.prefill.median,
                       r.prefill.least, r.prefill.most, r.decode.median, r.decode.least, r.decode.most,
                       r.first_token.median, peer(r.peer_prefill), peer(r.peer_decode));
  }
  return csv;
}

std::string json_of(const BenchReport& report) {
  nlohmann::json results = nlohmann::json::array();
  for (const BenchResult& result : report.results) results.push_back(json(result));
  nlohmann::json whole = {{"model", report.model},
                          {"device", report.device},
                          {"device_name", report.device_name},
                          {"started", report.started},
                          {"load", report.load},
                          {"threads", report.threads},
                          {"tokens", report.tokens},
                          {"rounds", report.rounds},
                          {"sampled", report.sampled},
                          {"results", results},
                          {"active_weight_bytes", report.active_weight_bytes}};
  if (report.bandwidth) whole["bandwidth_bytes_per_second"] = *report.bandwidth;
  if (report.matrix_rate) whole["matrix_operations_per_second"] = *report.matrix_rate;
  if (!report.peer_command.empty()) whole["peer_command"] = report.peer_command;
  return whole.dump(2);
}

void write_charts(const BenchReport& report, const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw_error("{}: cannot be made: {}", directory.string(), error.message());
  Series prefill{.name = "lily", .points = {}}, decode = prefill;
  Series peer_prefill{.name = "peer", .points = {}}, peer_decode = peer_prefill;
  for (const BenchResult& r : report.results) {
    const auto x = static_cast<double>(r.length);
    prefill.points.emplace_back(x, r.prefill.median);
    decode.points.emplace_back(x, r.decode.median);
    if (r.peer_prefill) peer_prefill.points.emplace_back(x, r.peer_prefill->median);
    if (r.peer_decode) peer_decode.points.emplace_back(x, r.peer_decode->median);
  }
  const auto write = [&](const char* what, const Series& ours, const Series& theirs) {
    Chart chart{.title = fmt::format("{}, {} on {}", what, report.model, report.device),
                .x_label = "prompt tokens",
                .y_label = "tokens per second",
                .series = {ours}};
    if (!theirs.points.empty()) chart.series.push_back(theirs);
    write_file(directory / fmt::format("{}.svg", what), svg_of(chart));
  };
  write("prefill", prefill, peer_prefill);
  write("decode", decode, peer_decode);
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw_error("{}: cannot be written", path.string());
}

}  // namespace lily
