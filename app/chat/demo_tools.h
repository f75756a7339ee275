// A few harmless tools that run in this process, to see tool calls work: /tools demo.
#pragma once

#include <string>
#include <vector>

#include "text/chat_format.h"
#include "text/tool_call_schema.h"

namespace lily {

std::vector<ToolDefinition> demo_tools();

/// The result of a call as the model gets it; wrong calls give a result that says so.
std::string run_demo_tool(const ToolCall& call);

}  // namespace lily
