// What a plot shows at a time: the values of the column under the pointer or with the focus, beside its line. Arrows move
// from column to column, of which one of each plot is a stop of the tab key; Enter opens what is behind it.

const ASIDE_PX = 12;
const [KEYS, box] = [{ ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }, document.createElement("div")];
let shown;

box.className = "plot-values";
box.hidden = true;
// A column's own label is what is read out.
box.setAttribute("aria-hidden", "true");
document.body.append(box);
document.addEventListener("pointerover", ({ target }) => show(target.closest(".plot .at") ?? focused()));
document.documentElement.addEventListener("pointerleave", () => show(focused()));
document.addEventListener("focusin", () => show(focused()));
document.addEventListener("focusout", () => show(null));
document.addEventListener("nova:changed", () => show(shown?.isConnected ? shown : null));
document.addEventListener("scroll", place, { capture: true, passive: true });
document.addEventListener("keydown", (event) => {
  const at = event.target.closest(".plot .at");
  if (!at || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") show(null);
  if (!(event.key in KEYS)) return;
  event.preventDefault();
  const columns = [...at.ownerSVGElement.querySelectorAll(".at")];
  const next = columns[Math.max(0, Math.min(columns.length - 1, columns.indexOf(at) + KEYS[event.key]))];
  at.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
});

function focused() {
  return document.querySelector(".plot .at:focus-visible");
}

function show(at) {
  shown = at;
  box.hidden = !at;
  if (!at) return;
  const [name, ...values] = words(at);
  const kinds = at.dataset.kinds.split(" ");
  const [head, list] = [document.createElement("strong"), document.createElement("ul")];
  head.textContent = name;
  list.className = "legend";
  list.append(...values.map((text, number) => Object.assign(document.createElement("li"), { className: kinds[number] || "none", textContent: text })));
  box.replaceChildren(head, list);
  place();
}

// The title is for pages without scripts: beside these values the browser would show it again.
function words(at) {
  const title = at.querySelector("title");
  if (title) {
    at.dataset.words = title.textContent;
    title.remove();
  }
  return at.dataset.words.split("\n");
}

function place() {
  if (!shown) return;
  const [line, own] = [shown.querySelector(".cross").getBoundingClientRect(), box.getBoundingClientRect()];
  const right = line.right + ASIDE_PX;
  const left = right + own.width > innerWidth ? line.left - ASIDE_PX - own.width : right;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, line.top)}px`;
}
