// Standard input, output and error of a command: nothing that cannot be read or written goes unnoticed, and nothing of
// it ends the process by itself.
#pragma once

#include <string>
#include <string_view>

namespace lily {

/// Streams that were closed by who started us become unusable ones, so that no file we open takes their place.
void keep_standard_streams();

/// "lily: MESSAGE" and the indented hint on standard error. A standard error that cannot be written is ignored.
void complain(std::string_view message, std::string_view hint = {});

/// Throws Error when something could not be read.
std::string read_standard_input();

/// Throws Error when something of the output could not be written.
void finish_standard_output();

}  // namespace lily
