// A reply in the making: asks the server, fills a message, and says how fast it goes.
import {ApiError, streamChat} from "./api.js";

const kSampling = ["max_tokens", "thinking_budget", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "seed"];

function requestBody(messages, settings, model) {
  const body = {messages: [], chat_template_kwargs: {enable_thinking: settings.thinking}};
  if (model) body.model = model;
  if (settings.system.trim()) body.messages.push({role: "system", content: settings.system});
  for (const {role, content, reasoning} of messages) {
    const message = {role, content};
    if (reasoning) message.reasoning_content = reasoning;
    body.messages.push(message);
  }
  for (const name of kSampling) {
    if (typeof settings[name] === "number") body[name] = settings[name];
  }
  return body;
}

export class Reply {
  /// Begins at once. `onChange(reply)` is called at most once per frame, and a last time when the reply is over.
  constructor(history, settings, model, onChange) {
    this.message = {role: "assistant", content: "", reasoning: ""};
    this.tokens = 0;
    this.over = false;
    this.onChange = onChange;
    this.began = this.first = performance.now();
    this.abort = new AbortController();
    this.done = this.run(requestBody(history, settings, model));
  }

  stop() {
    this.abort.abort();
  }

  get live() {
    if (this.over) return null;
    const passed = (performance.now() - this.first) / 1000;
    return {tokens: this.tokens, rate: this.tokens > 1 && passed > 0 ? (this.tokens - 1) / passed : 0};
  }

  add(delta) {
    const {message} = this;
    if (this.tokens === 0) this.first = performance.now();
    ++this.tokens;  // the server sends a piece per token
    message.reasoning += delta.reasoning_content ?? "";
    if (delta.content && !message.content) message.thought_ms = performance.now() - this.began;
    message.content += delta.content ?? "";
    this.changed();
  }

  changed() {
    if (this.frame) return;
    this.frame = setTimeout(() => {  // not requestAnimationFrame, which stands still in a hidden tab
      this.frame = 0;
      this.onChange(this);
    }, 40);
  }

  async run(body) {
    const {message} = this;
    try {
      const end = await streamChat(body, this.abort.signal, (delta) => this.add(delta));
      message.timings = end.timings;
      if (end.finish_reason === "length") message.note = "stopped at the most tokens allowed";
    } catch (error) {
      if (this.abort.signal.aborted) message.note = "stopped";
      else message.error = error instanceof ApiError ? error.message : "The server cannot be reached.";
    }
    message.thought_ms ??= performance.now() - this.began;
    this.over = true;
    clearTimeout(this.frame);
    this.onChange(this);
  }
}
