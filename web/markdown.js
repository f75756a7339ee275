// Markdown of a reply as elements. What the model writes never runs: its HTML is shown as text (marked is told so), what
// marked makes goes through DOMPurify, and the page's Content-Security-Policy forbids inline scripts and foreign images.
// Without the two libraries (empty files then) the text is shown as it is.
import {copyButton, element} from "./dom.js";

const {marked, DOMPurify} = globalThis;
const kSafe = {
  ALLOWED_TAGS: ["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
                 "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["align", "class", "href", "start", "title"],
  ADD_URI_SAFE_ATTR: ["align", "start"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};

function escape(text) {
  const entities = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"};
  return text.replace(/[&<>"']/g, (character) => entities[character]);
}

if (marked && DOMPurify) {
  marked.use({
    gfm: true,
    headerIds: false,
    mangle: false,
    renderer: {
      html: escape,
      image: (href, title, text) => `<a href="${escape(href)}">${text || "image"}</a>`,
      checkbox: (checked) => (checked ? "☑ " : "☐ "),
    },
  });
}

function addCodeHeader(pre) {
  const code = pre.querySelector("code");
  const language = /language-(\S+)/.exec(code?.className ?? "")?.[1] ?? "";
  const header = element("div", {className: "code-header"}, element("span", {textContent: language}),
                         copyButton("Copy code", () => code?.textContent ?? pre.textContent));
  const block = element("div", {className: "code"});
  pre.replaceWith(block);
  pre.tabIndex = 0;  // wide code is scrolled with the keyboard
  block.append(header, pre);
}

function renderBlock(token) {
  const fragment = DOMPurify.sanitize(marked.parser([token]), kSafe);
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  fragment.querySelectorAll("pre").forEach(addCodeHeader);
  fragment.querySelectorAll("table").forEach((table) => {
    const frame = element("div", {className: "wide-table"});
    table.replaceWith(frame);
    frame.append(table);
  });
  const block = element("div", {className: "block"});
  block.append(fragment);
  return block;
}

/// Shows `text` in `container`. Blocks that did not change since the last call keep their elements, and so a selection.
export function showMarkdown(container, text) {
  if (!marked || !DOMPurify) {
    container.classList.add("plain-text");
    container.textContent = text;
    return;
  }
  const tokens = marked.lexer(text).filter((token) => token.type !== "space");
  const known = container.blocks ?? [];
  const same = (i) => known[i]?.raw === tokens[i].raw;
  const blocks = tokens.map((token, i) => (same(i) ? known[i] : {raw: token.raw, node: renderBlock(token)}));
  blocks.forEach((block, i) => {
    const present = container.children[i];
    if (!present) container.append(block.node);
    else if (present !== block.node) present.replaceWith(block.node);
  });
  while (container.children.length > blocks.length) container.lastElementChild.remove();
  container.blocks = blocks;
}
