// Small parts: times that stay current, copying, the theme, dialogs in older browsers.

const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
const COPIED_MS = 1_500;
const STEPS = [[60, "s", 1], [3600, "min", 60], [86400, "h", 3600], [2592000, "d", 86400]];

export function startParts() {
  // What a person unfolded of the menu stays so on the next page.
  const more = document.querySelector("[data-nav-more]");
  if (more) {
    more.open ||= localStorage.getItem("nova:more") === "yes";
    more.addEventListener("toggle", () => localStorage.setItem("nova:more", more.open ? "yes" : "no"));
  }
  for (const link of document.querySelectorAll(":is(.nav-groups, .tabs) [aria-current]")) link.scrollIntoView({ block: "nearest", inline: "nearest" });
  showTimes();
  setInterval(showTimes, 10_000);
  setInterval(showDurations, 1_000);
  document.addEventListener("click", onClick);
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-check-all]")) checkAll(event.target);
  });
  document.addEventListener("submit", onSubmit);
  // Back from the page that answered, the form may be sent again; so it may when the navigation was stopped, which has
  // no event of its own: a person then edits the form, or has pressed Escape.
  addEventListener("pageshow", allowSubmits);
  addEventListener("keydown", (event) => { if (event.key === "Escape") allowSubmits(); });
  document.addEventListener("input", ({ target: { form } }) => {
    if (!form) return;
    delete form.dataset.sent;
    form.dataset.touched = "yes";
  });
}

function allowSubmits() {
  for (const form of document.forms) delete form.dataset.sent;
}

function showDurations() {
  for (const element of document.querySelectorAll("[data-since]")) {
    element.textContent = duration(Math.max(0, (Date.now() - new Date(element.dataset.since)) / 1000));
  }
}

export function showTimes() {
  const now = Date.now();
  for (const element of document.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    // What is due, and late, comes now.
    const text = relative("due" in element.dataset ? Math.min(0, (now - at) / 1000) : (now - at) / 1000);
    if (element.textContent !== text) element.textContent = text;
    if (!element.dataset.local) {
      element.dataset.local = "yes";
      element.title = `${at.toLocaleString()}  (${element.title})`;
    }
  }
}

// As the console writes durations: two units at most.
function duration(seconds) {
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  for (const [unit, name, part, partName] of UNITS) {
    const whole = Math.round(seconds / part) * part;
    const rest = Math.floor((whole % unit) / part);
    if (whole >= unit) return rest ? `${Math.floor(whole / unit)} ${name} ${rest} ${partName}` : `${Math.floor(whole / unit)} ${name}`;
  }
  return `${Math.round(seconds)} s`;
}

export function relative(age) {
  const away = Math.abs(age);
  const worded = (text) => (age >= 0 ? `${text} ago` : `in ${text}`);
  if (away < 5) return "now";
  for (const [limit, unit, scale] of STEPS) if (away < limit) return worded(`${Math.floor(away / scale)} ${unit}`);
  const months = Math.floor(away / 2592000);
  return worded(months < 12 ? `${months} mo` : `${Math.floor(away / 31536000)} y`);
}

async function onClick(event) {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(copy.dataset.copy);
    copy.title = "Copied";
    return;
  }
  const copyCode = event.target.closest("[data-copy-code]");
  if (copyCode) {
    await navigator.clipboard.writeText(copyCode.closest(".code-block").querySelector("code").textContent);
    copyCode.textContent = "Copied";
    setTimeout(() => { copyCode.textContent = "Copy"; }, COPIED_MS);
    return;
  }
  const button = event.target.closest("button[commandfor]");
  if (button && !("commandForElement" in HTMLButtonElement.prototype)) {
    const dialog = document.getElementById(button.getAttribute("commandfor"));
    if (button.getAttribute("command") === "show-modal") dialog.showModal();
    else dialog.close();
  }
}

function checkAll(box) {
  for (const other of box.closest("table").querySelectorAll(`tbody input[name="${box.dataset.checkAll}"]`)) other.checked = box.checked;
}

async function onSubmit(event) {
  const form = event.target;
  if (form.matches("[data-theme-form]") && event.submitter) {
    event.preventDefault();
    const theme = event.submitter.value;
    document.documentElement.dataset.theme = theme;
    for (const button of form.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.value === theme));
    await fetch(form.action, { method: "POST", body: new URLSearchParams({ theme }), redirect: "manual" });
    return;
  }
  // A second click must not send a form twice, however long the answer takes.
  if (form.method === "post") {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
  }
}
