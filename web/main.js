// Puts the page together: which view is shown (#metrics, #<conversation>), the server's state, the key, the keyboard.
import * as api from "./api.js";
import {Chat} from "./chat.js";
import {byId, count} from "./dom.js";
import {Metrics} from "./metrics.js";
import {Settings} from "./settings.js";
import {Sidebar} from "./sidebar.js";
import * as store from "./store.js";

const settings = new Settings();
const metrics = new Metrics();
const chat = new Chat(settings, onSaved);
const sidebar = new Sidebar({
  chosen: () => chat.conversation.id,
  onRenamed: (id, title) => chat.rename(id, title),
  onRemoved: (id) => {
    chat.discard(id);
    if (id === chat.conversation.id) newChat();
  },
});

function onSaved(stored) {
  if (!stored) notify("This browser has no room left for this conversation: delete old ones.");
  if (location.hash !== "#metrics") history.replaceState(null, "", `#${chat.conversation.id}`);
  sidebar.draw();
}

function notify(text) {
  byId("notice").hidden = !text;
  byId("notice").textContent = text;
}

// --- views

function route() {
  const name = location.hash.slice(1);
  const inMetrics = name === "metrics";
  byId("chat").hidden = inMetrics;
  byId("metrics").hidden = !inMetrics;
  byId("open-metrics").setAttribute("aria-pressed", inMetrics);
  openSidebar(false);
  if (inMetrics) {
    byId("title").textContent = "Metrics";
    document.title = "Metrics · lily";
    return;
  }
  const conversation = name === chat.conversation.id ? chat.conversation : store.loadConversation(name);
  chat.show(conversation ?? store.newConversation());
  sidebar.draw();
  byId("prompt").focus();
}

function newChat() {
  if (location.hash) location.hash = "";
  else route();
}

function openSidebar(open) {
  document.body.classList.toggle("sidebar-open", open);
  byId("shade").hidden = !open;
  byId("menu").setAttribute("aria-expanded", open);
}

// --- the server

async function watchServer() {
  const state = await api.health();
  if (state === "ready" && !chat.ready) {
    notify("");
    chat.setReady(true);
    showModel();
  } else if (state !== "ready") {
    chat.setReady(false);
    notify(state === "loading" ? "The model is being loaded…" : "The server cannot be reached. Is lily serve running?");
  }
  setTimeout(watchServer, state === "ready" ? 10000 : 1000);
}

async function showModel() {
  try {
    const model = (await (await api.request("/v1/models")).json()).data[0];
    chat.model = model.id;
    byId("model").textContent = `${model.id} · context of ${count(model.context_length)} tokens`;
    metrics.start();
  } catch {
    byId("model").textContent = "";  // no key given: the next request asks again
  }
}

function askForKey(wrong) {
  const dialog = byId("key-dialog");
  const field = byId("key");
  byId("key-hint").textContent = wrong ? "That key is wrong." : "It was started with --api-key. The key stays in this tab.";
  field.value = "";
  return new Promise((resolve) => {
    let key = null;
    byId("key-form").onsubmit = (event) => {
      event.preventDefault();
      key = field.value.trim();
      dialog.close();
    };
    byId("key-cancel").onclick = () => dialog.close();
    dialog.onclose = () => {
      resolve(key);
      if (key && !chat.model) showModel();
    };
    dialog.showModal();
  });
}

// --- events

api.onKeyNeeded(askForKey);
byId("new-chat").addEventListener("click", newChat);
byId("open-metrics").addEventListener("click", () => {
  location.hash = location.hash === "#metrics" ? chat.conversation.id : "metrics";
});
byId("menu").addEventListener("click", () => openSidebar(!document.body.classList.contains("sidebar-open")));
byId("shade").addEventListener("click", () => openSidebar(false));
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("prompt").focus();
});
addEventListener("hashchange", route);
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (document.body.classList.contains("sidebar-open")) openSidebar(false);
  else chat.stop();
});
store.onOtherTab(() => {
  settings.reload();
  sidebar.draw();
  chat.reload();
});
route();
watchServer();
