// Live parts of a page: sections that are fetched again (`data-refresh` in seconds), streams of changes
// (`data-stream`), and a page that waits for the API (`data-retry`).
import { morph, morphChildren } from "./morph.js";
import { showTimes } from "./parts.js";

const HIDDEN_MS = 20_000; // A hidden page closes its streams after this: browsers allow 6 connections to a server.
const LONGEST_PAUSE_MS = 15_000;

export function startLive() {
  refreshSections();
  retryPage();
  const streams = new Map();
  const away = document.getElementById("away");
  const openStreams = () => {
    for (const element of document.querySelectorAll("[data-stream]")) {
      if (!streams.has(element)) streams.set(element, new Stream(element));
    }
    for (const [element, stream] of streams) {
      if (!element.isConnected) { stream.end(); streams.delete(element); }
    }
    // Each stream says whether the fleet answers; a page that has none gets one for that alone.
    if (away && [...streams.values()].every((stream) => stream.done)) streams.set(away, new Stream(away));
  };
  openStreams();
  // A changed part of the page may have a stream of its own.
  document.addEventListener("nova:changed", openStreams);
  document.addEventListener("visibilitychange", () => streams.forEach((stream) => stream.onVisibility()));
}

export function apply(changes) {
  for (const [action, id, html] of changes) {
    const target = document.getElementById(id);
    if (!target) continue;
    const parsed = document.createElement("template");
    parsed.innerHTML = html;
    const content = parsed.content;
    if (action === "remove") target.remove();
    else if (action === "show" || action === "hide") target.hidden = action === "hide";
    else if (action === "inner") morphChildren(target, content);
    else if (action === "replace" && content.firstElementChild) morph(target, content.firstElementChild);
    else if (action === "append" || action === "prepend") {
      const known = content.firstElementChild?.id && document.getElementById(content.firstElementChild.id);
      if (known) morph(known, content.firstElementChild);
      else target[action](content);
    }
  }
  showTimes();
  document.dispatchEvent(new CustomEvent("nova:changed"));
}

class Stream {
  constructor(element) {
    this.element = element;
    this.after = element.dataset.after ?? "";
    this.failures = 0;
    this.done = false;
    // A page that changed something wants to see it now; so does one whose connection is back.
    element.addEventListener("nova:reopen", () => this.reopen());
    addEventListener("online", () => this.reopen());
    this.open();
  }

  reopen() {
    this.close();
    this.open();
  }

  open() {
    clearTimeout(this.timer);
    if (this.done || this.source) return;
    const url = new URL(this.element.dataset.stream ?? "/watch", location.href);
    if (this.after) url.searchParams.set("after", this.after);
    this.source = new EventSource(url);
    this.openedAt = Date.now();
    // If the fleet is away, a stream begins with that.
    this.source.onopen = () => showOutage({ status: 200 });
    this.source.onmessage = (event) => {
      this.failures = 0;
      if (event.lastEventId) this.after = event.lastEventId;
      apply(JSON.parse(event.data));
    };
    this.source.addEventListener("done", () => {
      this.end();
      document.dispatchEvent(new CustomEvent("nova:changed"));
    });
    this.source.onerror = () => this.onBreak();
  }

  end() {
    this.done = true;
    clearTimeout(this.timer);
    clearTimeout(this.hiding);
    this.close();
  }

  close() {
    this.source?.close();
    this.source = undefined;
  }

  async onBreak() {
    this.close();
    // A stream that ends as soon as it was opened is one that the API refuses.
    if (Date.now() - this.openedAt > LONGEST_PAUSE_MS) this.failures = 0;
    this.failures += 1;
    const pause = Math.min(LONGEST_PAUSE_MS, 500 * 2 ** this.failures) * (0.5 + Math.random() / 2);
    if (this.failures > 1) showOutage(await fetchPage("check"));
    this.timer = setTimeout(() => this.open(), pause);
  }

  onVisibility() {
    clearTimeout(this.hiding);
    if (document.hidden) this.hiding = setTimeout(() => { clearTimeout(this.timer); this.close(); }, HIDDEN_MS);
    else this.open();
  }
}

function refreshSections() {
  const sections = [...document.querySelectorAll("[data-refresh]")];
  if (!sections.length) return;
  const pause = Math.min(...sections.map((section) => Number(section.dataset.refresh))) * 1000;
  let failures = 0;
  let timer;

  async function refresh() {
    clearTimeout(timer);
    if (document.hidden) return;
    const response = await fetchPage("refresh");
    if (response?.ok) {
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const { id } of sections) {
        const [mine, theirs] = [document.getElementById(id), page.getElementById(id)];
        // A selection would be lost with the text under it.
        if (mine && theirs && !hasSelection(mine)) morph(mine, theirs);
      }
      failures = 0;
      showTimes();
      document.dispatchEvent(new CustomEvent("nova:changed"));
    } else {
      failures += 1;
    }
    if (failures !== 1) showOutage(response);
    timer = setTimeout(refresh, Math.min(LONGEST_PAUSE_MS, pause * 2 ** Math.min(failures, 4)));
  }

  timer = setTimeout(refresh, pause);
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
  addEventListener("online", refresh);
}

function retryPage() {
  const waiting = document.querySelector("[data-retry]");
  if (!waiting) return;
  setInterval(async () => {
    const response = await fetchPage("retry");
    if (response && response.status !== 503) location.reload();
  }, Number(waiting.dataset.retry) * 1000);
}

function hasSelection(element) {
  const selection = getSelection();
  return !selection.isCollapsed && element.contains(selection.anchorNode);
}

// Asks for the page itself, since that also shows whether the session has ended. Undefined: the console does not answer.
async function fetchPage(why) {
  const response = await fetch(location.href, { headers: { "Nova-Fragment": why } }).catch(() => undefined);
  if (response?.status === 401) location.reload();
  return response;
}

// The console's own failures are no outage: the next try may succeed, and its page would show them.
function showOutage(response) {
  document.getElementById("offline").hidden = response !== undefined;
  const away = document.getElementById("away");
  if (away && response) away.hidden = response.status !== 503;
}
