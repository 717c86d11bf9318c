// Chat: forms that do not leave the page, the composer (Enter, drafts, paste, drop), and the end of the conversation.

const NEAR_END_PX = 80;
const DRAFT = `nova-draft:${location.pathname}`;

const composer = document.querySelector("[data-composer]");
const field = composer?.querySelector("[data-message-field]");
const turns = document.getElementById("turns");
let atEnd = true;

document.addEventListener("submit", onSubmit, true);
document.addEventListener("click", onClick);
if (composer) startComposer();
if (turns) startEnd();

// Forms of this page: sent by fetch, and what they changed comes by the stream, which is opened anew at once.
async function onSubmit(event) {
  const form = event.target;
  if (!form.matches("form[data-live]")) {
    if (form === composer) forgetDraft();
    return;
  }
  event.preventDefault();
  event.stopPropagation();
  if (form.dataset.busy) return;
  const button = event.submitter;
  const isMessage = form === composer && !button?.matches("[data-cancel]");
  if (isMessage && !field.value.trim() && !attachedFiles().length) return;
  form.dataset.busy = "yes";
  const body = isMessage || form !== composer ? new FormData(form, button) : new FormData();
  // An empty form of files must have a part, or it has no type that the server reads.
  if (!isMessage && form === composer) body.set("cancel", "yes");
  const action = button?.hasAttribute("formaction") ? button.formAction : form.action;
  const problem = await send(action, body);
  delete form.dataset.busy;
  show(form, problem);
  if (problem) return;
  delete form.dataset.touched;
  if (isMessage) clearComposer();
  turns?.dispatchEvent(new CustomEvent("nova:reopen"));
}

async function send(action, body) {
  try {
    const response = await fetch(action, { method: "POST", body, headers: { "Nova-Fragment": "form" } });
    if (response.status === 401) location.reload();
    if (response.status === 413) return "Not sent: a message with its files has at most 40 MiB.";
    return response.ok ? "" : (await response.text()) || response.statusText;
  } catch {
    return "Not sent: there is no connection. What you wrote is kept; send it again.";
  }
}

function show(form, problem) {
  const place = form.querySelector("[data-problem]") ?? composer?.querySelector("[data-problem]");
  if (!place) return;
  place.textContent = problem;
  place.hidden = !problem;
}

function onClick(event) {
  const copy = event.target.closest("[data-copy-turn]");
  if (copy) {
    const texts = [...copy.closest(".turn").querySelectorAll(".bubble.assistant")].map((part) => part.innerText.trim());
    navigator.clipboard.writeText(texts.join("\n\n"));
    copy.title = "Copied";
  }
  const earlier = event.target.closest("a[data-earlier]");
  if (earlier && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    showEarlier(earlier);
  }
}

async function showEarlier(link) {
  const response = await fetch(link.href, { headers: { "Nova-Fragment": "earlier" } }).catch(() => undefined);
  if (!response?.ok) return location.assign(link.href);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const before = document.documentElement.scrollHeight;
  turns.prepend(...page.querySelectorAll("#turns > li"));
  const next = page.querySelector("a[data-earlier]");
  if (next) link.href = next.href;
  else link.remove();
  scrollBy({ top: document.documentElement.scrollHeight - before, behavior: "instant" });
}

function startComposer() {
  field.value ||= sessionStorage.getItem(DRAFT) ?? "";
  field.addEventListener("input", () => sessionStorage.setItem(DRAFT, field.value));
  field.addEventListener("keydown", (event) => {
    // On a touch screen Enter is the only key for a new line.
    const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing && matchMedia("(pointer: fine)").matches;
    if (!sends || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    composer.requestSubmit(composer.querySelector("[data-send]"));
  });
  const input = composer.querySelector("input[type=file]");
  input.addEventListener("change", showFiles);
  field.addEventListener("paste", (event) => event.clipboardData.files.length && (event.preventDefault(), addFiles(event.clipboardData.files)));
  // Files may be dropped anywhere on the page; else the browser would leave it and open them.
  for (const name of ["dragenter", "dragover"]) addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    composer.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) composer.classList.remove("dropping"); });
  addEventListener("drop", (event) => {
    composer.classList.remove("dropping");
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    addFiles(event.dataTransfer.files);
  });
  if (matchMedia("(pointer: fine)").matches && !location.hash.startsWith("#turn-")) field.focus({ preventScroll: true });
}

function clearComposer() {
  field.value = "";
  composer.querySelector("input[type=file]").value = "";
  composer.elements.key.value = `evt_${Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  forgetDraft();
  showFiles();
  atEnd = true;
  field.focus();
}

function forgetDraft() {
  sessionStorage.removeItem(DRAFT);
}

function attachedFiles() {
  return [...composer.querySelector("input[type=file]").files];
}

function addFiles(files) {
  setFiles([...attachedFiles(), ...files]);
}

function setFiles(files) {
  const chosen = new DataTransfer();
  for (const file of files) chosen.items.add(file);
  composer.querySelector("input[type=file]").files = chosen.files;
  showFiles();
}

function showFiles() {
  const list = composer.querySelector("[data-attached]");
  const files = attachedFiles();
  list.hidden = !files.length;
  list.replaceChildren(...files.map((file, at) => {
    const item = document.createElement("li");
    const remove = Object.assign(document.createElement("button"), { type: "button", className: "icon-button small", textContent: "×" });
    remove.setAttribute("aria-label", `Remove ${file.name}`);
    remove.addEventListener("click", () => setFiles(attachedFiles().filter((_, other) => other !== at)));
    item.append(file.name, remove);
    return item;
  }));
}

// While a person reads the end, it stays in view; when they scroll up, it does not pull them down.
function startEnd() {
  const button = document.querySelector("[data-to-end]");
  const page = document.documentElement;
  const distance = () => page.scrollHeight - innerHeight - scrollY;
  const toEnd = () => scrollTo({ top: page.scrollHeight, behavior: "instant" });
  if (!location.hash || location.hash === "#end") toEnd();
  addEventListener("scroll", () => {
    atEnd = distance() < NEAR_END_PX;
    button.hidden = atEnd;
  }, { passive: true });
  document.addEventListener("nova:changed", () => { if (atEnd) toEnd(); else button.hidden = distance() < NEAR_END_PX; });
  button.addEventListener("click", () => { atEnd = true; toEnd(); });
  atEnd = distance() < NEAR_END_PX;
}
