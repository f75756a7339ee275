// The CPU's profile by op accounts for the time that passed, in prefill and in decode; what is left is printed as
// "other".
#include "ops/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <sstream>
#include <string>

#include "engine/loaded_model.h"
#include "session/session.h"

namespace lily {
namespace {

// Milliseconds of each line of the table, by its name.
std::vector<std::pair<std::string, double>> lines_of(const std::string& table) {
  std::vector<std::pair<std::string, double>> lines;
  std::istringstream stream(table);
  std::string line;
  std::getline(stream, line);  // the head
  while (std::getline(stream, line)) lines.emplace_back(line.substr(0, line.find("  ")), std::stod(line.substr(18, 9)));
  return lines;
}

// The share of the time that no op accounts for, the least of a few rounds: other processes get the core between ops
// too.
double least_rest(Profile& profile, const std::function<void()>& work) {
  double least = 1;
  for (int round = 0; round < 5; ++round) {
    profile.clear();
    const auto start = std::chrono::steady_clock::now();
    work();
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto lines = lines_of(profile.table(wall));
    double sum = 0;
    for (std::size_t i = 0; i + 1 < lines.size(); ++i) sum += lines[i].second;
    EXPECT_GE(lines.size(), 9U);
    EXPECT_EQ(lines.back().first, "wall");
    EXPECT_EQ(lines[lines.size() - 2].first, "other");
    EXPECT_NEAR(sum, wall * 1e3, 0.01 * static_cast<double>(lines.size()));  // printed with two digits
    const double rest = lines[lines.size() - 2].second / lines.back().second;
    EXPECT_GE(rest, 0) << "ops that took more time than passed";
    least = std::min(least, rest);
  }
  return least;
}

TEST(Profile, AccountsForTheTime) {
  Profile profile;
  LoadOptions options;
  options.device = "cpu";
  options.profile = &profile;
  LoadedModel model(options);
  Session session(model.model(), model.ops(), {.capacity = 512, .snapshot_bytes = 0, .snapshot_interval = 0});
  std::vector<std::int32_t> prompt;
  for (std::int32_t i = 0; i < 256; ++i) prompt.push_back(1 + 7 * i);
  EXPECT_LT(least_rest(profile,
                       [&] {
                         session.reset();
                         session.sync(prompt);
                       }),
            0.05);
  EXPECT_LT(least_rest(profile,
                       [&] {
                         for (std::int32_t i = 0; i < 24; ++i) session.decode(100 + i);
                       }),
            0.05);
}

}  // namespace
}  // namespace lily
