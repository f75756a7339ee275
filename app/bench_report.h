// What `lily bench` found, and how it is written: a table, CSV, JSON and charts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "benchmark/speed.h"
#include "benchmark/trace.h"
#include "ops/profile.h"

namespace lily {

/// Launches for the tokens of the reply and the chunks of the prompt, as the device counted them.
struct Trace {
  std::int64_t tokens = 0;  // of the reply that the device computed
  std::int64_t chunks = 0;
  Counters decode, prefill;  // in all
  /// What was counted for this device's path without running it; none on the CPU.
  std::optional<LaunchCount> expected;
};

/// One round by op.
struct ProfiledRound {
  double seconds = 0;  // that passed
  Profile profile;
};

struct BenchResult {
  std::int64_t length = 0;
  Spread prefill, decode;                 // tokens per second
  Spread first_token;                     // seconds
  std::optional<double> bandwidth_share;  // of decode: bytes it must move against the machine's measured bandwidth
  std::optional<double> matrix_share;     // of prefill: operations of its products against the measured matrix rate
  std::optional<Spread> peer_prefill, peer_decode;  // tokens per second
  Trace trace;
  std::optional<ProfiledRound> profiled;
};

struct BenchReport {
  std::string model, device, device_name, started, load;
  int threads = 0;  // 0: not the CPU
  std::int64_t tokens = 0;
  int rounds = 0;
  bool sampled = false;
  std::optional<double> bandwidth;    // bytes per second
  std::optional<double> matrix_rate;  // multiplications and additions per second
  std::uint64_t active_weight_bytes = 0;
  std::string peer_command;
  std::vector<BenchResult> results;
};

void print_header(const BenchReport& report);
void print_result(const BenchReport& report, const BenchResult& result);
void print_trace(const BenchReport& report);
void print_profiles(const BenchReport& report);
void print_trace(const FullShapeTrace& trace);
std::string csv_of(const BenchReport& report);
std::string csv_of(const FullShapeTrace& trace);
std::string json_of(const BenchReport& report);
std::string json_of(const FullShapeTrace& trace);
/// Writes prefill.svg and decode.svg.
void write_charts(const BenchReport& report, const std::filesystem::path& directory);

/// Throws Error when the file cannot be written.
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace lily
