// What a JSON schema may not ask for, because replies could not be held to it: xgrammar passes over such keywords in
// silence, or with a line in the server's log that carries the client's text.
#pragma once

#include <string>

namespace lily {

/// Throws Error that names the keyword and its place: `not`, `multipleOf`, `if`, `contains`, several schemas in
/// `allOf`, empty lists, a `$ref` out of the schema, patterns that look around or back. A text that is no JSON passes.
void check_schema(const std::string& schema);

}  // namespace lily
