// The tree of a run: a row is selected without a new page; arrows move through the rows, Enter selects, Escape goes back.
import { apply } from "./live.js";

const rows = () => [...document.querySelectorAll("[data-trace] a.node")];

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-trace] a.node, .selection a[data-up]");
  const isPlain = !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0;
  if (link && isPlain && link.pathname === location.pathname) {
    event.preventDefault();
    show(link.href);
  }
});
addEventListener("popstate", () => apply([["renew"]]));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  const at = rows().indexOf(document.activeElement);
  if (event.key === "Escape") goBack(at);
  else if (at >= 0 && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    focus(rows()[at + (event.key === "ArrowDown" ? 1 : -1)]);
  } else if (at >= 0 && (event.key === "Home" || event.key === "End")) {
    event.preventDefault();
    focus(rows().at(event.key === "Home" ? 0 : -1));
  }
});
current()?.scrollIntoView({ block: "nearest" });

function show(href) {
  if (new URL(href, location.href).href === location.href) return;
  history.pushState(null, "", href);
  apply([["renew"]]);
}

// From what is selected to its row, and from the rows to the whole run.
function goBack(at) {
  if (at < 0 && current()) focus(current());
  else if (current()) show(document.querySelector("[data-trace]").dataset.trace);
}

function current() {
  return document.querySelector("[data-trace] [aria-current]");
}

function focus(row) {
  row?.focus();
  row?.scrollIntoView({ block: "nearest" });
}
