// The filters of a list (`form[data-auto]`) apply at once: the address has them, and the page is fetched in place.
// Choices apply when they are made, texts when they are left or sent by Enter, and `data-typing` while a person types.
import { apply } from "./live.js";

const TYPED_MS = 300;

export function startFilters() {
  let timer = 0;
  const soon = (form, ms, isTyped) => {
    clearTimeout(timer);
    timer = setTimeout(() => show(form, isTyped), ms);
  };
  document.addEventListener("input", ({ target }) => {
    if (!target.form?.matches("form[data-auto]")) return;
    clearTimeout(timer);
    if (target.matches("[data-typing]")) soon(target.form, TYPED_MS, true);
    else if (isChosen(target) || (target.type === "search" && !target.value)) soon(target.form, 0);
  });
  document.addEventListener("change", ({ target }) => {
    countSelected();
    if (target.form?.matches("form[data-auto]")) soon(target.form, 0);
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-auto]")) return;
    event.preventDefault();
    soon(event.target, 0);
  });
  document.addEventListener("nova:changed", countSelected);
  document.addEventListener("click", ({ target }) => closeMenus((menu) => !menu.contains(target)));
  document.addEventListener("keydown", ({ key }) => {
    if (key === "Escape") closeMenus((menu) => menu.contains(document.activeElement));
  });
  addEventListener("popstate", () => location.reload());
}

function show(form, isTyped = false) {
  if (!form.isConnected || !form.reportValidity()) return;
  const url = new URL(form.action);
  // Empty fields stay out of the address.
  url.search = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  // What the form says is what the page is fetched with.
  delete form.dataset.touched;
  if (url.href === location.href) return;
  // A word is one step back, and not each of its letters.
  if (isTyped) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  document.getElementById("main").setAttribute("aria-busy", "true");
  apply([["renew"]]);
}

// Whether the field has one of its suggestions.
function isChosen(field) {
  return [...(field.list?.options ?? [])].some((option) => option.value === field.value);
}

function countSelected() {
  for (const shown of document.querySelectorAll("output[data-count]")) {
    const number = document.querySelectorAll(`input[name="${shown.dataset.count}"]:checked`).length;
    const text = number ? `${number} selected` : "";
    if (shown.textContent !== text) shown.textContent = text;
  }
}

function closeMenus(fits) {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!fits(menu)) continue;
    if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
    menu.open = false;
  }
}
