// Small helpers that make elements.

/// element("button", {type: "button", textContent: "Copy"}, child, ...); data and aria attributes as {"aria-label": ...}.
export function element(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-")) node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children);
  return node;
}

export function button(label, onClick, properties = {}) {
  const node = element("button", {type: "button", textContent: label, ...properties});
  node.addEventListener("click", onClick);
  return node;
}

async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = element("textarea", {value: text, className: "unseen"});  // pages without TLS have no clipboard object
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function copyButton(label, text) {
  const node = button("Copy", async () => {
    try {
      await toClipboard(text());
      node.textContent = "Copied";
    } catch {
      node.textContent = "Not allowed";
    }
    setTimeout(() => { node.textContent = "Copy"; }, 1500);
  }, {className: "plain small", "aria-label": label});
  return node;
}

export const byId = (id) => document.getElementById(id);

/// Tells screen readers.
export function announce(text) {
  byId("announcer").textContent = text;
}

export function count(number) {
  return Math.round(number).toLocaleString("en");
}
