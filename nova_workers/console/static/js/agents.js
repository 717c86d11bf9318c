// The form of an agent: rows are added without losing the page, unsaved changes are kept from being left, and the
// conversation beside the form runs in its card. Without this, each is an ordinary form.

import { morph } from "./morph.js";

const PAUSE_MS = 700; // Without typing, before the prompt of the form is fetched.
let pause;

document.addEventListener("click", async (event) => {
  if (event.target.closest("button[data-prompt]")) {
    event.preventDefault();
    showPrompt();
    return;
  }
  const button = event.target.closest("button[data-partial]");
  if (!button) return;
  event.preventDefault();
  const form = button.form;
  const page = await send(form, button);
  const next = page?.getElementById(form.id);
  if (!next) return;
  const open = [...form.querySelectorAll("details[open]")].map((part) => part.id);
  form.replaceWith(next);
  for (const part of next.querySelectorAll("details[id]")) part.open = open.includes(part.id);
  onChange(next);
  focusAfter(next, button);
});

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.matches("[data-guard]")) delete form.dataset.changed;
  if (!form.matches("[data-try]")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const page = await send(form);
  const next = page?.getElementById("try");
  if (next) replaceTry(next);
}, { capture: true });

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-try-new]");
  if (!link || !document.getElementById("agent-form")) return;
  event.preventDefault();
  const response = await fetch(link.href);
  replaceTry(new DOMParser().parseFromString(await response.text(), "text/html").getElementById("try"));
});

document.addEventListener("input", (event) => {
  const form = event.target.form;
  event.target.dataset.typed = "yes";
  if (form?.matches("[data-guard]")) onChange(form);
});

addEventListener("beforeunload", (event) => {
  if (document.querySelector("form[data-guard][data-changed]")) event.preventDefault();
});

// A link to a section, or to a field in it, unfolds it.
addEventListener("hashchange", unfold);
unfold();

async function send(form, submitter, body = new URLSearchParams(new FormData(form, submitter))) {
  const response = await fetch(form.action, { method: "POST", body });
  if (response.status === 401 || response.url.includes("/login")) return location.reload();
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

function replaceTry(next) {
  document.getElementById("try").replaceWith(next);
  document.dispatchEvent(new CustomEvent("nova:changed"));
  next.querySelector("textarea").focus();
  next.querySelector(".exchange:last-child")?.scrollIntoView({ block: "nearest" });
}

async function showPrompt() {
  const form = document.getElementById("agent-form");
  const body = new URLSearchParams(new FormData(form));
  body.set("do", "prompt");
  const page = await send(form, undefined, body);
  for (const id of ["prompt", "warnings"]) {
    const next = page?.getElementById(id);
    if (next) morph(document.getElementById(id), next);
  }
  const next = page?.getElementById("agent-form");
  if (next) showProblems(form, next);
}

// A field shows what is wrong with it once a person typed in it and paused; it shows no more once that is right.
function showProblems(form, next) {
  for (const control of form.querySelectorAll("[data-typed], [aria-invalid]")) {
    const checked = control.id && next.querySelector(`#${CSS.escape(control.id)}`);
    const field = control.closest(".field");
    if (!checked || !field) continue;
    field.classList.toggle("wrong", checked.closest(".field").classList.contains("wrong"));
    for (const name of ["aria-invalid", "aria-describedby"]) {
      if (checked.hasAttribute(name)) control.setAttribute(name, checked.getAttribute(name));
      else control.removeAttribute(name);
    }
    const notes = document.getElementById(`${control.id}-notes`);
    const now = next.querySelector(`#${CSS.escape(control.id)}-notes`);
    if (now && notes) notes.replaceWith(now);
    else if (now) field.append(now);
    else notes?.remove();
  }
}

function onChange(form) {
  clearTimeout(pause);
  if (form.id === "agent-form") pause = setTimeout(showPrompt, PAUSE_MS);
  form.dataset.changed = "yes";
  const note = form.querySelector("[data-changed-note]");
  if (note) note.hidden = false;
}

function focusAfter(form, button) {
  const [verb, name] = button.value.split(/:(.*)/);
  const add = form.querySelector(`button[value="${CSS.escape(`add:${verb === "add" ? name : name.replace(/\.[^.]*$/, "")}`)}"]`);
  const rows = add?.parentElement.querySelectorAll(":scope > .row-group");
  const field = verb === "add" && rows?.length ? rows[rows.length - 1].querySelector("input:not([type=hidden]), select, textarea") : add;
  field?.focus();
}

function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const section = target?.closest?.("details");
  if (section) section.open = true;
}
