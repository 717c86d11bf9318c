// Change an element into another with the fewest changes, so that focus, folds, dialogs, scrolling, selections and what a
// person types stay. Children are matched by id, else by their position.

const BLOCKS = "section, article, form, ul, ol, dl, table, p";
// What scripts note of a form, and have to read again.
const NOTED = new Set(["data-touched", "data-sent", "data-busy"]);

// `spares`: blocks with a selection are left for the next time.
export function morph(from, to, spares = false) {
  if (from.isEqualNode(to)) return;
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) {
    from.replaceWith(to.cloneNode(true));
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) {
    from.nodeValue = to.nodeValue;
    return;
  }
  if (from === document.activeElement && from.matches("input, textarea, select")) return;
  // A script's own element; a form with what a person typed, and what belongs to it; a text that is selected.
  if (from.matches("[data-keep], form[data-touched]") || (spares && from.matches(BLOCKS) && hasSelection(from))) return;
  setAttributes(from, to);
  // Its children come by a stream of their own.
  if (!from.hasAttribute("data-own")) morphChildren(from, to, spares);
}

export function morphChildren(from, to, spares = false) {
  const known = new Map();
  for (const child of from.children) if (child.id) known.set(child.id, child);
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const same = wanted.id ? known.get(wanted.id) : undefined;
    if (same) {
      if (same !== at) from.insertBefore(same, at);
      else at = at.nextSibling;
      morph(same, wanted, spares);
    } else if (at && !at.id && at.nodeName === wanted.nodeName && !wanted.id) {
      const next = at.nextSibling;
      morph(at, wanted, spares);
      at = next;
    } else {
      from.insertBefore(wanted.cloneNode(true), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function setAttributes(from, to) {
  const opened = from.nodeName === "DETAILS" || from.nodeName === "DIALOG";
  for (const { name } of [...from.attributes]) {
    // What a person opened stays open.
    if (!to.hasAttribute(name) && !(opened && name === "open") && !NOTED.has(name)) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
}

function hasSelection(element) {
  const selection = getSelection();
  return !selection.isCollapsed && element.contains(selection.anchorNode);
}
