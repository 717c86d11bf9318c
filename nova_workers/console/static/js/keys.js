// Keyboard shortcuts: `g` and a letter goes to a page, `/` to its search, j and k through rows, of which x selects one,
// `?` lists them all.

const SEQUENCE_MS = 1500;

export function startKeys(palette) {
  let going = 0;
  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && target.form) {
      event.preventDefault();
      target.form.requestSubmit();
    } else if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      palette?.open();
    } else if (!event.ctrlKey && !event.metaKey && !event.altKey && !isTyping(target)) {
      if (Date.now() - going < SEQUENCE_MS && goTo(event.key)) event.preventDefault();
      else if (plain(event.key)) event.preventDefault();
      going = event.key === "g" ? Date.now() : 0;
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-open-shortcuts]")) showShortcuts();
    if (event.target.closest("[data-open-palette]")) palette?.open();
  });
}

function plain(key) {
  if (key === "?") return showShortcuts();
  if (key === "/") return focusSearch();
  if (key === "j") return moveRow(1);
  if (key === "k") return moveRow(-1);
  if (key === "ArrowDown" || key === "ArrowUp") return Boolean(currentRow()) && moveRow(key === "ArrowDown" ? 1 : -1);
  if (key === "x") return select(currentRow());
  if (key === "Escape") return !document.activeElement.closest(".menu") && selectNone();
  return false;
}

function isTyping(element) {
  const isWritten = element.matches("input:not([type=checkbox]), textarea, select");
  return element.isContentEditable || isWritten || Boolean(element.closest("dialog[open]"));
}

function goTo(key) {
  const link = document.querySelector(`#nav a[data-key="${CSS.escape(key)}"]`);
  if (link) location.assign(link.href);
  return Boolean(link);
}

function showShortcuts() {
  document.getElementById("shortcuts")?.showModal();
  return true;
}

function focusSearch() {
  const field = document.querySelector("[data-search]") ?? document.querySelector("main input, main textarea");
  field?.focus();
  field?.select?.();
  return Boolean(field);
}

function moveRow(by) {
  const links = [...document.querySelectorAll("[data-rows] tbody tr td a:first-of-type, .rows li > a")];
  const rows = links.filter((link, at) => links.findIndex((other) => row(other) === row(link)) === at);
  if (!rows.length) return false;
  const at = rows.findIndex((link) => row(link) === currentRow());
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

// The row of a list that has the focus.
function currentRow() {
  return document.activeElement.closest("[data-rows] tbody tr, .rows li");
}

function select(row) {
  const box = row?.querySelector("td.tick input[type=checkbox]");
  box?.click();
  return Boolean(box);
}

function selectNone() {
  const boxes = document.querySelectorAll("[data-rows] .tick input:checked");
  // The box of the heading, which is first, clears the others.
  for (const box of boxes) if (box.checked) box.click();
  return boxes.length > 0;
}

function row(link) {
  return link.closest("tr, li");
}
