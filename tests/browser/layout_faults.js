// Returns what of a page cannot be read or reached at its present width, as sentences. Folds are opened before; dialogs,
// menus and panels are opened one after the other.
() => {
  const faults = new Set();
  const oneLine = (text) => text.trim().replace(/\s+/g, " ").slice(0, 40);
  const named = (element) => {
    const part = element.closest("[id]");
    return `<${element.localName} class="${element.getAttribute("class") ?? ""}"> "${oneLine(element.innerText || element.getAttribute("aria-label") || element.name || "")}" in #${part?.id.slice(0, 30)}`;
  };
  const above = function* (element) {
    for (let at = element; at; at = at.parentElement) yield at;
  };
  let styles = new Map();
  const styleOf = (element) => styles.get(element) ?? styles.set(element, getComputedStyle(element)).get(element);
  const isCut = ({ overflowX }) => overflowX === "hidden" || overflowX === "clip";
  const isScrolled = ({ overflowX, overflowY }) => [overflowX, overflowY].some((way) => way === "auto" || way === "scroll");
  // What is for screen readers alone has a box of one pixel.
  const isShown = (element) => element.checkVisibility({ visibilityProperty: true }) && ![...above(element)].some((one) => one.matches(".skip") || styleOf(one).clipPath === "inset(50%)");
  const isLoose = (element) => [...above(element)].some((one) => ["sticky", "fixed"].includes(styleOf(one).position));

  // Each control can be clicked, from its begin to its end, when it was scrolled to.
  function findUnreached(root) {
    for (const control of root.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")) {
      const size = control.getClientRects()[0];
      if (!size || size.width <= 1 || size.height <= 1 || !isShown(control)) continue;
      control.scrollIntoView({ block: "center", inline: "nearest", behavior: "instant" });
      // A script can scroll what a person cannot.
      for (const one of above(control)) if (isCut(styleOf(one))) one.scrollLeft = one.scrollTop = 0;
      const box = control.getClientRects()[0];
      const y = Math.min(Math.max((box.top + box.bottom) / 2, 1), innerHeight - 1);
      const edge = Math.min(3, box.width / 3);
      for (const x of [box.left + edge, (box.left + box.right) / 2, box.right - edge]) {
        const hit = document.elementFromPoint(x, y);
        if (hit && (control.contains(hit) || hit.closest("label")?.control === control)) continue;
        faults.add(`${named(control)} cannot be clicked at ${Math.round(x)}, ${Math.round(y)}: ${hit ? `${named(hit)} is there` : "it is outside of the window"}`);
        break;
      }
    }
    scrollTo(0, 0);
  }

  // The boxes of a text's lines, without what is scrolled away; and faults of the text by itself.
  function linesOf(node) {
    const element = node.parentElement;
    const range = document.createRange();
    range.selectNodeContents(node);
    const rects = [...range.getClientRects()].filter((rect) => rect.width > 1 && rect.height > 1);
    if (!rects.length) return [];
    const [rows, letters] = [new Set(rects.map((rect) => Math.round(rect.top))).size, node.data.trim().length];
    if (rows >= 5 && letters / rows < 7) faults.add(`${named(element)} stands in a column of ${Math.ceil(letters / rows)} letters`);
    let [left, right, top, bottom] = [-Infinity, Infinity, -Infinity, Infinity];
    // A text that ends with a sign that there is more, or that can be scrolled, is not cut off.
    let goesOn = false;
    for (const one of above(element)) {
      const style = styleOf(one);
      goesOn ||= style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none";
      if (one === document.body || style.display === "inline" || !(isCut(style) || isScrolled(style))) continue;
      const box = one.getBoundingClientRect();
      goesOn ||= isScrolled(style);
      if (!goesOn && rects.some((rect) => rect.right > box.right + 1 || rect.left < box.left - 1)) faults.add(`${named(element)} is cut off`);
      [left, right] = [Math.max(left, box.left), Math.min(right, box.right)];
      [top, bottom] = [Math.max(top, box.top), Math.min(bottom, box.bottom)];
    }
    if (!goesOn && rects.some((rect) => rect.left < -1 || rect.right > innerWidth + 1)) faults.add(`${named(element)} is outside of the window`);
    return rects.map((rect) => ({
      element,
      left: Math.max(rect.left, left),
      right: Math.min(rect.right, right),
      // Boxes of lines are higher than their letters.
      top: Math.max(rect.top + rect.height / 4, top),
      bottom: Math.min(rect.bottom - rect.height / 4, bottom),
    })).filter((line) => line.right - line.left > 2 && line.bottom > line.top);
  }

  function findTexts(root) {
    const lines = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const { data, parentElement: element } = walker.currentNode;
      if (!data.trim() || element.matches("script, style, title, option, textarea") || !isShown(element)) continue;
      // What stays in the window is over what moves.
      if (root !== document.body || !isLoose(element)) lines.push(...linesOf(walker.currentNode));
    }
    lines.sort((one, other) => one.top - other.top);
    lines.forEach((one, at) => {
      for (let next = at + 1; next < lines.length && lines[next].top < one.bottom; next += 1) {
        const other = lines[next];
        const shared = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        if (shared > 2 && one.element !== other.element) faults.add(`${named(one.element)} is over ${named(other.element)}`);
      }
    });
  }

  // A menu lies over what is below it.
  for (const fold of document.querySelectorAll("details:not(.menu)")) { fold.removeAttribute("name"); fold.open = true; }
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) faults.add(`the page is ${width} px wide`);
  findUnreached(document.body);
  findTexts(document.body);
  for (const dialog of document.querySelectorAll("dialog.dialog")) {
    styles = new Map();
    dialog.showModal();
    findUnreached(dialog);
    findTexts(dialog);
    dialog.close();
  }
  for (const menu of document.querySelectorAll("details.menu")) {
    styles = new Map();
    menu.open = true;
    findUnreached(menu);
    findTexts(menu);
    menu.open = false;
  }
  for (const panel of document.querySelectorAll("[popover]")) {
    if (getComputedStyle(panel).position !== "fixed") continue;
    styles = new Map();
    panel.showPopover();
    findUnreached(panel);
    findTexts(panel);
    panel.hidePopover();
  }
  return [...faults];
}
