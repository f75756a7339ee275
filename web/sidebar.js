// The list of conversations: choose, rename, delete with undo.
import {button, byId, element} from "./dom.js";
import * as store from "./store.js";

const kUndoMilliseconds = 8000;

export class Sidebar {
  /// chosen() gives the id of the conversation that is shown; onRenamed(id, title), onRemoved(id).
  constructor({chosen, onRenamed, onRemoved}) {
    Object.assign(this, {chosen, onRenamed, onRemoved});
    this.toast = byId("toast");
    this.draw();
  }

  /// Leaves the list alone when it shows all already: the focus may be in it.
  draw() {
    const all = store.conversations();
    const state = JSON.stringify([this.chosen(), all.map(({id, title}) => [id, title])]);
    if (state === this.state) return;
    this.state = state;
    byId("conversations").replaceChildren(...all.map((conversation) => this.row(conversation)));
  }

  row(conversation) {
    const link = element("a", {href: `#${conversation.id}`, textContent: conversation.title, title: conversation.title});
    if (conversation.id === this.chosen()) link.setAttribute("aria-current", "page");
    return element("li", {}, link, button("✎", () => this.rename(conversation, link), {
      className: "icon", title: "Rename", "aria-label": `Rename ${conversation.title}`,
    }), button("✕", () => this.remove(conversation), {
      className: "icon", title: "Delete", "aria-label": `Delete ${conversation.title}`,
    }));
  }

  rename(conversation, link) {
    const field = element("input", {value: conversation.title, "aria-label": "Title"});
    const end = (title) => {
      const latest = store.loadConversation(conversation.id);
      if (title && latest) {
        store.saveConversation({...latest, title});
        this.onRenamed(conversation.id, title);
      }
      this.state = null;  // the field is still there
      this.draw();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") end(field.value.trim());
      if (event.key === "Escape") {
        event.stopPropagation();
        end(null);
      }
    });
    field.addEventListener("blur", () => { if (field.isConnected) end(field.value.trim()); });
    link.replaceWith(field);
    field.select();
  }

  remove(conversation) {
    const kept = store.loadConversation(conversation.id) ?? conversation;
    store.removeConversation(conversation.id);
    this.onRemoved(conversation.id);
    this.draw();
    this.toast.hidden = false;
    this.toast.querySelector("span").textContent = `Deleted “${conversation.title}”`;
    this.toast.querySelector("button").onclick = () => {
      store.saveConversation(kept);
      this.toast.hidden = true;
      this.draw();
    };
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.toast.hidden = true; }, kUndoMilliseconds);
  }
}
