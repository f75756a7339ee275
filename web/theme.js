// Sets the appearance before the page is drawn; settings.js changes it.
"use strict";
try {
  document.documentElement.dataset.theme = JSON.parse(localStorage.getItem("lily.settings") ?? "{}").theme ?? "auto";
} catch {
  document.documentElement.dataset.theme = "auto";
}
