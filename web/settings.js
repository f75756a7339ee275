// The settings dialog. Every change is saved at once; an empty number leaves the choice to the server.
import {byId} from "./dom.js";
import * as store from "./store.js";

export class Settings {
  constructor() {
    this.dialog = byId("settings");
    this.form = this.dialog.querySelector("form");
    this.think = byId("think");
    this.values = store.loadSettings();
    this.form.addEventListener("input", () => this.read());
    this.think.addEventListener("click", () => this.set({...this.values, thinking: !this.values.thinking}));
    byId("reset-settings").addEventListener("click", () => this.set({...store.kDefaults}));
    byId("open-settings").addEventListener("click", () => this.dialog.showModal());
    for (const field of this.form.querySelectorAll("input[type=number]")) field.placeholder = "server's choice";
    this.write();
  }

  reload() {
    this.values = store.loadSettings();
    this.write();
  }

  set(values) {
    this.values = values;
    store.saveSettings(values);
    this.write();
  }

  /// From the form into the values.
  read() {
    const values = {};
    for (const field of this.form.querySelectorAll("[name]")) {
      if (field.type === "checkbox") values[field.name] = field.checked;
      else if (field.type !== "number") values[field.name] = field.value;
      else if (field.value !== "" && field.validity.valid) values[field.name] = field.valueAsNumber;
    }
    this.values = values;
    store.saveSettings(values);
    this.showSwitches();
  }

  /// From the values into the form.
  write() {
    for (const field of this.form.querySelectorAll("[name]")) {
      if (field.type === "checkbox") field.checked = this.values[field.name];
      else field.value = this.values[field.name] ?? "";
    }
    this.showSwitches();
  }

  showSwitches() {
    this.think.setAttribute("aria-pressed", this.values.thinking);
    document.documentElement.dataset.theme = this.values.theme;
  }
}
