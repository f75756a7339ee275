// lily selftest: every GPU kernel against the CPU's answer, as a report to paste into a bug report.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "commands.h"
#include "selftest/self_test.h"
#include "support/error.h"

namespace lily {
namespace {

void selftest(const std::string& device_name) {
  auto device = make_device(parse_device_kind(device_name));
  if (device == nullptr) {
    throw Error("no GPU on this machine", "`lily selftest --device emulated` checks the kernels on the CPU alone");
  }
  const SelfTestReport report =
      run_self_test(std::move(device), [](std::string_view part) { fmt::print(stderr, "checking: {}\n", part); });
  fmt::print("lily {}\n{}", LILY_VERSION, describe(report));
  if (!report.passed()) throw Error("some kernels are wrong here", "please report the table above; --device cpu works");
}

}  // namespace

void add_selftest(CLI::App& app) {
  auto device = std::make_shared<std::string>("auto");
  CLI::App* command = app.add_subcommand("selftest", "Check every GPU kernel against the CPU's answer");
  command->add_option("--device", *device, "auto, metal, cuda or emulated")->capture_default_str();
  command->callback([device] { selftest(*device); });
}

}  // namespace lily
