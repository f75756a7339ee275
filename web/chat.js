// The chat: the conversation that is shown, its messages, the message field, and replies in the making.
import {announce, byId, element} from "./dom.js";
import {MessageView, editor} from "./message_view.js";
import {Reply} from "./reply.js";
import * as store from "./store.js";

const kTitleLength = 60;
const kSaveMilliseconds = 1000;

export class Chat {
  /// onSaved() is called when the list of conversations has changed.
  constructor(settings, onSaved) {
    this.settings = settings;
    this.onSaved = onSaved;
    this.model = null;
    this.ready = false;
    this.replies = new Map();  // conversation id -> Reply in the making; they go on when another conversation is shown
    this.list = byId("messages");
    this.prompt = byId("prompt");
    this.conversation = store.newConversation();
    this.prompt.addEventListener("input", () => this.fitPrompt());
    this.prompt.addEventListener("keydown", (event) => this.onKey(event));
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.reply) this.stop();
      else this.send();
    });
    this.show(this.conversation);
  }

  get reply() {
    return this.replies.get(this.conversation.id);
  }

  setReady(ready) {
    this.ready = ready;
    this.updateButtons();
  }

  show(conversation) {
    this.conversation = this.replies.get(conversation.id)?.conversation ?? conversation;
    this.draw();
    this.list.scrollTop = this.list.scrollHeight;
  }

  /// Another tab may have changed what is shown.
  reload() {
    const stored = store.loadConversation(this.conversation.id);
    if (!stored || this.reply || this.list.querySelector(".editor")) return;
    if (JSON.stringify(stored.messages) !== JSON.stringify(this.conversation.messages)) this.show(stored);
  }

  rename(id, title) {
    const conversation = this.replies.get(id)?.conversation ?? this.conversation;
    if (conversation.id === id) conversation.title = title;
    byId("title").textContent = this.conversation.title;
  }

  /// The conversation is deleted: its reply ends, and is not stored.
  discard(id) {
    const reply = this.replies.get(id);
    if (!reply) return;
    reply.discarded = true;
    reply.stop();
  }

  draw() {
    const {messages} = this.conversation;
    byId("title").textContent = this.conversation.title;
    document.title = messages.length > 0 ? `${this.conversation.title} · lily` : "lily";
    this.views = messages.map((message, index) => new MessageView(message, {
      edit: () => this.edit(index),
      regenerate: () => this.answer(index),
    }));
    this.list.replaceChildren(...this.views.map((view) => view.node));
    if (messages.length === 0) {
      this.list.append(element("p", {className: "welcome", textContent: "What can I do for you?"}));
    }
    if (this.reply) this.views.at(-1).update(this.reply.live);
    this.updateButtons();
  }

  updateButtons() {
    const send = byId("send");
    const busy = this.reply !== undefined;
    send.textContent = busy ? "Stop" : "Send";
    send.disabled = !busy && (!this.ready || !this.prompt.value.trim());
    this.list.setAttribute("aria-busy", busy);
    for (const node of this.list.querySelectorAll("[aria-label='Edit message'], [aria-label='Regenerate reply']")) {
      node.disabled = busy || !this.ready;
    }
  }

  fitPrompt() {
    this.prompt.style.height = "auto";
    this.prompt.style.height = `${this.prompt.scrollHeight}px`;
    this.updateButtons();
  }

  onKey(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!this.reply) this.send();
    } else if (event.key === "ArrowUp" && this.prompt.value === "" && !this.reply) {
      const last = this.conversation.messages.findLastIndex((message) => message.role === "user");
      if (last < 0) return;
      event.preventDefault();
      this.edit(last);
    }
  }

  send() {
    const text = this.prompt.value.trim();
    if (!text || !this.ready) return;
    this.prompt.value = "";
    this.fitPrompt();
    this.conversation.messages.push({role: "user", content: text});
    this.answer(this.conversation.messages.length);
  }

  edit(index) {
    if (this.reply || !this.ready) return;
    const cancel = () => {
      this.draw();
      this.prompt.focus();
    };
    const form = editor(this.conversation.messages[index].content, (text) => {
      this.conversation.messages.splice(index, Infinity, {role: "user", content: text});
      this.answer(index + 1);
    }, cancel);
    this.views[index].node.replaceChildren(form);
    form.querySelector("textarea").focus();
  }

  /// Asks for the reply that becomes message `index`; what was there and after is dropped.
  answer(index) {
    if (this.reply) return;
    const {conversation} = this;
    conversation.messages.length = index;
    if (index === 1) conversation.title = conversation.messages[0].content.replace(/\s+/g, " ").slice(0, kTitleLength);
    let saved = Date.now();
    const reply = new Reply(conversation.messages.slice(), this.settings.values, this.model, () => {
      if (!reply.discarded && (reply.over || Date.now() - saved > kSaveMilliseconds)) {
        saved = Date.now();
        this.save(conversation);
      }
      if (reply.over) this.finish(reply);
      else if (this.conversation === conversation) this.follow(reply);
    });
    reply.conversation = conversation;
    conversation.messages.push(reply.message);
    this.replies.set(conversation.id, reply);
    this.save(conversation);
    this.show(conversation);
    if (document.activeElement === document.body) this.prompt.focus();  // the button that was pressed is gone
    announce("Thinking");
  }

  /// Shows what is new, and scrolls along if the end was in view.
  follow(reply) {
    const {list} = this;
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    this.views.at(-1).update(reply.live);
    if (atEnd) list.scrollTop = list.scrollHeight;
  }

  finish(reply) {
    this.replies.delete(reply.conversation.id);
    if (this.conversation !== reply.conversation) return;
    this.follow(reply);
    this.updateButtons();
    announce(reply.message.error ?? reply.message.content ?? "Stopped");
  }

  stop() {
    this.reply?.stop();
  }

  save(conversation) {
    conversation.updated = Date.now();
    this.onSaved(store.saveConversation(conversation));
  }
}
