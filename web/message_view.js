// One message as elements: text, folded thinking, what it cost, and its buttons.
import {button, copyButton, count, element} from "./dom.js";
import {showMarkdown} from "./markdown.js";

function seconds(milliseconds) {
  return `${(milliseconds / 1000).toFixed(milliseconds < 10000 ? 1 : 0)} s`;
}

function reuse(timings) {
  const total = timings.cache_n + timings.prompt_n;
  const difference = timings.cache?.first_difference;
  let why = `${timings.cache_n} of ${total} prompt tokens did not have to be computed again.`;
  if (difference) {
    why += ` The first new one is token ${difference.position}: ${JSON.stringify(difference.prompt)} instead of ` +
           `${JSON.stringify(difference.cached)}.`;
  }
  return element("span", {title: why, textContent: `${count(timings.cache_n)} of ${count(total)} prompt tokens reused`});
}

function costs(timings) {
  const wait = (timings.queue_ms ?? 0) + timings.prompt_ms;
  return [
    element("span", {textContent: `${timings.predicted_per_second.toFixed(1)} tokens/s`}),
    element("span", {textContent: `${count(timings.predicted_n)} tokens`}),
    reuse(timings),
    element("span", {textContent: `first token after ${seconds(wait)}`}),
  ];
}

export class MessageView {
  /// actions: {edit(), regenerate()}
  constructor(message, actions) {
    this.message = message;
    this.node = element("article", {className: `message ${message.role}`, "aria-label": message.role === "user" ? "You" : "lily"});
    if (message.role === "user") {
      this.node.append(element("div", {className: "bubble", textContent: message.content}),
                       this.buttons(button("Edit", actions.edit, {className: "plain small", "aria-label": "Edit message"})));
      return;
    }
    this.summary = element("summary");
    this.reasoning = element("div", {className: "reasoning"});
    this.thinking = element("details", {className: "thinking"}, this.summary, this.reasoning);
    this.content = element("div", {className: "content"});
    this.problem = element("p", {className: "problem", role: "alert"});
    this.costs = element("span", {className: "costs"});
    this.node.append(this.thinking, this.content, this.problem, this.buttons(
      button("Regenerate", actions.regenerate, {className: "plain small", "aria-label": "Regenerate reply"}), this.costs));
    this.update(null);
  }

  buttons(...others) {
    return element("div", {className: "actions"}, copyButton("Copy message", () => this.message.content), ...others);
  }

  /// Shows the reply as it is now. live: {tokens, rate} while it is being written.
  update(live) {
    const {message} = this;
    const {reasoning = "", content} = message;
    this.node.classList.toggle("live", live !== null);
    this.thinking.hidden = !reasoning;
    if (this.reasoning.textContent !== reasoning) this.reasoning.textContent = reasoning;
    const open = live !== null && !content;
    this.summary.textContent = open ? "Thinking…" : `Thought for ${seconds(message.thought_ms ?? 0)}`;
    showMarkdown(this.content, content);
    this.problem.hidden = !message.error;
    this.problem.textContent = message.error ?? "";
    this.costs.replaceChildren(...this.footer(live));
  }

  footer(live) {
    const {timings, note} = this.message;
    if (live) {
      if (live.tokens === 0) return [element("span", {textContent: "reading the prompt…"})];
      return [element("span", {textContent: `${live.rate.toFixed(1)} tokens/s`}),
              element("span", {textContent: `${count(live.tokens)} tokens`})];
    }
    return [...(note ? [element("span", {textContent: note})] : []), ...(timings ? costs(timings) : [])];
  }
}

/// A field in place of a message that the user edits.
export function editor(text, onSend, onCancel) {
  const area = element("textarea", {value: text, rows: Math.min(12, text.split("\n").length + 1), "aria-label": "Edit message"});
  const form = element("form", {className: "editor"}, area, element("div", {className: "row end"},
    button("Cancel", onCancel), element("button", {type: "submit", className: "primary", textContent: "Send"})));
  const send = () => { if (area.value.trim()) onSend(area.value.trim()); };
  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      onCancel();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  return form;
}
