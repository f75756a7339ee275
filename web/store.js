// Conversations and settings, kept in this browser's localStorage: one entry for each conversation, so that two tabs
// do not overwrite each other's.
//   {id, title, updated, messages: [{role, content, reasoning, thought_ms, timings, note, error}]}

const kPrefix = "lily.chat.";
const kSettings = "lily.settings";
export const kDefaults = Object.freeze({thinking: true, theme: "auto", system: ""});

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {  // the browser's limit, or storage is switched off
    return false;
  }
}

export function newConversation() {
  return {id: crypto.getRandomValues(new Uint32Array(2)).join("-"), title: "New chat", updated: Date.now(), messages: []};
}

/// All conversations, the latest first.
export function conversations() {
  return Object.keys(localStorage)
    .filter((key) => key.startsWith(kPrefix))
    .map((key) => parse(localStorage.getItem(key)))
    .filter((conversation) => conversation && Array.isArray(conversation.messages))
    .sort((a, b) => b.updated - a.updated);
}

export function loadConversation(id) {
  return parse(localStorage.getItem(kPrefix + id));
}

/// False when there is no room for it.
export function saveConversation(conversation) {
  return write(kPrefix + conversation.id, conversation);
}

export function removeConversation(id) {
  localStorage.removeItem(kPrefix + id);
}

export function loadSettings() {
  return {...kDefaults, ...parse(localStorage.getItem(kSettings))};
}

export function saveSettings(settings) {
  write(kSettings, settings);
}

/// Calls back when another tab has changed something.
export function onOtherTab(callback) {
  addEventListener("storage", (event) => {
    if (event.key === null || event.key.startsWith("lily.")) callback();
  });
}
