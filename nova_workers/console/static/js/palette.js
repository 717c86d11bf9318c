// The palette: the pages of the navigation by their names, the page of an id that is pasted, and what the console finds.

const TYPED_MS = 180;

export function startPalette() {
  const dialog = document.getElementById("palette");
  if (!dialog) return undefined;
  const [input, list] = [dialog.querySelector("input"), dialog.querySelector("ul")];
  let at = 0;
  let further = [];
  let asking = 0;

  const show = () => {
    const found = [...matches(input.value.trim()), ...further];
    at = Math.min(at, Math.max(0, found.length - 1));
    list.replaceChildren(...found.map((item, number) => option(item, number === at, number)));
    input.setAttribute("aria-activedescendant", found.length ? `palette-${at}` : "");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  };
  const go = (number) => {
    const href = list.children[number]?.dataset.href;
    if (href) location.assign(href);
  };

  // Of what was typed meanwhile, only the last answer is shown.
  const ask = async () => {
    const typed = input.value.trim();
    const answer = typed && (await fetch(`/palette?q=${encodeURIComponent(typed)}`).catch(() => undefined));
    if (typed !== input.value.trim()) return;
    further = answer?.ok ? await answer.json() : [];
    show();
  };
  input.addEventListener("input", () => {
    at = 0;
    further = [];
    show();
    clearTimeout(asking);
    asking = setTimeout(ask, TYPED_MS);
  });
  input.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) at = Math.max(0, at + by);
    if (event.key === "Enter") go(at);
    if (by || event.key === "Enter") { event.preventDefault(); show(); }
  });
  list.addEventListener("click", (event) => go([...list.children].indexOf(event.target.closest("li"))));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return { open() { input.value = ""; at = 0; further = []; show(); if (!dialog.open) dialog.showModal(); } };
}

// Beside its title an entry of the menu may have a number.
function titleOf(link) {
  return link.querySelector("span").textContent;
}

function matches(typed) {
  const links = [...document.querySelectorAll("#nav .nav-groups a")];
  const ids = links.filter((link) => link.dataset.idPrefix && typed.startsWith(link.dataset.idPrefix));
  const byId = ids.map((link) => ({ title: typed, note: titleOf(link), href: `${link.getAttribute("href")}/${encodeURIComponent(typed)}` }));
  const words = typed.toLowerCase();
  const pages = links.filter((link) => titleOf(link).toLowerCase().includes(words));
  return [...byId, ...pages.map((link) => ({ title: titleOf(link), note: link.dataset.key ? `g ${link.dataset.key}` : "", href: link.getAttribute("href") }))];
}

function option({ title, note, href }, selected, number) {
  const item = document.createElement("li");
  item.id = `palette-${number}`;
  item.role = "option";
  item.dataset.href = href;
  item.setAttribute("aria-selected", String(selected));
  item.append(title, Object.assign(document.createElement("span"), { className: "muted", textContent: note }));
  return item;
}
